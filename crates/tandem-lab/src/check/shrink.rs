//! Makes a found case small, as long as it breaks the same promise.
//!
//! Each step tries simpler versions of the case, the boldest first, and goes on with the first one that still
//! breaks the promise, until none does or the tries are used up.

use super::plan::{Group, Happening, MachinePlan, Plan, Work};
use std::cmp::Reverse;

/// The smallest version that is found with so many tries. `breaks` says whether a version breaks the promise.
pub fn shrink(plan: Plan, tries: usize, mut breaks: impl FnMut(&Plan) -> bool) -> Plan {
    let mut best = plan;
    let mut left = tries;
    loop {
        let smaller = simpler(&best).into_iter().find(|candidate| {
            let tries = left > 0 && cost(candidate) < cost(&best);
            left -= usize::from(tries);
            tries && breaks(candidate)
        });
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

/// The size of a case to read and to run, which shrinking lowers. Each part counts far more than those after
/// it.
pub fn cost(plan: &Plan) -> u64 {
    let group = |group: &Group| {
        let work = |(work, copies): &(Work, u32)| 2_000 + 100 * u64::from(*copies) + cost_of_work(*work);
        let cpus = |cpus: &Option<Vec<u32>>| cpus.as_ref().map_or(0, |cpus| 300 + cpus.len() as u64);
        let changes: u64 = group.changes.iter().map(|(_, it)| 2_000 + cpus(it)).sum();
        let life = if group.life.is_some() { 2_000 } else { 0 };
        let weight = if group.weight == 256 { 0 } else { 300 };
        let works: u64 = group.work.iter().map(work).sum();
        let cgroup = group.cgroup.as_ref().map_or(0, |path| 500 + 100 * path.len() as u64);
        let nice = if group.nice == 0 { 0 } else { 300 };
        5_000
            + cgroup
            + nice
            + u64::from(group.count) * works
            + cpus(&group.hard)
            + cpus(&group.soft)
            + changes
            + life
            + weight
    };
    let machine = &plan.machine;
    let llcs = machine.llcs.len() as u64;
    let nodes = machine.llcs.iter().map(|(node, _)| u64::from(*node)).max().unwrap_or(0);
    let groups: u64 = plan.groups.iter().map(group).sum();
    let limits = plan.cgroups.iter().filter(|cgroup| cgroup.limit_pct.is_some()).count() as u64;
    let weights = plan.cgroups.iter().filter(|cgroup| cgroup.weight != 100).count() as u64;
    groups
        + 3_000 * plan.happenings.len() as u64
        + 500 * plan.cgroups.len() as u64
        + 300 * (limits + weights)
        + 200 * u64::from(machine.cpus())
        + 400 * (llcs + nodes + u64::from(machine.threads))
        + if machine.tickless.is_empty() { 0 } else { 300 + machine.tickless.len() as u64 }
        + if plan.timer_failure_pct > 0 { 300 } else { 0 }
        + plan.length_ms / 10
        + if plan.costs { 50 } else { 0 }
}

fn cost_of_work(work: Work) -> u64 {
    let odd = |us: u64| if us == round(us) { 0 } else { 20 };
    match work {
        Work::Computes { after_ms: 0 } => 0,
        Work::Computes { after_ms } => 50 + odd(after_ms),
        Work::Sleeps { work_us, pause_us, varies } => {
            100 + odd(work_us) + odd(pause_us) + if varies { 50 } else { 0 }
        }
        Work::Yields { work_us } => 200 + odd(work_us),
        Work::Wakes { before_us, after_us, other_us, waits } => {
            300 + odd(before_us) + odd(after_us) + odd(other_us) + if waits { 50 } else { 0 }
        }
        Work::Ring { work_us } => 300 + odd(work_us),
        Work::Serves { work_us, per_second } => 300 + odd(work_us) + odd(per_second),
        Work::Forks { work_us } => 300 + odd(work_us),
    }
}

/// The number with its first digit only.
fn round(number: u64) -> u64 {
    let mut unit = 1;
    while number / unit >= 10 {
        unit *= 10;
    }
    number / unit * unit
}

/// Simpler versions, the boldest first.
fn simpler(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    for at in (0..plan.groups.len()).filter(|_| plan.groups.len() > 1) {
        let mut plan = plan.clone();
        plan.groups.remove(at);
        plan.happenings.retain_mut(|(_, what)| match what {
            Happening::SetNice { group, .. } if *group == at => false,
            Happening::SetNice { group, .. } => {
                *group -= usize::from(*group > at);
                true
            }
            _ => true,
        });
        all.push(plan);
    }
    all.extend((0..plan.happenings.len()).map(|at| {
        let mut plan = plan.clone();
        plan.happenings.remove(at);
        plan
    }));
    for machine in simpler_machines(&plan.machine) {
        all.push(on_machine(plan, machine));
    }
    for (at, group) in plan.groups.iter().enumerate() {
        for group in simpler_groups(group) {
            let mut plan = plan.clone();
            plan.groups[at] = group;
            all.push(plan);
        }
    }
    // From the last one on: parents come before their children.
    let mut cgroups: Vec<usize> = (0..plan.cgroups.len()).collect();
    cgroups.sort_unstable_by_key(|at| Reverse(*at));
    for at in cgroups {
        let path = &plan.cgroups[at].path;
        let names = |other: &Option<String>| other.as_ref().is_some_and(|other| other == path);
        let is_set = |(_, what): &(u64, Happening)| matches!(what, Happening::SetWeight { cgroup, .. } if cgroup == path);
        let with = |change: &dyn Fn(&mut Plan)| {
            let mut plan = plan.clone();
            change(&mut plan);
            plan
        };
        if !plan.happenings.iter().any(is_set) && !plan.groups.iter().any(|group| names(&group.cgroup)) {
            all.push(with(&|plan| {
                plan.cgroups.remove(at);
            }));
        }
        all.push(with(&|plan| plan.cgroups[at].limit_pct = None));
        all.push(with(&|plan| plan.cgroups[at].weight = 100));
    }
    let lengths = [plan.length_ms / 2, plan.length_ms * 3 / 4, round(plan.length_ms)];
    all.extend(lengths.into_iter().filter(|&it| it >= 1_000).map(|length_ms| {
        let mut plan = Plan { length_ms, ..plan.clone() };
        for group in &mut plan.groups {
            group.changes.retain(|(at_ms, _)| *at_ms < length_ms);
        }
        plan.happenings.retain(|(at_ms, _)| *at_ms < length_ms / 2);
        plan
    }));
    all.push(Plan { costs: false, ..plan.clone() });
    all.push(Plan { timer_failure_pct: 0, ..plan.clone() });
    all
}

fn simpler_machines(machine: &MachinePlan) -> Vec<MachinePlan> {
    let flat = |cpus: u32| MachinePlan { llcs: vec![(0, cpus)], threads: 1, ..machine.clone() };
    let mut all = vec![flat((machine.cpus() / 2).max(1)), flat(machine.cpus())];
    let tickless = &machine.tickless;
    all.push(MachinePlan { tickless: vec![], ..machine.clone() });
    all.push(MachinePlan { tickless: tickless[..tickless.len().div_ceil(2)].to_vec(), ..machine.clone() });
    if machine.llcs.len() > 1 {
        let half = machine.llcs.len() / 2;
        all.push(MachinePlan { llcs: machine.llcs[..half].to_vec(), ..machine.clone() });
        all.push(MachinePlan { llcs: machine.llcs[..machine.llcs.len() - 1].to_vec(), ..machine.clone() });
    }
    let changed = |change: &dyn Fn(u32, u32) -> (u32, u32)| {
        machine.llcs.iter().map(|&(node, cores)| change(node, cores)).collect::<Vec<_>>()
    };
    all.push(MachinePlan { threads: 1, ..machine.clone() });
    all.push(MachinePlan { llcs: changed(&|_, cores| (0, cores)), ..machine.clone() });
    all.push(MachinePlan { llcs: changed(&|node, cores| (node, (cores / 2).max(1))), ..machine.clone() });
    all.push(MachinePlan { llcs: changed(&|node, cores| (node, (cores - 1).max(1))), ..machine.clone() });
    all
}

/// The same work on another machine: CPUs that it lacks are replaced, VMs that do not fit lose vCPUs.
fn on_machine(plan: &Plan, machine: MachinePlan) -> Plan {
    let cpus = machine.cpus();
    let mut machine = machine;
    machine.tickless.retain(|cpu| *cpu < cpus);
    let fit = |list: &Option<Vec<u32>>| {
        list.as_ref().map(|list| {
            let mut list: Vec<u32> = list.iter().map(|cpu| cpu % cpus).collect();
            list.sort_unstable();
            list.dedup();
            list
        })
    };
    let groups = plan.groups.iter().map(|group| {
        let mut group = Group {
            hard: fit(&group.hard),
            soft: fit(&group.soft),
            changes: group.changes.iter().map(|(at_ms, list)| (*at_ms, fit(list))).collect(),
            ..group.clone()
        };
        while group.kind.is_vm() && group.tasks() > cpus {
            match group.work.iter().position(|(_, copies)| *copies > 1) {
                Some(at) => group.work[at].1 -= 1,
                None => {
                    group.work.pop();
                }
            }
        }
        group
    });
    let groups: Vec<Group> = groups.filter(|group| !group.work.is_empty()).collect();
    let mut happenings = plan.happenings.clone();
    happenings.retain_mut(|(_, what)| match what {
        Happening::Offline { cpus: list, .. } | Happening::Intrude { cpus: list, .. } => {
            *list = fit(&Some(std::mem::take(list))).unwrap_or_default();
            !matches!(what, Happening::Offline { cpus: list, .. } if list.len() >= cpus as usize)
        }
        Happening::SetNice { group, .. } => *group < groups.len(),
        _ => true,
    });
    Plan { machine, groups, happenings, ..plan.clone() }
}

fn simpler_groups(group: &Group) -> Vec<Group> {
    let mut all = Vec::new();
    let with = |change: &dyn Fn(&mut Group)| {
        let mut group = group.clone();
        change(&mut group);
        group
    };
    all.push(with(&|group| group.changes.clear()));
    all.push(with(&|group| group.life = None));
    all.push(with(&|group| group.soft = None));
    all.push(with(&|group| group.hard = None));
    all.push(with(&|group| group.cgroup = None));
    all.push(with(&|group| group.nice = 0));
    all.push(with(&|group| group.count = 1));
    all.push(with(&|group| group.count = (group.count - 1).max(1)));
    for at in 0..group.work.len() {
        if group.work.len() > 1 {
            all.push(with(&|group| {
                group.work.remove(at);
            }));
        }
        all.push(with(&|group| group.work[at].1 = 1));
        all.push(with(&|group| group.work[at].1 = (group.work[at].1 / 2).max(1)));
        all.push(with(&|group| group.work[at].1 = (group.work[at].1 - 1).max(1)));
        for work in simpler_works(group.work[at].0) {
            all.push(with(&|group| group.work[at].0 = work));
        }
    }
    all.push(with(&|group| group.weight = 256));
    let halve = |list: &mut Option<Vec<u32>>| {
        if let Some(list) = list {
            list.truncate(list.len().div_ceil(2));
        }
    };
    all.push(with(&|group| halve(&mut group.hard)));
    all.push(with(&|group| halve(&mut group.soft)));
    all
}

fn simpler_works(work: Work) -> Vec<Work> {
    let mut all = vec![Work::Computes { after_ms: 0 }];
    match work {
        Work::Computes { after_ms } => all.push(Work::Computes { after_ms: round(after_ms) }),
        Work::Sleeps { work_us, pause_us, varies } => {
            all.push(Work::Sleeps { work_us: round(work_us), pause_us: round(pause_us), varies: false });
            all.push(Work::Sleeps { work_us: round(work_us), pause_us: round(pause_us), varies });
        }
        Work::Yields { work_us } => all.push(Work::Yields { work_us: round(work_us) }),
        Work::Wakes { before_us, after_us, other_us, waits } => {
            let (before_us, after_us, other_us) = (round(before_us), round(after_us), round(other_us));
            all.push(Work::Wakes { before_us, after_us, other_us, waits: false });
            all.push(Work::Wakes { before_us, after_us, other_us, waits });
        }
        Work::Ring { work_us } => all.push(Work::Ring { work_us: round(work_us) }),
        Work::Serves { work_us, per_second } => {
            all.push(Work::Serves { work_us: round(work_us), per_second: round(per_second) });
        }
        Work::Forks { work_us } => all.push(Work::Forks { work_us: round(work_us) }),
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::generate;

    #[test]
    fn shrinking_keeps_what_is_asked_for_and_ends_small() {
        // A stand-in for a fault: one group is bound to fewer CPUs than the machine has, and one sleeps.
        let breaks = |plan: &Plan| {
            let binds = |group: &Group| {
                group.hard.as_ref().is_some_and(|cpus| cpus.len() < plan.machine.cpus() as usize)
            };
            let sleeps =
                |group: &Group| group.work.iter().any(|(work, _)| matches!(work, Work::Sleeps { .. }));
            plan.groups.iter().any(binds) && plan.groups.iter().any(sleeps)
        };
        let cases: Vec<Plan> = (0..400).map(|case| generate::plan(7, case, true)).filter(breaks).collect();
        assert!(cases.len() > 10, "{} cases", cases.len());
        for plan in cases {
            let small = shrink(plan, 2_000, breaks);
            assert!(breaks(&small));
            assert_eq!(small.machine.cpus(), 2, "{small:?}");
            assert!(small.groups.iter().map(Group::tasks).sum::<u32>() <= 2, "{small:?}");
            assert!(small.machine.tickless.is_empty(), "{small:?}");
        }
    }
}
