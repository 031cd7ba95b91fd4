//! How amounts and names are written.

use super::observe::{Observation, ObservedVm};
use tandem_host::vms::{Manager, Vm};

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

/// A name without control characters, which could move the cursor or end the line.
pub fn name(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        match character.is_control() {
            true => text.extend(character.escape_default()),
            false => text.push(character),
        }
    }
    text
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
    pub cpu: f64,
    pub wait: Option<f64>,
    pub steal: Option<f64>,
    /// `None` as well if it has no home, or no vCPU has run.
    pub local: Option<f64>,
}

impl Percentages {
    pub fn of(vm: &ObservedVm, observation: &Observation) -> Self {
        let interval_ns = observation.interval.as_nanos() as f64;
        let of_interval = |ns: u64| 100.0 * ns as f64 / interval_ns;
        let vcpus = vm.vcpu_count().max(1) as f64;
        let local = vm.usage.share_on(&vm.homes.nodes).filter(|_| !vm.homes.nodes.is_empty());
        Self {
            cpu: of_interval(vm.usage.run_ns),
            wait: vm.usage.wait_ns.map(of_interval),
            steal: vm.usage.steal_ns.map(|ns| of_interval(ns) / vcpus),
            local: local.map(|share| 100.0 * share),
        }
    }
}
