//! Invariants under any behaviour of tasks.

use super::*;
use crate::scenario::{BandwidthLimit, CgroupName};
use std::collections::BTreeSet;

const TASKS: u32 = 6;
const CPUS: u32 = 3;
const CGROUPS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    Blocked,
    Runnable,
}

/// An event; events that are impossible in the present state are skipped.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive { task: u32, cpu: u32 },
    Block { cpu: u32 },
    Exit { cpu: u32 },
    Exec { cpu: u32, to: u32 },
    Yield { cpu: u32 },
    YieldTo { cpu: u32, target: u32 },
    Move { task: u32, to: u32 },
    Steal { cpu: u32, time_us: u64 },
    Limit { cgroup: usize, limit: Option<BandwidthLimit> },
    Pass { time_us: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (cpu, task) = (0..CPUS, 0..TASKS);
    let step = prop_oneof![
        4 => (task.clone(), cpu.clone()).prop_map(|(task, cpu)| Step::Arrive { task, cpu }),
        3 => cpu.clone().prop_map(|cpu| Step::Block { cpu }),
        1 => cpu.clone().prop_map(|cpu| Step::Exit { cpu }),
        1 => (cpu.clone(), cpu.clone()).prop_map(|(cpu, to)| Step::Exec { cpu, to }),
        1 => cpu.clone().prop_map(|cpu| Step::Yield { cpu }),
        1 => (cpu.clone(), task.clone()).prop_map(|(cpu, target)| Step::YieldTo { cpu, target }),
        2 => (task, cpu.clone()).prop_map(|(task, to)| Step::Move { task, to }),
        1 => (cpu, 0..9000u64).prop_map(|(cpu, time_us)| Step::Steal { cpu, time_us }),
        1 => (0..CGROUPS, groups::any_limit()).prop_map(|(cgroup, limit)| Step::Limit { cgroup, limit }),
        4 => (0..9000u64).prop_map(|time_us| Step::Pass { time_us }),
    ];
    prop::collection::vec(step, 1..120)
}

struct World {
    hand: Hand,
    states: Vec<State>,
}

