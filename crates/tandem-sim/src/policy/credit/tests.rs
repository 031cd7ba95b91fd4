//! The scheduler's decisions one by one, in situations that are set up by hand.

mod releases;

use super::*;
use crate::scenario::TaskPolicy;
use std::sync::Arc;
use tandem_machine::MachineBuilder;

const ERAS: [Era; 4] = [Era::Xen4_2, Era::Xen4_3, Era::Xen4_9, Era::Xen4_13];

/// CPUs, or none.
type Cpus = &'static [u32];

/// A scheduler in a situation: every vCPU is a VM of its own, asleep, and every CPU idles.
struct Situation {
    machine: Machine,
    facts: Vec<TaskFacts>,
    credit: Credit,
    now_ns: u64,
}

impl Situation {
    /// `affinities` are the hard and soft affinity of each vCPU; an empty one means none.
    fn new(
        settings: CreditSettings,
        (packages, cores, threads): (u32, u32, u32),
        affinities: &[(&[u32], &[u32])],
    ) -> Self {
        let machine = MachineBuilder::symmetric(packages, cores, threads).build().unwrap();
        let mask = |cpus: &[u32]| {
            let mask = CpuMask::from_cpus(machine.cpu_count(), cpus.iter().copied().map(CpuId));
            (!cpus.is_empty()).then(|| Arc::new(mask))
        };
        let facts: Vec<TaskFacts> = affinities
            .iter()
            .enumerate()
            .map(|(at, (hard, soft))| TaskFacts {
                vm: at.into(),
                weight: 1024,
                hard_affinity: mask(hard).unwrap_or_else(|| Arc::new(machine.all_cpus().clone())),
                nice: 0,
                policy: TaskPolicy::Normal,
                soft_affinity: mask(soft),
                past_cpu: None,
                is_kernel_thread: false,
            })
            .collect();
        let vms = vec![VmFacts { weight: 256, cap_pct: 0, is_cgroup: true, cgroup: None }; facts.len()];
        let credit = Credit::new(settings, &machine, &facts, &vms);
        Self { machine, facts, credit, now_ns: 1_000_000 }
    }

    fn of_era(era: Era, shape: (u32, u32, u32), affinities: &[(&[u32], &[u32])]) -> Self {
        Self::new(CreditSettings { era, ratelimit_ns: 0, ..CreditSettings::default() }, shape, affinities)
    }

    /// Asks the scheduler; returns the answer and the CPUs that it kicks.
    fn ask<R>(&mut self, question: impl FnOnce(&mut Credit, &mut Context<'_>) -> R) -> (R, Vec<u32>) {
        let mut kicked = Vec::new();
        let mut context = Context {
            now_ns: self.now_ns,
            machine: &self.machine,
            tasks: &self.facts,
            stolen_ns: &[],
            kicked: &mut kicked,
            peers_scanned: &mut 0,
            locked: &mut Vec::new(),
            shared_locked: &mut Vec::new(),
            alarms: &mut Vec::new(),
            later: &mut Vec::new(),
            failure: &mut None,
        };
        let answer = question(&mut self.credit, &mut context);
        (answer, kicked.into_iter().map(|cpu| cpu.0).collect())
    }

    fn set(&mut self, task: u32, priority: Priority) {
        self.credit.set_priority(TaskId(task), priority);
        self.credit.vcpus[task as usize].runnable = true;
    }

    /// The vCPU runs on the CPU.
    fn runs(&mut self, task: u32, cpu: u32, priority: Priority) {
        self.set(task, priority);
        self.credit.vcpus[task as usize].cpu = CpuId(cpu);
        self.credit.vcpus[task as usize].burnt_until_ns = self.now_ns;
        self.credit.pcpus[cpu as usize].current = Some(TaskId(task));
        self.credit.idlers.remove(CpuId(cpu));
    }

    /// The vCPU waits in the queue of the CPU.
    fn waits(&mut self, task: u32, cpu: u32, priority: Priority) {
        self.set(task, priority);
        self.credit.queue(CpuId(cpu), TaskId(task));
    }

    /// Makes these the idle CPUs, regardless of which tasks run.
    fn only_idle(&mut self, cpus: &[u32]) {
        self.credit.idlers = CpuMask::from_cpus(self.machine.cpu_count(), cpus.iter().copied().map(CpuId));
    }

    /// Wakes the vCPU on the CPU; returns the CPUs that this kicks.
    fn wake(&mut self, task: u32, cpu: u32) -> Vec<u32> {
        self.ask(|credit, ctx| credit.wake(ctx, TaskId(task), CpuId(cpu))).1
    }

    fn pick(&mut self, task: u32) -> u32 {
        self.ask(|credit, ctx| credit.pick_cpu(ctx, TaskId(task), false)).0.0
    }

    fn steal(&mut self, cpu: u32, candidate: Option<Priority>) -> Option<u32> {
        let ((task, _), _) = self.ask(|credit, ctx| credit.steal(ctx, CpuId(cpu), candidate));
        task.map(|task| task.0)
    }

    fn account(&mut self) -> Vec<u32> {
        self.ask(|credit, ctx| credit.account(ctx)).1
    }
}

mod tickling {
    use super::*;
    use Priority::{Boost, Under};

