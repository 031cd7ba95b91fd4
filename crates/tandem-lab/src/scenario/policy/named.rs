//! What a scheduler is called in results: its name and release.

use super::words::Words;
use tandem_sim::scenario::{PolicySettings, Scenario};

/// The name of a scheduler with the release that it follows, such as "linux 6.12"; of a compiled one with the
/// kernel that runs it, such as "tandem on linux 7.3".
pub fn named(policy: &PolicySettings) -> String {
    match policy {
        PolicySettings::Credit(it) => format!("xen-credit {}", word(it.era)),
        PolicySettings::Credit2(it) => format!("xen-credit2 {}", word(it.release)),
        PolicySettings::Linux(it) => format!("linux {}", word(it.era)),
        PolicySettings::SchedExt(it) => format!("{} on linux {}", it.name, word(it.kernel)),
    }
}

/// The schedulers of the guest kernels of a scenario, each once, in the order of its VMs.
pub fn named_guests(scenario: &Scenario) -> Vec<String> {
    let mut names = Vec::new();
    for guest in scenario.workloads.iter().filter_map(|workload| workload.guest()) {
        let name = named(&guest.policy);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The word that files have for a value.
fn word<T: Words + PartialEq>(value: T) -> &'static str {
    let found = T::WORDS.iter().find(|(_, of, _)| *of == value);
    found.expect("every release has a word").0
}
