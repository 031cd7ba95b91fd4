//! Every measurement of a run, counted again from the run's events by other code.
//!
//! The simulator counts as it goes: clocks of tasks, sums that it resets when the warm-up ends, histograms.
//! Here each task's history is put together from the events alone, cut to the measured time, and added up.
//! With costs off, times agree to the nanosecond; with costs, the host's and the guests' own code takes parts
//! of the time between events, and counts agree.

use crate::common::random_guests::scenario_with_guests;
use crate::common::{MS, US};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::BTreeMap;
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::ids::{CpuId, KernelId, TaskId};
use tandem_sim::cost::CostModels;
use tandem_sim::metrics::{RunMetrics, TaskMetrics};
use tandem_sim::program::{Amount, Op};
use tandem_sim::run_observed;
use tandem_sim::scenario::{Scenario, Vcpus};
use tandem_sim::times::Times;
use tandem_sim::trace::{Event, EventKind, Observer};

/// Everything that an observer learns.
#[derive(Default)]
struct Recording {
    events: Vec<Event>,
    /// Names, each with the number of events before it.
    names: Vec<(usize, KernelId, TaskId, String)>,
}

impl Observer for Recording {
    fn observe(&mut self, event: Event) {
        self.events.push(event);
    }

    fn named(&mut self, _: u64, kernel: KernelId, task: TaskId, name: &str) {
        self.names.push((self.events.len(), kernel, task, name.into()));
    }
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Sleeps,
    /// Since it woke up or started (true), or since it lost its CPU.
    Waits(bool),
    Runs,
}

/// A stretch of a task's life.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    doing: Doing,
    from_ns: u64,
    to_ns: u64,
}

/// What a kernel's tasks of one account did: a vCPU's, or a program's.
#[derive(Default)]
struct Account {
    stretches: Vec<Stretch>,
    counted: TaskMetrics,
}

/// A task while it lives.
struct Living {
    account: String,
    doing: Doing,
    since_ns: u64,
    cpu: CpuId,
}

/// The accounts of a kernel: of each vCPU by number in the host's, of each program by name in a guest's.
struct Kernel {
    machine: Arc<Machine>,
    living: BTreeMap<TaskId, Living>,
    accounts: BTreeMap<String, Account>,
}

impl Kernel {
    fn new(machine: Arc<Machine>) -> Self {
        Self { machine, living: BTreeMap::new(), accounts: BTreeMap::new() }
    }

    fn account(&mut self, name: &str) -> &mut Account {
        self.accounts.entry(name.into()).or_default()
    }

    /// Changes what a task does; `None` ends it.
    fn change(&mut self, task: TaskId, doing: Option<Doing>, at_ns: u64) {
        let living = self.living.get_mut(&task).expect("it lives");
        let stretch = Stretch { doing: living.doing, from_ns: living.since_ns, to_ns: at_ns };
        let account = living.account.clone();
        match doing {
            Some(doing) => (living.doing, living.since_ns) = (doing, at_ns),
            None => {
                self.living.remove(&task);
            }
        }
        self.account(&account).stretches.push(stretch);
    }

    /// The task goes on as another program.
    fn rename(&mut self, task: TaskId, name: &str, at_ns: u64) {
        let doing = self.living[&task].doing;
        self.change(task, Some(doing), at_ns);
        self.living.get_mut(&task).expect("it lives").account = name.into();
    }