    /// vCPU 0 wakes with a boost on CPU 0 of four, where vCPU 1 is; the CPUs that this kicks in each era.
    #[test]
    fn who_is_told_of_a_wake_up() {
        type Case = (&'static str, Option<Priority>, Cpus, [Cpus; 4]);
        let cases: [Case; 6] = [
            ("its CPU, if that idles", None, &[0, 2], [&[0], &[0], &[0], &[0]]),
            ("an idle one beside an equal", Some(Boost), &[2, 3], [&[2], &[2], &[2], &[2]]),
            ("an idle one, early both", Some(Under), &[3], [&[0, 3], &[3], &[3], &[3]]),
            ("its CPU, if none idles", Some(Under), &[], [&[0], &[0], &[0], &[0]]),
            ("nobody, if none idles for an equal", Some(Boost), &[], [&[], &[], &[], &[]]),
            ("its CPU, if it may not go to idle ones", Some(Under), &[1], [&[0], &[0], &[0], &[0]]),
        ];
        for (what, running, idle, expected) in cases {
            for (era, expected) in ERAS.into_iter().zip(expected) {
                let mut situation = Situation::of_era(era, (1, 4, 1), &[(&[0, 2, 3], &[]), (&[], &[])]);
                if let Some(priority) = running {
                    situation.runs(1, 0, priority);
                }
                situation.only_idle(idle);
                assert_eq!(situation.wake(0, 0), expected, "{what}, era {era:?}");
                let leaves_at_once = era >= Era::Xen4_9;
                for &cpu in expected.iter().filter(|cpu| idle.contains(cpu)) {
                    let is_idle = situation.credit.idlers.contains(CpuId(cpu));
                    assert_eq!(is_idle, !leaves_at_once, "{what}, era {era:?}");
                }
            }
        }
    }

    #[test]
    fn idle_cpus_take_turns_and_preferred_ones_come_first() {
        let affinities: &[(Cpus, Cpus)] = &[(&[], &[]), (&[], &[]), (&[], &[]), (&[], &[3])];
        let mut situation = Situation::of_era(Era::Xen4_5, (1, 4, 1), affinities);
        situation.runs(0, 0, Boost);
        assert_eq!(situation.wake(1, 0), [1]);
        assert_eq!(situation.wake(2, 0), [2]);
        let mut situation = Situation::of_era(Era::Xen4_5, (1, 4, 1), affinities);
        situation.runs(0, 0, Boost);
        assert_eq!(situation.wake(3, 0), [3]);
    }

    #[test]
    fn only_credit_boosts() {
        for (before, after) in [(Priority::Over, Priority::Over), (Under, Boost), (Boost, Boost)] {
            let mut situation = Situation::of_era(Era::Xen4_9, (1, 1, 1), &[(&[], &[])]);
            situation.credit.set_priority(TaskId(0), before);
            situation.wake(0, 0);
            assert_eq!(situation.credit.vcpus[0].priority, after);
        }
    }
}

mod picking {
    use super::*;

