//! Guards: small cases that run for seconds, in which the promises are judged.
//!
//! A scored case is as large as a host and short; starving and unfair shares take time to show. A guard has few CPUs, so that
//! seconds cost little, and competition of each kind that a scheduler can be unjust in.

use super::suite::Split;
use crate::check::generate::Dice;
use crate::check::plan::{Group, Happening, Kind as GroupKind, MachinePlan, Plan, Work};
use crate::check::promises::Promise;
use crate::scenario::policy::scheduler::SchedulerName;

/// What a guard is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// VMs of different weights compute; others sleep.
    Weights,
    /// Some are bound to CPUs, some yield.
    Bound,
    /// CPUs leave and return, and the scheduler is loaded again.
    Changes,
}

/// All of them.
pub const ALL: [Kind; 3] = [Kind::Weights, Kind::Bound, Kind::Changes];

impl Kind {
    /// The promises that are judged in it. Shares of tasks that are bound to few CPUs are not: schedulers for hosts whose VMs run
    /// everywhere need not keep them.
    pub fn promises(self) -> &'static [Promise] {
        match self {
            Self::Weights => &[Promise::Runs, Promise::Waits, Promise::Shares, Promise::Idle, Promise::Cost],
            Self::Bound => &[Promise::Runs, Promise::Waits, Promise::Idle, Promise::Cost],
            Self::Changes => &[Promise::Runs, Promise::Waits, Promise::Idle, Promise::Changes, Promise::Cost],
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Bound => "bound",
            Self::Changes => "changes",
        }
    }
}

/// CPUs of the machine: each split has numbers of its own.
const CORES: [[u64; 2]; 3] = [[4, 6], [5, 7], [3, 8]];

/// The scenario of a guard.
pub fn text(kind: Kind, split: Split, dice: &mut Dice) -> String {
    plan(kind, split, dice).to_toml(&SchedulerName::Linux)
}

fn plan(kind: Kind, split: Split, dice: &mut Dice) -> Plan {
    let cores = dice.one_of(&CORES[split as usize]) as u32;
    let machine = MachinePlan { llcs: vec![(0, cores)], threads: 1, tickless: vec![] };
    let length_ms = dice.from_to(2_500, 3_200);
    let computes =
        |count, copies| group(GroupKind::Vm, count, vec![(Work::Computes { after_ms: 0 }, copies)]);
    let sleeps = |dice: &mut Dice| Work::Sleeps {
        work_us: dice.from_to(100, 400),
        pause_us: dice.from_to(4_000, 9_000),
        varies: true,
    };
    let mut groups = vec![computes(2, cores), computes(1, cores)];
    groups[1].weight = dice.one_of(&[512, 768]);
    groups.push(group(GroupKind::Vm, 2, vec![(sleeps(dice), 1)]));
    let mut plan = Plan {
        machine,
        length_ms,
        costs: true,
        timer_failure_pct: 0,
        cgroups: vec![],
        groups,
        happenings: vec![],
    };
    match kind {
        Kind::Weights => {}
        Kind::Bound => {
            let cpu = dice.from_to(0, u64::from(cores) - 1) as u32;
            let mut bound = group(GroupKind::Processes, 1, vec![(Work::Computes { after_ms: 0 }, 1)]);
            bound.hard = Some(vec![cpu]);
            plan.groups.push(bound);
            let work_us = dice.from_to(200, 2_000);
            plan.groups.push(group(GroupKind::Processes, 1, vec![(Work::Yields { work_us }, 1)]));
        }
        Kind::Changes => {
            let first = dice.from_to(0, u64::from(cores) - 2) as u32;
            let away = Happening::Offline { cpus: vec![first, first + 1], length_ms: dice.from_to(150, 300) };
            plan.happenings.push((dice.from_to(200, 400), away));
            plan.happenings.push((dice.from_to(800, 1_000), Happening::Reload));
        }
    }
    // The order of groups, and with it that of PIDs, says nothing.
    for at in (1..plan.groups.len()).rev() {
        plan.groups.swap(at, dice.from_to(0, at as u64) as usize);
    }
    plan
}

fn group(kind: GroupKind, count: u32, work: Vec<(Work, u32)>) -> Group {
    Group {
        kind,
        count,
        cgroup: None,
        nice: 0,
        weight: 256,
        hard: None,
        soft: None,
        changes: vec![],
        life: None,
        work,
    }
}
