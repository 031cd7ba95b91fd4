//! Tasks that wait for each other for ever.
//!
//! Problem: programs that take two locks in different orders, or each wait for the other's message, stop a
//! VM. The run goes on to its end, and all that its result shows is a low rate.
//!
//! Approach: at the end of a run, each task that waits for a lock or for a channel waits for the tasks that
//! could end that: the holder of the lock, or those whose programs put into the channel, or take from it where
//! it is full. A task that runs, that can run, or that waits for anything else, is *live*, and so is one for
//! which a live task or a source of requests could do something. Of the others, those wait for ever whose
//! helpers have ended: a server whose clients are gone, which is as it should be. What is left waits for each
//! other.
//!
//! Limits: a program that contains the operation counts as a helper even where it would never come to it. In a
//! VM with tasks that fork or run other programs, and live, nothing is found, as these could do anything.

use super::vm::VmState;
use crate::kernel::{Kernel, Kernels, TaskState};
use crate::metrics::{Awaited, Deadlock};
use crate::program::code::Instruction;
use crate::scenario::{Scenario, Workload};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tandem_machine::ids::TaskId;

/// Something of a VM that a task waits for: a kind, and the number of the lock or channel.
type Thing = (Awaited, usize);

/// The deadlocks of all VMs, in the scenario's order.
pub(super) fn find(scenario: &Scenario, vms: &[VmState], kernels: &Kernels) -> Vec<Deadlock> {
    let mut all = Vec::new();
    for (number, (spec, vm)) in scenario.workloads.iter().zip(vms).enumerate() {
        if vm.is_there {
            let waits = of_vm(spec, vm, &kernels[vm.kernel]);
            all.extend(waits.into_iter().map(|(task, awaited, of)| Deadlock {
                vm: number.into(),
                task,
                awaited,
                of,
            }));
        }
    }
    all
}

/// Who waits, for what, and for whom: names of tasks or their programs, each combination once.
fn of_vm(spec: &Workload, vm: &VmState, kernel: &Kernel) -> BTreeSet<(String, Awaited, String)> {
    let mut waiters = waiters(vm);
    if waiters.is_empty() {
        return BTreeSet::new();
    }
    let tasks: Vec<TaskId> = match spec.guest() {
        Some(_) => (0..kernel.tasks().all().len()).map(TaskId::from).collect(),
        None => vm.tasks().map(TaskId::from).collect(),
    };
    let helpers = Helpers::new(vm, kernel, &tasks);
    for source in &spec.sources {
        waiters.remove(&(Awaited::Token, source.channel));
    }
    let waits: BTreeSet<TaskId> = waiters.values().flatten().copied().collect();
    let mut live: Vec<TaskId> = tasks
        .iter()
        .copied()
        .filter(|&task| kernel[task].state() != TaskState::Exited && !waits.contains(&task))
        .collect();
    while let Some(task) = live.pop() {
        if helpers.can_do_anything(task) {
            return BTreeSet::new();
        }
        for thing in helpers.of(task) {
            live.extend(waiters.remove(thing).into_iter().flatten());
        }
    }

    // Those that wait for ever: without those whose helpers have all ended, and then those that wait for these.
    loop {
        let dead: BTreeSet<TaskId> = waiters.values().flatten().copied().collect();
        let before = waiters.len();
        waiters.retain(|thing, _| helpers.for_thing(thing, kernel, &dead).next().is_some());
        if waiters.len() == before {
            let name = |task: TaskId| match spec.guest() {
                Some(guest) => guest.programs[kernel[task].group as usize].name.clone(),
                None => format!("{}/{}", spec.name, task.index() - vm.tasks().start),
            };
            let wait = |(thing, tasks): (&Thing, &Vec<TaskId>)| {
                let helpers: Vec<String> = helpers.for_thing(thing, kernel, &dead).map(name).collect();
                let of = |task: &TaskId| {
                    let task = name(*task);
                    helpers
                        .iter()
                        .map(move |helper| (task.clone(), thing.0, helper.clone()))
                        .collect::<Vec<_>>()
                };
                tasks.iter().flat_map(of).collect::<Vec<_>>()
            };
            return waiters.iter().flat_map(wait).collect();
        }
    }
}