    /// vCPU 0 runs on CPU 0. Package 0 has CPUs 0 to 3, package 1 has 4 to 7; two threads a core.
    #[test]
    fn where_a_running_vcpu_is_better_off() {
        let cases: [(&str, &[u32], &[u32], u32); 8] = [
            ("stays on a core of its own", &[], &[1, 2, 3, 4, 5, 6, 7], 0),
            ("an idle core before an idle thread", &[], &[2, 3], 2),
            ("no idle thread instead of an idle thread", &[], &[2], 0),
            ("no socket just twice as idle", &[], &[4, 6], 0),
            ("a socket more than twice as idle", &[], &[4, 5, 6], 4),
            ("a preferred CPU before the own one", &[4, 5, 6, 7], &[1, 2, 3, 5], 5),
            ("the own one if no preferred one idles", &[4, 5, 6, 7], &[], 0),
            ("a core of its own among the preferred", &[0, 1, 2, 3], &[2, 3, 4, 5, 6, 7], 2),
        ];
        for (what, soft, idle, expected) in cases {
            let mut situation = Situation::of_era(Era::Xen4_9, (2, 2, 2), &[(&[], soft)]);
            situation.runs(0, 0, Priority::Under);
            situation.only_idle(idle);
            assert_eq!(situation.pick(0), expected, "{what}");
        }
    }

    #[test]
    fn another_one_waiting_makes_any_idle_cpu_better() {
        let mut situation = Situation::of_era(Era::Xen4_9, (2, 2, 2), &[(&[], &[]), (&[], &[])]);
        situation.runs(0, 0, Priority::Under);
        situation.waits(1, 0, Priority::Under);
        situation.only_idle(&[7]);
        assert_eq!(situation.pick(0), 7);
    }

    #[test]
    fn a_tick_moves_who_is_known_to_the_accounting_only() {
        let mut situation = Situation::of_era(Era::Xen4_9, (1, 2, 2), &[(&[], &[])]);
        situation.runs(0, 0, Priority::Boost);
        situation.only_idle(&[2, 3]);
        let tick = |credit: &mut Credit, ctx: &mut Context<'_>| credit.tick(ctx, CpuId(0), TaskId(0));
        assert!(situation.ask(tick).1.is_empty());
        let vcpu = &situation.credit.vcpus[0];
        assert!(vcpu.active && vcpu.priority == Priority::Under && !vcpu.migrating, "{vcpu:?}");
        assert_eq!(situation.ask(tick).1, [0]);
        assert!(situation.credit.vcpus[0].migrating);
    }
}

mod stealing {
    use super::*;
    use Priority::{Boost, Over, Under};

    /// CPU 0 searches for work; it shares its node with CPU 1, CPUs 2 and 3 are on the other. vCPU 0 waits on
    /// CPU 1 and may run anywhere, vCPU 1 waits on CPU 2 and prefers CPU 0, vCPU 2 waits on CPU 3 and may run
    /// there only.
    fn situation(settings: CreditSettings, priorities: [Option<Priority>; 3]) -> Situation {
        let mut situation = Situation::new(settings, (2, 2, 1), &[(&[], &[]), (&[], &[0]), (&[3], &[])]);
        for (task, priority) in (0..).zip(priorities) {
            if let Some(priority) = priority {
                situation.waits(task, task + 1, priority);
            }
        }
        situation.only_idle(&[0]);
        situation
    }

