//! Draws random scenarios.
//!
//! Most are small: a fault that shows with many CPUs usually shows with few as well, and a small run takes
//! little time. One in ten has many CPUs, where sums, searches and distances are different. Most are
//! saturated, because promises are about tasks that wait.

use super::plan::{CgroupPlan, Group, Happening, Kind, MachinePlan, Plan, Work};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;

/// A source of random choices.
pub struct Dice(Pcg32);

impl Dice {
    /// The source for one case of a search.
    pub fn of_case(seed: u64, case: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&mix(seed).to_le_bytes());
        bytes[8..].copy_from_slice(&mix(seed ^ mix(case.wrapping_add(1))).to_le_bytes());
        Self(Pcg32::from_seed(bytes))
    }

    /// Any number from the first to the last one.
    pub fn from_to(&mut self, first: u64, last: u64) -> u64 {
        first + ((u128::from(self.0.next_u64()) * u128::from(last - first + 1)) >> 64) as u64
    }

    /// Any number from the first to the last one, small ones as often as large ones.
    pub fn log_from_to(&mut self, first: u64, last: u64) -> u64 {
        let doublings = u64::from((last / first.max(1)).max(1).ilog2());
        let base = first << self.from_to(0, doublings);
        self.from_to(base, (base * 2).min(last).max(base))
    }

    /// True with this probability, in percent.
    pub fn chance(&mut self, pct: u64) -> bool {
        self.from_to(1, 100) <= pct
    }

    /// One of these.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.from_to(0, choices.len() as u64 - 1) as usize]
    }
}