/// The tasks that wait for locks and channels.
fn waiters(vm: &VmState) -> BTreeMap<Thing, Vec<TaskId>> {
    let locks = vm.locks.iter().enumerate().filter(|(_, lock)| lock.holder().is_some());
    let locks = locks.map(|(number, lock)| ((Awaited::Lock, number), lock.waiting().collect()));
    let channels = vm.channels.iter().enumerate().flat_map(|(number, channel)| {
        [
            ((Awaited::Token, number), channel.waiting().collect()),
            ((Awaited::Room, number), channel.senders().collect()),
        ]
    });
    locks.chain(channels).filter(|(_, tasks): &(Thing, Vec<TaskId>)| !tasks.is_empty()).collect()
}

/// What tasks could do for others.
struct Helpers {
    of_task: HashMap<TaskId, Arc<Help>>,
    for_thing: HashMap<Thing, Vec<TaskId>>,
    holds: HashMap<TaskId, Vec<Thing>>,
}

/// What a program could do for others.
#[derive(Default)]
struct Help {
    things: Vec<Thing>,
    /// It has tasks that run other programs.
    anything: bool,
}

impl Helpers {
    fn new(vm: &VmState, kernel: &Kernel, tasks: &[TaskId]) -> Self {
        let mut known: HashMap<(*const Instruction, u32), Arc<Help>> = HashMap::new();
        let mut helpers = Self { of_task: HashMap::new(), for_thing: HashMap::new(), holds: HashMap::new() };
        for &task in tasks {
            let (code, family) = (kernel[task].run.code(), kernel[task].lineage.family_channels());
            let help =
                known.entry((code.as_ptr(), family)).or_insert_with(|| Arc::new(help(vm, code, family)));
            helpers.of_task.insert(task, Arc::clone(help));
            for &thing in &help.things {
                helpers.for_thing.entry(thing).or_default().push(task);
            }
        }
        for (number, lock) in vm.locks.iter().enumerate() {
            if let Some(holder) = lock.holder() {
                helpers.holds.entry(holder).or_default().push((Awaited::Lock, number));
                helpers.for_thing.insert((Awaited::Lock, number), vec![holder]);
            }
        }
        helpers
    }

    fn can_do_anything(&self, task: TaskId) -> bool {
        self.of_task.get(&task).is_some_and(|help| help.anything)
    }

    fn of(&self, task: TaskId) -> impl Iterator<Item = &Thing> {
        let things = self.of_task.get(&task).into_iter().flat_map(|help| &help.things);
        things.chain(self.holds.get(&task).into_iter().flatten())
    }

    /// Those that could end the wait for a thing and wait themselves; a lock's holder also if it has ended.
    fn for_thing<'a>(
        &'a self,
        thing: &Thing,
        kernel: &'a Kernel,
        dead: &'a BTreeSet<TaskId>,
    ) -> impl Iterator<Item = TaskId> + 'a {
        let is_lock = thing.0 == Awaited::Lock;
        let helpers = self.for_thing.get(thing).into_iter().flatten().copied();
        helpers
            .filter(move |&task| dead.contains(&task) || is_lock && kernel[task].state() == TaskState::Exited)
    }
}

fn help(vm: &VmState, code: &[Instruction], family: u32) -> Help {
    let of = |channel: u32| (channel + if channel < vm.shared_channels { 0 } else { family }) as usize;
    let mut help = Help::default();
    for instruction in code {
        match *instruction {
            Instruction::Signal { channel }
            | Instruction::SignalAll { channel }
            | Instruction::Send { channel, .. } => help.things.push((Awaited::Token, of(channel))),
            Instruction::Wait { channel } | Instruction::TakeRest { channel } => {
                help.things.push((Awaited::Room, of(channel)));
            }
            Instruction::Fork { .. } | Instruction::Exec { .. } => help.anything = true,
            _ => {}
        }
    }
    help.things.sort_unstable();
    help.things.dedup();
    help
}