    #[test]
    fn what_is_stolen() {
        type Case = (&'static str, [Option<Priority>; 3], Option<Priority>, Option<u32>);
        let cases: [Case; 8] = [
            ("what prefers to be here, even from afar", [Some(Boost), Some(Over), None], None, Some(1)),
            ("anything, when idle", [Some(Over), None, None], None, Some(0)),
            ("nothing that may not run here", [None, None, Some(Boost)], None, None),
            ("nothing equal", [Some(Over), None, None], Some(Over), None),
            ("something more urgent", [Some(Under), None, None], Some(Over), Some(0)),
            ("preferring only if more urgent", [Some(Under), Some(Over), None], Some(Over), Some(0)),
            ("nothing equal with credit", [Some(Under), Some(Under), None], Some(Under), None),
            ("nothing where nothing is", [None, None, None], None, None),
        ];
        for (what, priorities, candidate, expected) in cases {
            let mut situation = situation(CreditSettings::default(), priorities);
            assert_eq!(situation.steal(0, candidate), expected, "{what}");
            if let Some(task) = expected {
                assert!(!situation.credit.queues.contains(TaskId(task)), "{what}: out of its queue");
            }
        }
    }

    #[test]
    fn preferences_do_not_count_before_4_3() {
        let settings = CreditSettings { era: Era::Xen4_2, ..CreditSettings::default() };
        assert_eq!(situation(settings, [Some(Under), Some(Under), None]).steal(0, None), Some(0));
    }

    #[test]
    fn the_own_node_comes_first() {
        for (thief, expected) in [(0, 0), (3, 1)] {
            let mut situation = Situation::of_era(Era::Xen4_9, (2, 2, 1), &[(&[], &[]), (&[], &[])]);
            situation.waits(0, 1, Under);
            situation.waits(1, 2, Under);
            situation.only_idle(&[thief]);
            assert_eq!(situation.steal(thief, None), Some(expected), "by CPU {thief}");
        }
    }

    #[test]
    fn queues_of_idle_cpus_are_left_alone() {
        let mut situation = situation(CreditSettings::default(), [Some(Under), None, None]);
        situation.only_idle(&[0, 1]);
        assert_eq!(situation.steal(0, None), None);
    }

    #[test]
    fn what_ran_a_moment_ago_stays_by_its_cache() {
        let settings = CreditSettings { migration_delay_ns: 50_000, ..CreditSettings::default() };
        for (ran_ago_ns, expected) in [(49_999, None), (50_000, Some(0))] {
            let mut situation = situation(settings, [Some(Under), None, None]);
            situation.credit.vcpus[0].stopped_ns = situation.now_ns - ran_ago_ns;
            assert_eq!(situation.steal(0, None), expected, "{ran_ago_ns} ns ago");
        }
    }
}

mod accounts {
    use super::*;

    /// A vCPU that runs alone on one CPU and had this credit before an accounting, and the CPUs that this
    /// kicked.
    fn after_account(credit: i64, cap_pct: u32) -> (Situation, Vec<u32>) {
        let mut situation = Situation::of_era(Era::Xen4_9, (1, 1, 1), &[(&[], &[])]);
        let vms = [VmFacts { weight: 256, cap_pct, is_cgroup: true, cgroup: None }];
        situation.credit.accounting = Accounting::new(30_000_000, 1, &vms);
        situation.runs(0, 0, Priority::Under);
        situation.credit.vcpus[0].credit = credit;
        situation.credit.activate(TaskId(0));
        let kicked = situation.account();
        (situation, kicked)
    }

    #[test]
    fn credit_decides_on_priority_parking_and_leaving() {
        use Priority::{Over, Under};
        // (credit before, cap) -> (credit after, priority, parked, active). The accounting grants 300, or the
        // part of that which the cap allows.
        let cases = [
            ((-300, 0), (0, Under, false, true)),
            ((-301, 0), (-1, Over, false, true)),
            ((-900, 0), (-300, Over, false, true)),
            ((0, 0), (300, Under, false, true)),
            ((1, 0), (150, Under, false, false)),
            ((-60, 10), (-30, Over, false, true)),
            ((-61, 10), (-31, Over, true, true)),
        ];
        for ((credit, cap_pct), expected) in cases {
            let (situation, kicked) = after_account(credit, cap_pct);
            let vcpu = &situation.credit.vcpus[0];
            let found = (vcpu.credit, vcpu.priority, vcpu.parked, vcpu.active);
            assert_eq!(found, expected, "{credit} credits, cap {cap_pct}%");
            assert_eq!(!kicked.is_empty(), vcpu.parked, "a parked vCPU leaves its CPU");
        }
    }

    #[test]
    fn a_parked_vcpu_comes_back_when_it_has_credit() {
        let (mut situation, _) = after_account(-100, 10);
        let previous = Some(TaskId(0));
        let (dispatch, _) = situation.ask(|credit, ctx| credit.dispatch(ctx, CpuId(0), previous));
        assert_eq!(dispatch.task, None, "parked");
        let (mut accountings, mut kicked) = (0, vec![]);
        while kicked.is_empty() {
            kicked = situation.account();
            accountings += 1;
        }
        assert_eq!((accountings, kicked), (3, vec![0]), "70 credits of debt, 30 each time");
        let (dispatch, _) = situation.ask(|credit, ctx| credit.dispatch(ctx, CpuId(0), None));
        assert_eq!(dispatch.task, Some(TaskId(0)));
    }
}