/// The finishing step of SplitMix64, which maps neighbouring numbers to distant ones.
fn mix(mut number: u64) -> u64 {
    number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Most simulated CPU time of a run, ms; longer runs are cut.
const CPU_TIME_MAX_MS: u64 = 240_000;

/// The scenario of a case. Cgroups and events of the host are drawn for a compiled scheduler only: the models
/// of other schedulers have none.
pub fn plan(seed: u64, case: u64, is_compiled: bool) -> Plan {
    let mut dice = Dice::of_case(seed, case);
    let machine = machine(&mut dice);
    let cpus = u64::from(machine.cpus());
    let longest_ms = (CPU_TIME_MAX_MS / cpus).clamp(1_500, 15_000);
    let length_ms =
        if dice.chance(60) { longest_ms } else { dice.from_to(longest_ms.min(2_000), longest_ms) };
    let load_pct = dice.one_of(&[60, 100, 130, 200, 200, 300]);
    let groups = dice.from_to(1, 4);
    let places = places(&machine, &mut dice);
    let tasks_of_each = (cpus * load_pct).div_ceil(100 * groups).max(1);
    let groups = (0..groups).map(|_| group(&machine, &places, tasks_of_each, length_ms, &mut dice)).collect();
    let costs = dice.chance(70);
    let mut plan =
        Plan { machine, length_ms, costs, timer_failure_pct: 0, cgroups: vec![], groups, happenings: vec![] };
    if is_compiled {
        nest(&mut plan, &mut dice);
        happen(&mut plan, &mut dice);
    }
    // Drawn last, so that no other choice depends on it.
    plan.machine.tickless = tickless(&plan.machine, &mut dice);
    // Only with limits do tasks depend on timers.
    let is_limited = plan.cgroups.iter().any(|cgroup| cgroup.limit_pct.is_some());
    if is_compiled && dice.chance(if is_limited { 40 } else { 5 }) {
        plan.timer_failure_pct = dice.one_of(&[1, 10, 50]);
    }
    plan
}

/// CPUs without a tick: none in seven machines of eight; otherwise all, or a contiguous range.
fn tickless(machine: &MachinePlan, dice: &mut Dice) -> Vec<u32> {
    if dice.from_to(1, 8) > 1 {
        return vec![];
    }
    let cpus = machine.cpus();
    if dice.chance(50) {
        return (0..cpus).collect();
    }
    let count = dice.from_to(1, cpus.into()) as u32;
    let first = dice.from_to(0, (cpus - count).into()) as u32;
    (first..first + count).collect()
}

/// Puts groups into cgroups, sometimes with a limit, up to four levels deep including the cgroups of VMs.
fn nest(plan: &mut Plan, dice: &mut Dice) {
    if !dice.chance(25) {
        return;
    }
    const PATHS: [&str; 6] = ["a", "b", "a/c", "a/d", "b/e", "a/c/f"];
    let weight = |dice: &mut Dice| match dice.chance(50) {
        true => 100,
        false => dice.one_of(&[1, 10, 25, 50, 200, 400, 1_000, 10_000]),
    };
    let limited = dice.chance(20);
    for path in PATHS {
        let limit_pct = (limited && dice.chance(40)).then(|| dice.one_of(&[20, 50, 100, 150, 250]));
        plan.cgroups.push(CgroupPlan { path: path.into(), weight: weight(dice), limit_pct });
    }
    for group in &mut plan.groups {
        if dice.chance(75) {
            group.cgroup = Some(dice.one_of(&PATHS).into());
        }
        if !group.kind.is_vm() && dice.chance(30) {
            group.nice = dice.from_to(0, 39) as i32 - 20;
        }
    }
}

/// Adds events of the host to the first half of the run.
fn happen(plan: &mut Plan, dice: &mut Dice) {
    if !dice.chance(25) {
        return;
    }
    let cpus = u64::from(plan.machine.cpus());
    let some_cpus = |most: u64, dice: &mut Dice| {
        let count = dice.from_to(1, most);
        let first = dice.from_to(0, cpus - count);
        (first..first + count).map(|cpu| cpu as u32).collect::<Vec<u32>>()
    };
    let at_ms = dice.from_to(100, plan.length_ms / 4);
    let what = match dice.from_to(1, 10) {
        1..=3 if !plan.cgroups.is_empty() => Happening::SetWeight {
            cgroup: plan.cgroups[dice.from_to(0, plan.cgroups.len() as u64 - 1) as usize].path.clone(),
            weight: dice.one_of(&[1, 10, 50, 200, 1_000, 10_000]),
        },
        1..=3 => Happening::SetNice {
            group: dice.from_to(0, plan.groups.len() as u64 - 1) as usize,
            nice: dice.from_to(0, 39) as i32 - 20,
        },
        4..=6 if cpus > 1 => Happening::Offline {
            cpus: some_cpus(cpus / 2, dice),
            length_ms: dice.from_to(1, plan.length_ms / 4),
        },
        7..=8 => {
            let length_ms = dice.from_to(1, 20);
            let every_ms = length_ms * dice.from_to(4, 20);
            Happening::Intrude { cpus: some_cpus(cpus.div_ceil(2), dice), length_ms, every_ms }
        }
        _ => Happening::Reload,
    };
    plan.happenings.push((at_ms, what));
}

fn machine(dice: &mut Dice) -> MachinePlan {
    let threads = dice.one_of(&[1, 1, 2]);
    let (llcs, cores) = match dice.from_to(1, 20) {
        1..=12 => (dice.one_of(&[1, 1, 1, 2]), dice.from_to(1, 4)),
        13..=17 => (dice.from_to(1, 4), dice.from_to(2, 8)),
        18..=19 => (dice.from_to(1, 8), dice.from_to(4, 16)),
        _ => (dice.from_to(4, 16), dice.from_to(8, 16)),
    };
    let nodes = dice.from_to(1, llcs.min(4));
    let uneven = dice.chance(15);
    let llc = |llc: u64, dice: &mut Dice| {
        let cores = if uneven { dice.from_to(1, cores) } else { cores };
        ((llc * nodes / llcs) as u32, cores as u32)
    };
    MachinePlan { llcs: (0..llcs).map(|at| llc(at, dice)).collect(), threads, tickless: vec![] }
}

/// Sets of CPUs that groups are bound to: few, so that several groups share one.
fn places(machine: &MachinePlan, dice: &mut Dice) -> Vec<Vec<u32>> {
    let cpus = u64::from(machine.cpus());
    let place = |dice: &mut Dice| {
        let (first, count) = match dice.from_to(1, 10) {
            1..=4 => (dice.from_to(0, cpus - 1), 1),
            5..=7 => (dice.from_to(0, cpus - 1), dice.from_to(2, 4)),
            8 => (dice.from_to(0, cpus - 1), dice.from_to(1, cpus)),
            _ => {
                let llc = dice.from_to(0, machine.llcs.len() as u64 - 1) as usize;
                let (first, count) = machine.cpus_of_llc(llc);
                (first.into(), count.into())
            }
        };
        (first..(first + count).min(cpus)).map(|cpu| cpu as u32).collect()
    };
    (0..dice.from_to(1, 3)).map(|_| place(dice)).collect()
}

fn group(machine: &MachinePlan, places: &[Vec<u32>], tasks: u64, length_ms: u64, dice: &mut Dice) -> Group {
    let cpus = u64::from(machine.cpus());
    let kind = dice.one_of(&[
        Kind::Vm,
        Kind::Vm,
        Kind::Vm,
        Kind::Processes,
        Kind::Processes,
        Kind::Threads,
        Kind::Guest,
    ]);
    let place = |dice: &mut Dice| places[dice.from_to(0, places.len() as u64 - 1) as usize].clone();
    let hard = dice.chance(35).then(|| place(dice));
    let soft = (hard.is_none() && dice.chance(15)).then(|| place(dice));
    // A group that is bound to few CPUs loads these, not the machine; sometimes it overloads them.
    let room = hard.as_ref().map_or(cpus, |cpus| cpus.len() as u64);
    let most = if dice.chance(10) { 128.min(tasks * 2) } else { tasks.min(room * 3) };
    let mut left = dice.from_to(1, most.max(1));
    let count = if dice.chance(70) { 1 } else { dice.from_to(1, left.min(4)) };
    left = (left / count).max(1);
    if kind.is_vm() {
        left = left.min(cpus);
    }
    let mut work = Vec::new();
    while left > 0 {
        let kind_of_work = draw_work(kind, length_ms, left, dice);
        let copies = match dice.chance(60) {
            true => left / u64::from(kind_of_work.tasks()),
            false => dice.from_to(1, left / u64::from(kind_of_work.tasks())),
        };
        work.push((kind_of_work, copies as u32));
        left -= copies * u64::from(kind_of_work.tasks());
    }
    let weight = match dice.from_to(1, 10) {
        1..=5 => 256,
        6..=8 => dice.one_of(&[64, 128, 512, 1024, 2560]),
        _ => dice.one_of(&[64, 25_600]),
    };
    let change = |dice: &mut Dice| {
        let at_ms = dice.from_to(200, length_ms / 2);
        (at_ms, dice.chance(70).then(|| place(dice)))
    };
    let changes = if dice.chance(10) { vec![change(dice)] } else { vec![] };
    let comes_and_goes = kind.is_vm() && dice.chance(12);
    let life = comes_and_goes.then(|| (dice.from_to(1, length_ms), dice.log_from_to(20, length_ms.max(40))));
    Group { kind, cgroup: None, nice: 0, count: count as u32, weight, hard, soft, changes, life, work }
}

fn draw_work(kind: Kind, length_ms: u64, tasks: u64, dice: &mut Dice) -> Work {
    loop {
        let work = match dice.from_to(1, 100) {
            1..=42 => Work::Computes { after_ms: 0 },
            43..=48 => Work::Computes { after_ms: dice.from_to(1, (length_ms / 4).max(1)) },
            49..=54 => Work::Sleeps { work_us: dice.log_from_to(5_000, 40_000), pause_us: 10, varies: false },
            55..=74 => Work::Sleeps {
                work_us: dice.log_from_to(20, 20_000),
                pause_us: dice.log_from_to(50, 50_000),
                varies: dice.chance(50),
            },
            75..=79 => Work::Yields { work_us: dice.log_from_to(50, 10_000) },
            80..=89 => Work::Wakes {
                before_us: dice.log_from_to(20, 5_000),
                after_us: dice.log_from_to(20, 40_000),
                other_us: dice.log_from_to(20, 5_000),
                waits: dice.chance(50),
            },
            90..=92 => Work::Ring { work_us: dice.log_from_to(50, 2_000) },
            93..=96 => Work::Serves {
                work_us: dice.log_from_to(50, 2_000),
                per_second: dice.log_from_to(100, 4_000),
            },
            _ => Work::Forks { work_us: dice.log_from_to(100, 20_000) },
        };
        let fits = match work {
            Work::Serves { .. } => kind.is_vm(),
            Work::Forks { .. } => kind == Kind::Guest,
            work => u64::from(work.tasks()) <= tasks,
        };
        if fits {
            return work;
        }
    }
}
