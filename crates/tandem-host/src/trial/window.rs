//! Measures what tasks and VMs get in a window of time, in all of it and in its two halves.

use super::pressure::{all_waited_ns, some_waited_us};
use crate::cpu_time::read_cpu_times;
use crate::vms::{Finder, ThreadKind, Usage, Vm};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tandem_machine::Machine;

/// What a value is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All tasks of the machine.
    Machine,
    /// All VMs together.
    AllVms,
    /// One VM.
    Vm,
}

/// A measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredValue {
    /// What was measured.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// What it is about.
    pub subject: Subject,
    /// Whether less is better; otherwise that depends.
    pub is_less_better: bool,
    /// In all of the window.
    pub value: f64,
    /// In its two halves.
    pub halves: (f64, f64),
}

/// All that was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures {
    /// The values.
    pub values: Vec<MeasuredValue>,
    /// What this kernel does not count: a sentence each.
    pub missing: Vec<&'static str>,
}

/// A window that is open.
#[derive(Debug)]
pub struct Window<'a> {
    root: PathBuf,
    machine: &'a Machine,
    vms: Vec<(Vm, Usage)>,
    first: Reading,
    middle: Option<Reading>,
}

impl<'a> Window<'a> {
    /// Opens it for the VMs that there are now. `root` is `/` for this machine.
    pub fn open(root: &Path, machine: &'a Machine, finder: &mut Finder) -> Self {
        // What cannot be read now has no values.
        let _ = finder.scan();
        let usage = |vm: &Vm| {
            let threads = vm.read_threads();
            let usage = Usage::start_open(vm, threads.clone()).unwrap_or_else(|_| Usage::start(vm, threads));
            (vm.clone(), usage)
        };
        let vms: Vec<_> = finder.vms().map(usage).collect();
        let first = Reading::take(root, &vms);
        Self { root: root.to_owned(), machine, vms, first, middle: None }
    }

    /// Begins its second half.
    pub fn halve(&mut self) {
        self.middle = Some(self.read());
    }

    /// Whether its second half has begun.
    pub fn is_halved(&self) -> bool {
        self.middle.is_some()
    }

    /// Closes it; without a second half it has measured nothing.
    pub fn close(mut self) -> Measures {
        let last = self.read();
        let Some(middle) = self.middle.take() else { return Measures::default() };
        self.vms.retain(|(vm, _)| vm.is_alive());
        measures(&self.first, &middle, &last, &self.names())
    }

    fn read(&mut self) -> Reading {
        for (vm, usage) in &mut self.vms {
            usage.sample(vm, self.machine);
        }
        Reading::take(&self.root, &self.vms)
    }

    /// The VMs that are still there, with a name that no other has.
    fn names(&self) -> BTreeMap<u32, String> {
        let has_twin = |name: &str| self.vms.iter().filter(|(vm, _)| vm.name == name).count() > 1;
        let name = |vm: &Vm| match has_twin(&vm.name) {
            true => format!("{} ({})", vm.name, vm.identity.pid),
            false => vm.name.to_string(),
        };
        self.vms.iter().map(|(vm, _)| (vm.identity.pid, name(vm))).collect()
    }
}

/// Counters at a moment.
#[derive(Debug)]
struct Reading {
    at: Instant,
    some_waited_us: Option<u64>,
    all_waited_ns: Option<u64>,
    busy_ns: Option<u64>,
    vms: BTreeMap<u32, VmReading>,
}

/// Counters of a VM, from when the window was opened.
#[derive(Clone, Copy, Debug)]
struct VmReading {
    vcpus: usize,
    run_ns: u64,
    steal_ns: Option<u64>,
}

impl Reading {
    fn take(root: &Path, vms: &[(Vm, Usage)]) -> Self {
        let reading = |(vm, usage): &(Vm, Usage)| {
            let times = usage.vm();
            let vcpus = usage.threads().filter(|(thread, _)| thread.kind == ThreadKind::Vcpu).count();
            (vm.identity.pid, VmReading { vcpus, run_ns: times.run_ns, steal_ns: times.steal_ns })
        };
        Self {
            at: Instant::now(),
            some_waited_us: some_waited_us(root),
            all_waited_ns: all_waited_ns(root),
            busy_ns: read_cpu_times(root).ok().map(|cpus| cpus.iter().map(|cpu| cpu.busy_ns).sum()),
            vms: vms.iter().map(reading).collect(),
        }
    }
}