    fn observe(&mut self, event: Event, is_measured: bool, name: &str) -> Result<(), String> {
        let Event { at_ns, kind, cpu, task, by, .. } = event;
        if kind == EventKind::Wake && !self.living.contains_key(&task) {
            // A child comes from its parent's CPU.
            let cpu = by.map_or(cpu, |(cpu, _)| cpu);
            let born = Living { account: name.into(), doing: Doing::Waits(true), since_ns: at_ns, cpu };
            self.living.insert(task, born);
            self.account(name);
            return Ok(());
        }
        let living = self.living.get_mut(&task).ok_or_else(|| format!("{event:?} before its start"))?;
        let (before, account) = (living.doing, living.account.clone());
        let came_from = living.cpu;
        let mut counted = TaskMetrics::default();
        let after = match (kind, before) {
            (EventKind::Continue, Doing::Runs) => return Ok(()),
            (EventKind::Wake, Doing::Sleeps) => {
                counted.wakeups = 1;
                Some(Doing::Waits(true))
            }
            (EventKind::Start, Doing::Waits(_)) => {
                living.cpu = cpu;
                counted.dispatches = 1;
                let (from, to) = (self.machine.cpu(came_from), self.machine.cpu(cpu));
                counted.migrations_across_nodes = u64::from(from.node != to.node);
                counted.migrations_in_node = u64::from(from.node == to.node && from.llc != to.llc);
                counted.migrations_in_llc =
                    u64::from(from.node == to.node && from.llc == to.llc && came_from != cpu);
                Some(Doing::Runs)
            }
            (EventKind::Preempt, Doing::Runs) => {
                counted.preemptions = 1;
                Some(Doing::Waits(false))
            }
            (EventKind::Yield | EventKind::Block | EventKind::Exit, Doing::Runs) => {
                counted.voluntary_switches = 1;
                match kind {
                    EventKind::Yield => Some(Doing::Waits(false)),
                    EventKind::Block => Some(Doing::Sleeps),
                    _ => None,
                }
            }
            _ => return Err(format!("{event:?} of a task that {before:?}")),
        };
        self.change(task, after, at_ns);
        if is_measured {
            self.account(&account).counted.add(&counted);
        }
        Ok(())
    }
}

/// A run, counted again.
struct Recount {
    metrics: RunMetrics,
    kernels: Vec<Kernel>,
    from_ns: u64,
    to_ns: u64,
}

fn recount(scenario: &Scenario, seed: u64) -> Result<Recount, TestCaseError> {
    let mut recording = Recording::default();
    let metrics = run_observed(scenario, seed, &mut recording).unwrap();
    let (from_ns, to_ns) = (scenario.warmup_ns, scenario.warmup_ns + metrics.length_ns);
    // An event at the very end of the warm-up could be on either side of it.
    prop_assume!(from_ns == 0 || recording.events.iter().all(|event| event.at_ns != from_ns));
    let guests = scenario.workloads.iter().map(|vm| match vm.guest() {
        Some(guest) => guest.topology.clone(),
        None => scenario.machine.clone(),
    });
    let mut kernels: Vec<Kernel> =
        std::iter::once(scenario.machine.clone()).chain(guests).map(Kernel::new).collect();
    let mut names = recording.names.into_iter().peekable();
    let mut newest: BTreeMap<(KernelId, TaskId), String> = BTreeMap::new();
    for (at, event) in recording.events.iter().enumerate() {
        while let Some((_, kernel, task, name)) = names.next_if(|(before, ..)| *before <= at) {
            if kernels[kernel.index()].living.contains_key(&task) {
                // Named at its exec, which happens between two events, at the time of the next.
                kernels[kernel.index()].rename(task, &name, event.at_ns);
            }
            newest.insert((kernel, task), name);
        }
        let name = match event.kernel {
            KernelId::HOST => format!("{:05}", event.task.0),
            kernel => newest[&(kernel, event.task)].clone(),
        };
        let is_measured = event.at_ns >= from_ns;
        kernels[event.kernel.index()].observe(*event, is_measured, &name).map_err(TestCaseError::fail)?;
    }
    for kernel in &mut kernels {
        for task in kernel.living.keys().copied().collect::<Vec<_>>() {
            kernel.change(task, None, to_ns);
        }
    }
    Ok(Recount { metrics, kernels, from_ns, to_ns })
}

impl Recount {
    /// Time of an account in stretches of a kind, ns.
    fn time_ns(&self, account: &Account, is_meant: impl Fn(Doing) -> bool) -> u64 {
        let meant = account.stretches.iter().filter(|stretch| is_meant(stretch.doing));
        meant.map(|it| it.to_ns.min(self.to_ns).saturating_sub(it.from_ns.max(self.from_ns))).sum()
    }

