//! How amounts and names are written.

use crate::observe::{Observation, ObservedVm};
use std::time::Duration;
use tandem_file::shown::readable;
pub use tandem_file::shown::to_json_text;
use tandem_host::vms::{HomeSource, Homes, Manager, Memory, Vm};
use tandem_machine::format_cpulist;

/// What cannot be read.
pub const UNKNOWN: &str = "?";

/// Bytes with two digits at least, in binary units: `512M`, `3.9G`, `64G`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "K", "M", "G", "T", "P", "E"];
    let mut value = bytes as f64;
    let mut unit = 0;
    // Rounded, 1023.9 would be one of the next.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(value < 9.95 && unit > 0 && value.fract() > 0.0);
    format!("{value:.decimals$}{}", UNITS[unit])
}

/// A percentage: `0%`, `0.4%`, `12%`.
pub fn pct(pct: Option<f64>) -> String {
    match pct {
        None => UNKNOWN.into(),
        Some(pct) if pct < 0.05 => "0%".into(),
        Some(pct) => format!("{pct:.*}%", usize::from(pct < 9.95)),
    }
}

/// How many there are: `1 CPU`, `4 CPUs`.
pub fn many(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// Events a second: `0`, `0.4`, `12`, `12.3k`.
pub fn rate(rate: f64) -> String {
    match rate {
        rate if rate < 0.05 => "0".into(),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate if rate < 9_999.5 => format!("{rate:.0}"),
        rate if rate < 999_950.0 => format!("{:.1}k", rate / 1e3),
        rate => format!("{:.1}M", rate / 1e6),
    }
}

/// A time in its two largest units.
pub fn age(time: Duration) -> String {
    let s = time.as_secs();
    match (s / 86_400, s / 3_600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, min, s) => format!("{min} min {s} s"),
        (0, h, min, _) => format!("{h} h {min} min"),
        (days, h, ..) => format!("{days} d {h} h"),
    }
}

/// The node with most of a VM's memory, and the share: `1:90%`; `None` if that cannot be read.
pub fn main_node(memory: &Memory) -> Option<String> {
    let all: u64 = memory.by_node.as_ref()?.bytes.values().sum();
    let told = |(node, bytes)| format!("{node}:{:.0}%", 100.0 * bytes as f64 / all as f64);
    Some(fullest_node(memory).filter(|_| all > 0).map_or("-".into(), told))
}

/// The node with most of a VM's memory, and how many bytes; of equals the first.
pub fn fullest_node(memory: &Memory) -> Option<(u32, u64)> {
    let bytes = &memory.by_node.as_ref()?.bytes;
    bytes.iter().rev().max_by_key(|&(_, bytes)| bytes).map(|(&node, &bytes)| (node, bytes))
}

/// A name without control characters, which could move the cursor or end the line.
pub fn name(name: &str) -> String {
    readable(name, &[])
}

/// A text of at most that many characters, with a mark if something is missing.
pub fn cut(text: &str, width: usize) -> String {
    match text.chars().count() <= width {
        true => text.to_owned(),
        false => text.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// The nodes of a home: `1`; `0|1` if virtual nodes have each its own; `(1)` if it is only planned; `-` if
/// there is none.
pub fn home(homes: &Homes) -> String {
    let nodes = match &homes.parts[..] {
        [] => list_of_nodes(&homes.nodes),
        parts => parts.iter().map(|part| list_of_nodes(&part.home)).collect::<Vec<_>>().join("|"),
    };
    if homes.source == Some(HomeSource::Planned) && !homes.nodes.is_empty() {
        format!("({nodes})")
    } else {
        nodes
    }
}

fn list_of_nodes(nodes: &[u32]) -> String {
    if nodes.is_empty() { "-".into() } else { format_cpulist(nodes.iter().copied()) }
}

/// Who started a VM, or else what runs it.
pub fn by(vm: &Vm) -> String {
    match vm.manager {
        Manager::None => vm.monitor.to_string(),
        _ => vm.manager.to_string(),
    }
}

/// What a VM had in the interval, in percent; `None` if it cannot be read.
pub struct Percentages {
    /// CPU time of all its threads; one busy CPU is 100.
    pub cpu: f64,
    /// Time in which its threads waited for a CPU; 100 for each that waits all the time.
    pub wait: Option<f64>,
    /// Time in which its vCPUs were ready and waited for a CPU, on average over the vCPUs.
    pub steal: Option<f64>,
    /// Share of its vCPUs' CPU time that they spent on their home nodes; `None` as well if it has no home, or
    /// no vCPU has run.
    pub local: Option<f64>,
}

impl Percentages {
    /// Those of a VM in an observation.
    pub fn of(vm: &ObservedVm, observation: &Observation) -> Self {
        let interval_ns = observation.interval.as_nanos() as f64;
        let of_interval = |ns: u64| 100.0 * ns as f64 / interval_ns;
        let vcpus = vm.vcpu_count().max(1) as f64;
        let nodes_of = |vcpu: u32| {
            let part = vm.homes.parts.iter().find(|part| part.vcpus.contains(&vcpu));
            part.map_or(&[][..], |part| &part.home)
        };
        let local = match vm.homes.parts[..] {
            [] => vm.usage.share_on(&vm.homes.nodes),
            _ => vm.usage.share_of_vcpus(nodes_of),
        };
        let local = local.filter(|_| !vm.homes.nodes.is_empty());
        Self {
            cpu: of_interval(vm.usage.run_ns),
            wait: vm.usage.wait_ns.map(of_interval),
            steal: vm.usage.steal_ns.map(|ns| of_interval(ns) / vcpus),
            local: local.map(|share| 100.0 * share),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short() {
        let cases = [
            (0, "0B"),
            (512 << 20, "512M"),
            (1 << 30, "1G"),
            (3_900_000_000, "3.6G"),
            ((1 << 40) - 1, "1.0T"),
            (u64::MAX, "16E"),
        ];
        for (amount, expected) in cases {
            assert_eq!(bytes(amount), expected);
        }
        let cases = [
            (None, "?"),
            (Some(0.0), "0%"),
            (Some(0.06), "0.1%"),
            (Some(9.96), "10%"),
            (Some(1280.4), "1280%"),
        ];
        for (share, expected) in cases {
            assert_eq!(pct(share), expected);
        }
    }

    #[test]
    fn ages_have_two_units() {
        let cases = [(5, "5 s"), (65, "1 min 5 s"), (3_600, "1 h 0 min"), (90_061, "1 d 1 h")];
        for (s, expected) in cases {
            assert_eq!(age(Duration::from_secs(s)), expected);
        }
    }

    #[test]
    fn rates_have_three_digits_or_four() {
        let cases =
            [(0.04, "0"), (0.4, "0.4"), (12.3, "12"), (9_999.0, "9999"), (12_345.0, "12.3k"), (2e6, "2.0M")];
        for (per_s, expected) in cases {
            assert_eq!(rate(per_s), expected);
        }
    }
}