/// What three readings of a window say, for VMs with these names.
fn measures(first: &Reading, middle: &Reading, last: &Reading, names: &BTreeMap<u32, String>) -> Measures {
    let mut measures = Measures::default();
    // A counter as a share of the time, times `scale` per ns; counters of CPUs that go may fall.
    let mut add = |name: String,
                   unit,
                   subject,
                   is_less_better,
                   scale: f64,
                   counter: &dyn Fn(&Reading) -> Option<u64>| {
        let between = |from: &Reading, to: &Reading| {
            let ns = to.at.duration_since(from.at).as_nanos().max(1) as f64;
            Some(counter(to)?.saturating_sub(counter(from)?) as f64 * scale / ns)
        };
        let all = (between(first, last), between(first, middle), between(middle, last));
        let (Some(value), Some(earlier), Some(later)) = all else { return false };
        let halves = (earlier, later);
        measures.values.push(MeasuredValue { name, unit, subject, is_less_better, value, halves });
        true
    };
    let all_steal = |reading: &Reading| {
        reading.vms.iter().filter(|(pid, _)| names.contains_key(pid)).map(|(_, vm)| vm.steal_ns).sum()
    };
    let vcpus: usize =
        first.vms.iter().filter(|(pid, _)| names.contains_key(pid)).map(|(_, vm)| vm.vcpus).sum();
    let mut are_waits_known = true;
    if vcpus > 0 {
        let scale = 100.0 / vcpus as f64;
        are_waits_known = add("wait of VMs".into(), "%", Subject::AllVms, true, scale, &all_steal);
    }
    let has_pressure =
        add("pressure".into(), "%", Subject::Machine, true, 1e5, &|reading| reading.some_waited_us);
    let has_waiting =
        add("waiting tasks".into(), "", Subject::Machine, true, 1.0, &|reading| reading.all_waited_ns);
    add("busy CPUs".into(), "", Subject::Machine, false, 1.0, &|reading| reading.busy_ns);
    for (pid, name) in names {
        let vcpus = first.vms.get(pid).map_or(1, |vm| vm.vcpus.max(1)) as f64;
        let of = |reading: &Reading| reading.vms.get(pid).copied();
        let steal = |reading: &Reading| of(reading)?.steal_ns;
        let run = |reading: &Reading| Some(of(reading)?.run_ns);
        add(format!("wait of VM {name}"), "%", Subject::Vm, true, 100.0 / vcpus, &steal);
        add(format!("use of VM {name}"), "%", Subject::Vm, false, 100.0, &run);
    }
    for (is_there, missing) in [
        (are_waits_known, "the kernel does not count how long vCPUs wait (CONFIG_SCHED_INFO)"),
        (has_pressure, "the kernel does not measure pressure; boot it with psi=1"),
        (has_waiting, "the kernel does not count how long tasks wait (CONFIG_SCHEDSTATS)"),
    ] {
        if !is_there {
            measures.missing.push(missing);
        }
    }
    measures
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn reading(begin: Instant, s: u64, counters: [u64; 3], vms: &[(u32, VmReading)]) -> Reading {
        let [some, all, busy] = counters;
        Reading {
            at: begin + Duration::from_secs(s),
            some_waited_us: Some(some),
            all_waited_ns: Some(all),
            busy_ns: Some(busy),
            vms: vms.iter().copied().collect(),
        }
    }

    fn vm(vcpus: usize, run_s: u64, steal_s: u64) -> VmReading {
        VmReading { vcpus, run_ns: run_s * 1_000_000_000, steal_ns: Some(steal_s * 1_000_000_000) }
    }

    #[test]
    fn counters_become_shares_of_the_window_and_of_its_halves() {
        let begin = Instant::now();
        let first = reading(begin, 0, [0; 3], &[(7, vm(2, 0, 0)), (8, vm(2, 0, 0)), (9, vm(4, 0, 0))]);
        let middle = reading(
            begin,
            10,
            [1_000_000, 5_000_000_000, 20_000_000_000],
            &[(7, vm(2, 10, 1)), (8, vm(2, 0, 0)), (9, vm(4, 9, 9))],
        );
        let last = reading(
            begin,
            20,
            [4_000_000, 5_000_000_000, 25_000_000_000],
            &[(7, vm(2, 30, 4)), (8, vm(2, 0, 0)), (9, vm(4, 9, 9))],
        );
        // Process 9 has ended.
        let names = [(7, "web".to_owned()), (8, "db".to_owned())].into();
        let found = measures(&first, &middle, &last, &names);
        let values: Vec<_> = found.values.iter().map(|v| (v.name.as_str(), v.value, v.halves)).collect();
        let expected = [
            ("wait of VMs", 5.0, (2.5, 7.5)),
            ("pressure", 20.0, (10.0, 30.0)),
            ("waiting tasks", 0.25, (0.5, 0.0)),
            ("busy CPUs", 1.25, (2.0, 0.5)),
            ("wait of VM web", 10.0, (5.0, 15.0)),
            ("use of VM web", 150.0, (100.0, 200.0)),
            ("wait of VM db", 0.0, (0.0, 0.0)),
            ("use of VM db", 0.0, (0.0, 0.0)),
        ];
        for (value, expected) in values.iter().zip(expected) {
            let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert_eq!(value.0, expected.0);
            assert!(
                close(value.1, expected.1)
                    && close(value.2.0, expected.2.0)
                    && close(value.2.1, expected.2.1),
                "{value:?}"
            );
        }
        assert_eq!(values.len(), expected.len());
        assert_eq!(found.missing, [""; 0]);
    }

    #[test]
    fn what_the_kernel_does_not_count_is_said() {
        let begin = Instant::now();
        let without = |s| {
            let waits = VmReading { vcpus: 1, run_ns: 0, steal_ns: None };
            Reading { some_waited_us: None, all_waited_ns: None, ..reading(begin, s, [0; 3], &[(7, waits)]) }
        };
        let found = measures(&without(0), &without(1), &without(2), &[(7, "web".to_owned())].into());
        let names: Vec<_> = found.values.iter().map(|value| value.name.as_str()).collect();
        assert_eq!(names, ["busy CPUs", "use of VM web"]);
        assert_eq!(found.missing.len(), 3);
    }
}