    /// The delays of wake-ups and starts in the measured time, ns, in order of size.
    fn delays_ns(&self, account: &Account) -> Vec<u64> {
        let is_meant = |it: &&Stretch| it.doing == Doing::Waits(true) && it.from_ns >= self.from_ns;
        let mut delays_ns: Vec<u64> =
            account.stretches.iter().filter(is_meant).map(|it| it.to_ns - it.from_ns).collect();
        delays_ns.sort_unstable();
        delays_ns
    }
}

fn check_counts(found: &TaskMetrics, account: &Account, what: &str) -> Result<(), TestCaseError> {
    let counts = |of: &TaskMetrics| {
        [
            ("dispatches", of.dispatches),
            ("preemptions", of.preemptions),
            ("voluntary switches", of.voluntary_switches),
            ("wake-ups", of.wakeups),
            ("migrations in LLCs", of.migrations_in_llc),
            ("migrations in nodes", of.migrations_in_node),
            ("migrations across nodes", of.migrations_across_nodes),
        ]
    };
    prop_assert_eq!(counts(found), counts(&account.counted), "{}", what);
    Ok(())
}

fn check_times(found: &Times, exact_ns: &[u64], what: &str) -> Result<(), TestCaseError> {
    prop_assert_eq!(found.max_ns(), exact_ns.last().copied().unwrap_or(0), "{}", what);
    let sum: u128 = exact_ns.iter().map(|&ns| u128::from(ns)).sum();
    prop_assert_eq!(
        found.mean_ns(),
        if exact_ns.is_empty() { 0.0 } else { sum as f64 / exact_ns.len() as f64 }
    );
    for part in [0.5, 0.95, 0.99] {
        let at = (part * exact_ns.len() as f64).ceil() as usize;
        let exact = exact_ns.get(at.saturating_sub(1)).copied().unwrap_or(0) as f64;
        let quantile = found.quantile_ns(part) as f64;
        prop_assert!((exact..=1.001 * exact + 1.0).contains(&quantile), "{what}: {quantile}, {exact}");
    }
    Ok(())
}

/// Any scenario with guests, in which VMs come and go too; most have no costs, and much happens at one
/// instant.
fn scenarios() -> impl Strategy<Value = Scenario> {
    let comes = (prop::option::weighted(0.3, 0..60 * MS), prop::option::weighted(0.3, MS..60 * MS));
    let is_exact = prop::bool::weighted(0.7);
    (scenario_with_guests(), vec(comes, 8), is_exact).prop_map(|(mut scenario, comes, is_exact)| {
        for (workload, (start_ns, life_ns)) in scenario.workloads.iter_mut().zip(comes) {
            let Some(vm) = workload.vm_mut() else { continue };
            vm.start = start_ns.map(Amount::Fixed);
            match &mut vm.vcpus {
                Vcpus::Programs { life, .. } => *life = life_ns.map(Amount::Fixed),
                Vcpus::Guest { guest, .. } if is_exact => {
                    (guest.context_switch, guest.interrupt) = (None, None);
                    for program in &mut guest.programs {
                        round(&mut Arc::make_mut(&mut program.program).ops);
                    }
                }
                Vcpus::Guest { .. } | Vcpus::Threads { .. } => {}
            }
        }
        if is_exact {
            (scenario.costs, scenario.pause_loop) = (CostModels::off(), None);
        }
        scenario
    })
}

/// Rounds spans to tens of microseconds.
fn round(ops: &mut [Op]) {
    for op in ops {
        match op {
            Op::Compute { work: Amount::Fixed(ns), .. } | Op::Sleep(Amount::Fixed(ns)) => {
                *ns = ns.next_multiple_of(10 * US);
            }
            Op::Repeat { body, .. } => round(body),
            _ => {}
        }
    }
}

/// Runs are short, and what goes wrong does so at coincidences.
fn many_cases() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: 4 * config.cases, failure_persistence: None, ..config }
}

