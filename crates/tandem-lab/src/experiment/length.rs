//! Whether runs are long enough for what they measure.
//!
//! Tasks begin somewhere, and a kernel brings them to where they belong by balancing. The largest domain of a
//! machine is balanced least often: each 88 ms on 88 CPUs. A run of 30 ms shows where tasks began.

use tandem_file::units::Duration;
use tandem_machine::Machine;
use tandem_sim::policy::linux::slowest_balancing_ns;
use tandem_sim::scenario::{PolicySettings, Scenario};

/// Periods of balancing that a run must be long for, warm-up included.
const PERIODS_MIN: u64 = 10;

/// Which kernel of the scenario balances too seldom for its length, in a sentence.
pub(super) fn problem(scenario: &Scenario) -> Option<String> {
    let run_ns = scenario.warmup_ns + scenario.length_ns;
    let host = [("the host".to_owned(), &scenario.policy, &*scenario.machine)];
    let mut last_group = "";
    let guests = scenario.workloads.iter().filter_map(|workload| {
        // The VMs of a group have the same kernel.
        let is_first = std::mem::replace(&mut last_group, &workload.group) != workload.group;
        let guest = workload.guest().filter(|_| is_first)?;
        Some((format!("the guest of `{}`", workload.group), &guest.policy, &*guest.topology))
    });
    let periods = host.into_iter().chain(guests);
    let slowest = periods.map(|(kernel, policy, machine)| (period_ns(policy, machine), kernel));
    let (period_ns, kernel) = slowest.max_by_key(|&(period_ns, _)| period_ns)?;
    let needed_ns = PERIODS_MIN * period_ns;
    (run_ns < needed_ns).then(|| {
        let [run, period, needed] = [run_ns, period_ns, needed_ns].map(|ns| Duration { ns });
        format!(
            "the run takes {run} with its warm-up, while {kernel} balances its largest domain each {period}; \
             make it {needed} or longer, or say in `short` why less is enough"
        )
    })
}

/// How often a kernel balances its largest domain, ns; 0 for one that has none.
fn period_ns(policy: &PolicySettings, machine: &Machine) -> u64 {
    match policy {
        PolicySettings::Linux(settings) => slowest_balancing_ns(settings, machine),
        PolicySettings::Credit(_) | PolicySettings::Credit2(_) | PolicySettings::SchedExt(_) => 0,
    }
}