impl World {
    fn take(&mut self, cpu: u32, state: State) -> Option<TaskId> {
        let task = self.hand.running[cpu as usize]?;
        self.states[task.index()] = state;
        Some(task)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Arrive { task, cpu } => {
                let cpu = CpuId(cpu);
                let parent = self.hand.running[0];
                let reason = match (self.states[task as usize], parent) {
                    (State::Runnable, _) => return,
                    (State::Blocked, waker) => Reason::Wake { waker, cpu: CPU, sync: true },
                    (State::Absent, Some(parent)) => Reason::Fork { parent, cpu: CPU },
                    (State::Absent, None) => Reason::Start,
                };
                self.states[task as usize] = State::Runnable;
                let leaving = self.hand.linux.queues.known(TaskId(task)).is_some_and(|entity| entity.delayed);
                let (selected, _) = self.hand.ask(|linux, ctx| linux.select_cpu(ctx, TaskId(task), reason));
                self.hand.enqueue(task, if leaving { selected } else { cpu }, reason);
            }
            Step::Block { cpu } => {
                if self.take(cpu, State::Blocked).is_some() {
                    self.hand.block(CpuId(cpu));
                }
            }
            Step::Exit { cpu } => {
                if let Some(task) = self.take(cpu, State::Absent) {
                    self.hand.block(CpuId(cpu));
                    self.hand.tell(|linux, ctx| linux.exited(ctx, task));
                }
            }
            Step::Exec { cpu, to } => {
                if let Some(task) = self.take(cpu, State::Runnable) {
                    self.hand.running[cpu as usize] = None;
                    self.hand.tell(|linux, ctx| linux.blocked(ctx, CpuId(cpu), task));
                    self.hand.enqueue(task.0, CpuId(to), Reason::Exec { cpu: CpuId(cpu) });
                    self.hand.decide(CpuId(cpu));
                }
            }
            Step::Yield { cpu } => {
                if let Some(task) = self.take(cpu, State::Runnable) {
                    self.hand.tell(|linux, ctx| linux.yielded(ctx, CpuId(cpu), task));
                    self.hand.decide(CpuId(cpu));
                }
            }
            Step::YieldTo { cpu, target } => {
                if let Some(task) = self.take(cpu, State::Runnable) {
                    let queues = &self.hand.linux.queues;
                    let waits = self.states[target as usize] == State::Runnable
                        && !self.hand.running.contains(&Some(TaskId(target)))
                        && !queues.is_throttled(TaskId(target), queues.entity(TaskId(target)).cpu);
                    let mut yielded = false;
                    self.hand.tell(|linux, ctx| {
                        yielded = linux.yield_to(ctx, CpuId(cpu), task, TaskId(target));
                    });
                    assert_eq!(yielded, waits, "only a task that waits is yielded to");
                    self.hand.decide(CpuId(cpu));
                }
            }
            Step::Move { task, to } => {
                let Some(entity) = self.hand.linux.queues.known(TaskId(task)) else { return };
                let (from, to) = (entity.cpu, CpuId(to));
                if entity.queued && !entity.delayed && from != to {
                    self.hand.tell(|linux, ctx| linux.queues.move_queued(ctx, TaskId(task), from, to));
                }
            }
            Step::Steal { cpu, time_us } => self.hand.stolen_ns[cpu as usize] += time_us * 1000,
            Step::Limit { cgroup, limit } => {
                self.hand.tell(|linux, ctx| {
                    linux.group_limit_changed(ctx, CgroupName::Declared(cgroup), limit);
                });
            }
            Step::Pass { time_us } => self.hand.pass(time_us * 1000),
        }
    }

    fn check(&self) {
        let linux = &self.hand.linux;
        linux.queues.check();
        // Those that are throttled are in queues, too.
        let stays = |task: &TaskId| linux.queue_of(*task).is_some();
        let staying = (0..TASKS).map(TaskId).filter(stays).count();
        for (queue, cpu) in linux.queues.all().iter().zip(self.hand.machine.all_cpus().iter()) {
            assert_eq!(queue.curr(), self.hand.running[cpu.index()], "{cpu:?} runs what was dispatched");
            assert!(!queue.is_told(), "every kick has been answered");
            let mut waiting = Vec::new();
            linux.queues.visit_waiting(cpu, &mut |task| waiting.push(task));
            let entities = waiting.iter().map(|&task| linux.queues.entity(task));
            assert!(entities.clone().all(|entity| entity.queued && entity.cpu == cpu));
            assert_eq!(queue.nr_running(), waiting.len() + usize::from(queue.curr().is_some()));
            let leaving = entities.filter(|entity| entity.delayed).count();
            assert_eq!(
                queue.nr_runnable(),
                queue.nr_running() - leaving,
                "those that are leaving do not count"
            );
            assert!(
                queue.curr().is_some() || queue.tasks().is_empty(),
                "no CPU idles while something waits for it"
            );
            assert_eq!(linux.queues.idle().contains(cpu), queue.curr().is_none());
            if linux.settings.era == LinuxEra::V4_2 && linux.settings.groups.is_none() {
                let tasks = waiting.iter().copied().chain(queue.curr());
                let loads = linux.queues.loads();
                let load: u64 = tasks.map(|task| loads.of_task(task)).sum();
                assert_eq!(loads.of_cpu(cpu), load, "the load of a CPU is that of its tasks");
                assert!(queue.curr().is_some() || loads.cpu_util(cpu) == 0, "so is its use");
            }
        }
        let timers = self.hand.alarms.iter().map(|alarm| alarm.token);
        assert_eq!(timers.clone().collect::<BTreeSet<_>>().len(), timers.count(), "a group has one timer");
        let runnable = self.states.iter().filter(|&&state| state == State::Runnable).count();
        assert_eq!(staying, runnable, "no task is lost or there twice");
    }
}

proptest! {
    #[test]
    fn queues_stay_consistent(
        era in prop::sample::select(ERAS.to_vec()),
        grouped: bool,
        places in prop::collection::vec(0..4usize, TASKS as usize),
        limits in prop::collection::vec(groups::any_limit(), CGROUPS),
        steps in steps(),
    ) {
        let weights = [1024, 1024, 335, 15, 9548, 88761];
        // Two cgroups side by side, and one in the second.
        let cgroups = [(None, 100), (None, 200), (Some(1), 50)];
        let mut cgroups = cgroups.map(|(parent, weight)| groups::cgroup(parent, weight));
        cgroups.iter_mut().zip(limits).for_each(|(cgroup, limit)| cgroup.limit = limit);
        let sets: Vec<_> = places.iter().map(|place| groups::in_cgroup(place.checked_sub(1))).collect();
        let mut world = World {
            hand: match grouped {
                true => Hand::grouped(era, CPUS, &weights, &sets, &cgroups),
                false => Hand::new(era, CPUS, &weights),
            },
            states: vec![State::Absent; TASKS as usize],
        };
        for step in steps {
            world.step(step);
            world.check();
        }
    }
}