proptest! {
    #![proptest_config(many_cases())]

    #[test]
    fn a_run_measures_what_its_events_say(scenario in scenarios(), seed: u64) {
        let run = recount(&scenario, seed)?;
        let is_exact = scenario.costs == CostModels::off() && scenario.pause_loop.is_none();
        let mut task = 0;
        let mut on_pcpus_ns = 0;
        for (at, vm) in run.metrics.vms.iter().enumerate() {
            let mut delays_ns = Vec::new();
            for (number, vcpu) in vm.vcpus.iter().enumerate() {
                let what = format!("vCPU {number} of {}", vm.name);
                let none = Account::default();
                let account = run.kernels[0].accounts.get(&format!("{task:05}")).unwrap_or(&none);
                task += 1;
                check_counts(vcpu, account, &what)?;
                let run_ns = run.time_ns(account, |doing| doing == Doing::Runs);
                let sleep_ns = run.time_ns(account, |doing| doing == Doing::Sleeps);
                let wait_ns = run.time_ns(account, |doing| matches!(doing, Doing::Waits(_)));
                on_pcpus_ns += run_ns;
                if vm.guest.is_none() {
                    prop_assert_eq!(vcpu.sleep_ns, sleep_ns, "{}", what);
                    prop_assert_eq!(vcpu.run_ns + vcpu.wait_ns, run_ns + wait_ns, "{}", what);
                }
                if is_exact {
                    prop_assert_eq!((vcpu.run_ns, vcpu.wait_ns, vcpu.sleep_ns), (run_ns, wait_ns, sleep_ns), "{}", what);
                    let waits = account.stretches.iter().filter(|it| matches!(it.doing, Doing::Waits(_)));
                    let longest_ns = waits.map(|it| it.to_ns.saturating_sub(it.from_ns.max(run.from_ns))).max();
                    prop_assert_eq!(vcpu.longest_wait_ns, longest_ns.unwrap_or(0), "{}", what);
                    if let Some(guest) = &vm.guest {
                        let cpu = &guest.cpus[number];
                        prop_assert_eq!((cpu.busy_ns + cpu.polled_ns, cpu.stolen_ns), (run_ns, wait_ns), "{}", what);
                        prop_assert_eq!(cpu.total_ns(), vm.lived_ns, "{}", what);
                    }
                }
                delays_ns.extend(run.delays_ns(account));
            }
            delays_ns.sort_unstable();
            prop_assert_eq!(vm.vcpu_delay.count(), delays_ns.len() as u64);
            if is_exact {
                check_times(&vm.vcpu_delay, &delays_ns, &vm.name)?;
            }
            let Some(guest) = &vm.guest else { continue };
            let kernel = &run.kernels[at + 1];
            let mut names: Vec<&str> = guest.programs.iter().map(|program| program.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                // Several programs of a random guest have one name.
                let meant = || guest.programs.iter().filter(|program| program.name == name);
                let total = TaskMetrics::sum(meant().map(|program| &program.total));
                let delay = Times::sum(meant().map(|program| &program.delay));
                let what = format!("{name} in {}", vm.name);
                let none = Account::default();
                let account = kernel.accounts.get(name).unwrap_or(&none);
                check_counts(&total, account, &what)?;
                let delays_ns = run.delays_ns(account);
                prop_assert_eq!(delay.count(), delays_ns.len() as u64, "{}", what);
                let on_cpu_ns = run.time_ns(account, |doing| doing == Doing::Runs);
                let wait_ns = run.time_ns(account, |doing| matches!(doing, Doing::Waits(_)));
                let sleep_ns = run.time_ns(account, |doing| doing == Doing::Sleeps);
                if is_exact {
                    prop_assert_eq!(total.run_ns + total.stolen_ns, on_cpu_ns, "{}", what);
                    prop_assert_eq!((total.wait_ns, total.sleep_ns), (wait_ns, sleep_ns), "{}", what);
                    check_times(&delay, &delays_ns, &what)?;
                }
            }
        }
        if is_exact {
            prop_assert_eq!(run.metrics.host.busy_ns, on_pcpus_ns);
            let pcpus_ns = scenario.machine.cpu_count() as u64 * run.metrics.length_ns;
            prop_assert_eq!(run.metrics.host.idle_ns, pcpus_ns - on_pcpus_ns);
        }
    }
}
