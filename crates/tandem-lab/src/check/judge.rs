//! Judges a run: which promises it breaks, for which task or group, and by how much.

use super::facts::{Demand, Facts};
use super::follow::{Follower, Stretch};
use super::promises::{
    FULL_PCT, IDLE_MAX_PCT, LATENCY_RESOLUTION_NS, LIGHT_MAX_PCT, LIMIT_TOLERANCE_PCT, Promise,
    RATE_WINDOW_NS, SHARE_TOLERANCE_PCT, SLEEPERS_MAX_PCT, SLICE_NS, STORM_PER_S, TICK_NS, VISITS_MAX,
    WAKEUPS_MIN, WINDOW_MIN_NS, WINDOW_NS,
};
use std::ops::Range;
use tandem_file::units::Duration;
use tandem_sim::RunError;
use tandem_sim::metrics::{RunMetrics, SchedulerCosts};
use tandem_sim::policy::linux::LinuxSettings;
use tandem_sim::scenario::{CgroupName, HostAction, PolicySettings, Scenario};

/// A broken promise.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The promise.
    pub promise: Promise,
    /// The task or the group.
    pub who: String,
    /// When, ns since the start of the run.
    pub at_ns: u64,
    /// The observed value and the allowed one, in words.
    pub seen: String,
    /// Observed over allowed: at least 1.
    pub excess: f64,
    /// The time over which CPU time was measured, ns; `None` if the promise is not about CPU time.
    pub over_ns: Option<u64>,
}

/// A run that was judged.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The worst finding for each broken promise.
    pub findings: Vec<Finding>,
    /// What it measured; `None` if the scheduler failed.
    pub metrics: Option<RunMetrics>,
}

/// Runs a scenario with a seed, and returns the worst finding for each broken promise.
///
/// # Errors
/// If the scenario itself does not run under any scheduler.
pub fn judge(scenario: &Scenario, seed: u64, wanted: &[Promise]) -> Result<Vec<Finding>, RunError> {
    Ok(judge_and_measure(scenario, seed, wanted)?.findings)
}

/// The same, with what the run measured.
///
/// # Errors
/// As [`judge`].
pub fn judge_and_measure(scenario: &Scenario, seed: u64, wanted: &[Promise]) -> Result<Judged, RunError> {
    // Promises are made to what the scenario lists.
    let mut scenario = scenario.clone();
    scenario.remove_kernel_threads();
    let scenario = &scenario;
    let facts = Facts::new(scenario);
    let mut follower = Follower::new(&facts);
    let metrics = match tandem_sim::run_observed(scenario, seed, &mut follower) {
        Ok(metrics) => metrics,
        Err(RunError::Scheduler { at_ns, message, kernel, .. }) => {
            let finding = Finding {
                promise: Promise::Runs,
                who: kernel,
                at_ns,
                seen: message,
                excess: 1.0,
                over_ns: None,
            };
            let findings = Vec::from_iter(Some(finding).filter(|it| wanted.contains(&it.promise)));
            return Ok(Judged { findings, metrics: None });
        }
        Err(error) => return Err(error),
    };
    let seen = Seen { facts: &facts, run: follower.finish() };
    let findings = findings(scenario, seed, wanted, &seen, metrics.host.scheduler_costs.as_ref())?;
    Ok(Judged { findings, metrics: Some(metrics) })
}

/// The worst finding for each promise that the run breaks.
fn findings(
    scenario: &Scenario,
    seed: u64,
    wanted: &[Promise],
    seen: &Seen<'_>,
    costs: Option<&SchedulerCosts>,
) -> Result<Vec<Finding>, RunError> {
    let facts = seen.facts;
    let mut findings = Vec::new();
    let mut add = |finding: Option<Finding>| {
        findings.extend(finding.filter(|finding| finding.excess > 1.0 && wanted.contains(&finding.promise)));
    };
    add(costs.and_then(visits));
    if limits(scenario) {
        // A task that has used up its quota waits, even beside idle CPUs; a task without a quota waits only
        // for a CPU.
        add(seen.limits(scenario));
        add(seen.waits(|vm| !is_limited(scenario, vm)));
        return Ok(worst_of_each(findings));
    }
    add(seen.waits(|_| true));
    add(seen.idle());
    seen.shares().into_iter().for_each(&mut add);
    add(seen.late_wakeup());
    // Compared only where cgroups and events play no part.
    if scenario.cgroups.is_empty()
        && scenario.events.is_empty()
        && wanted.contains(&Promise::Latency)
        && let slow = seen.slow_groups()
        && !slow.is_empty()
    {
        let eevdf = Scenario { policy: PolicySettings::Linux(LinuxSettings::default()), ..scenario.clone() };
        let mut follower = Follower::new(facts);
        tandem_sim::run_observed(&eevdf, seed, &mut follower)?;
        let other = Seen { facts, run: follower.finish() };
        slow.into_iter().for_each(|slow| add(other.compared(slow)));
    }
    Ok(worst_of_each(findings))
}

/// Whether some cgroup has a limit, at some time.
fn limits(scenario: &Scenario) -> bool {
    scenario.cgroups.iter().any(|cgroup| cgroup.limit.is_some())
        || scenario.events.iter().any(|event| matches!(event.action, HostAction::SetLimit { .. }))
}

/// Whether the cgroup of a VM or of processes, or one above it, has a limit, at some time.
fn is_limited(scenario: &Scenario, vm: usize) -> bool {
    let is_set = |name: CgroupName| {
        let sets =
            |action: &HostAction| matches!(action, HostAction::SetLimit { cgroup, .. } if *cgroup == name);
        scenario.events.iter().any(|event| sets(&event.action))
    };
    let mut above = scenario.workloads[vm].cgroup;
    while let Some(at) = above {
        if scenario.cgroups[at].limit.is_some() || is_set(CgroupName::Declared(at)) {
            return true;
        }
        above = scenario.cgroups[at].parent;
    }
    is_set(CgroupName::OfVm(vm.into()))
}

/// Decisions that visit too many queued tasks.
fn visits(costs: &SchedulerCosts) -> Option<Finding> {
    let kinds = [("a wake-up", costs.wake), ("the next task", costs.dispatch), ("a tick", costs.tick)];
    let (what, cost) = kinds.into_iter().max_by_key(|(_, cost)| cost.visited_max)?;
    Some(Finding {
        promise: Promise::Cost,
        who: "the scheduler".into(),
        at_ns: 0,
        seen: format!(
            "visits {} queued tasks under locks to decide about {what}; allowed are {VISITS_MAX}",
            cost.visited_max
        ),
        excess: cost.visited_max as f64 / VISITS_MAX as f64,
        over_ns: None,
    })
}

fn worst_of_each(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by(|a, b| a.promise.cmp(&b.promise).then(b.excess.total_cmp(&a.excess)));
    findings.dedup_by_key(|finding| finding.promise);
    findings
}

/// A run, and what is known about it.
struct Seen<'a> {
    facts: &'a Facts,
    run: Follower<'a>,
}

/// A group whose 99th percentile is beyond the resolution.
struct Slow {
    vm: usize,
    p99_ns: u64,
    at: Stretch,
}

impl Seen<'_> {
    /// The promise, or [`Promise::Changes`] if a change came before.
    fn or_changes(&self, promise: Promise, at_ns: u64) -> Promise {
        match self.facts.happenings_ns.first() {
            Some(&change_ns) if change_ns <= at_ns => Promise::Changes,
            _ => promise,
        }
    }

    /// The longest wait of a task of these VMs and sets of processes.
    fn waits(&self, is_judged: impl Fn(usize) -> bool) -> Option<Finding> {
        let worst = |(task, longest): (usize, Stretch)| {
            let allowed_ns = self.facts.tasks[task].wait_max_ns;
            Finding {
                promise: self.or_changes(Promise::Waits, longest.from_ns),
                who: self.facts.name(task),
                at_ns: longest.from_ns,
                seen: format!("waits for {}; allowed are {}", time(longest.length_ns), time(allowed_ns)),
                excess: longest.length_ns as f64 / allowed_ns as f64,
                over_ns: None,
            }
        };
        let judged = (0..self.facts.tasks.len()).filter(|&task| is_judged(self.facts.tasks[task].vm));
        let records = judged.map(|task| (task, self.run.tasks[task].longest_settled));
        records.map(worst).max_by(|a, b| a.excess.total_cmp(&b.excess))
    }

    fn idle(&self) -> Option<Finding> {
        let of_mask = |mask: usize| {
            let record = &self.run.masks[mask];
            let cpus = &self.facts.masks[mask];
            let who = self.tasks_at(mask);
            let longest = record.longest_settled;
            let one = Finding {
                promise: self.or_changes(Promise::Idle, longest.from_ns),
                who: who.clone(),
                at_ns: longest.from_ns,
                seen: format!(
                    "waits for {} beside an idle CPU that it may use; allowed are {}",
                    time(longest.length_ns),
                    time(TICK_NS)
                ),
                excess: longest.length_ns as f64 / TICK_NS as f64,
                over_ns: None,
            };
            let pct = 100.0 * record.idled_ns as f64 / (self.facts.end_ns as f64 * cpus.count() as f64);
            let all = Finding {
                promise: self.or_changes(Promise::Idle, record.longest.from_ns),
                who,
                at_ns: record.longest.from_ns,
                seen: format!(
                    "its CPUs idle beside waiting tasks for {pct:.2}% of the time; allowed are {IDLE_MAX_PCT}%"
                ),
                excess: pct / IDLE_MAX_PCT,
                over_ns: None,
            };
            if one.excess >= all.excess { one } else { all }
        };
        (0..self.facts.masks.len()).map(of_mask).max_by(|a, b| a.excess.total_cmp(&b.excess))
    }

    /// Names of groups that may run on exactly these CPUs.
    fn tasks_at(&self, mask: usize) -> String {
        let mut names: Vec<&str> = Vec::new();
        for changes in 0..=self.facts.changes.len() {
            for (task, at) in self.facts.masks_after(changes).into_iter().enumerate() {
                let name = self.facts.vms[self.facts.tasks[task].vm].name.as_str();
                if at == mask && !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names.join(" or ")
    }

    /// Cgroups that use more than they may.
    fn limits(&self, scenario: &Scenario) -> Option<Finding> {
        if scenario.events.iter().any(|event| matches!(event.action, HostAction::SetLimit { .. })) {
            return None;
        }
        let excess = |at: usize| {
            let limit = scenario.cgroups[at].limit?;
            let is_below = |vm: usize| {
                let mut above = scenario.workloads[vm].cgroup;
                while let Some(cgroup) = above.filter(|cgroup| *cgroup != at) {
                    above = scenario.cgroups[cgroup].parent;
                }
                above.is_some()
            };
            let tasks = self.facts.tasks.iter().zip(&self.run.tasks).filter(|(task, _)| is_below(task.vm));
            let used_ns: u64 = tasks.map(|(_, record)| record.ran_ns).sum();
            let periods = self.window_ns() as f64 / (limit.period_us * 1_000) as f64 + 1.0;
            let allowed_ns = (limit.quota_us * 1_000) as f64 * periods * (1.0 + LIMIT_TOLERANCE_PCT / 100.0);
            Some(Finding {
                promise: Promise::Limits,
                who: scenario.cgroups[at].path.clone(),
                at_ns: self.facts.window_ns,
                seen: format!(
                    "uses {} of CPU time in {}; its limit allows {}",
                    time(used_ns),
                    time(self.window_ns()),
                    time(allowed_ns as u64)
                ),
                excess: used_ns as f64 / allowed_ns,
                over_ns: None,
            })
        };
        let all = (0..scenario.cgroups.len()).filter_map(excess);
        all.max_by(|a, b| a.excess.total_cmp(&b.excess))
    }

    fn window_ns(&self) -> u64 {
        self.facts.end_ns.saturating_sub(self.facts.window_ns)
    }

    /// CPUs in use of each mask, plus those that idled while no task waited; each CPU counts for the smallest
    /// mask that contains it.
    fn with_unwanted(&self, used: &[f64]) -> Vec<f64> {
        let mut all = used.to_vec();
        if used.iter().all(|&used| used == 0.0) {
            return all; // no task sleeps: idle time is the scheduler's doing
        }
        for (cpu, &unwanted_ns) in self.run.unwanted_ns.iter().enumerate().filter(|(_, ns)| **ns > 0) {
            let leads_there = |mask: &usize| self.facts.masks[*mask].iter().any(|at| at.index() == cpu);
            let mask = (0..all.len()).filter(leads_there).min_by_key(|&mask| self.facts.masks[mask].count());
            if let Some(mask) = mask {
                all[mask] += unwanted_ns as f64 / self.window_ns() as f64;
            }
        }
        all
    }

    /// CPU time that differs from the fair share: of groups, and of single tasks.
    fn shares(&self) -> Vec<Option<Finding>> {
        let facts = self.facts;
        // How much the VMs that come and go leave to others depends on when they exist.
        if self.window_ns() < WINDOW_MIN_NS || facts.vms.iter().any(|vm| vm.comes_and_goes) {
            return Vec::new();
        }
        let rate = |task: usize| self.run.tasks[task].ran_ns as f64 / self.window_ns() as f64;
        let masks = facts.masks_after(facts.changes.len());
        let is_busy = |task: usize| matches!(facts.tasks[task].demand, Demand::Busy { .. });
        let yields = |task: usize| facts.tasks[task].demand == Demand::Yielding;
        let used_by = |counts: &dyn Fn(usize) -> bool| {
            let mut used = vec![0.0; facts.masks.len()];
            let others = (0..facts.tasks.len()).filter(|&task| !counts(task));
            others.for_each(|task| used[masks[task]] += rate(task));
            used
        };
        let used = used_by(&is_busy);
        let sleepers_pct = 100.0 * used.iter().sum::<f64>() / facts.cpus as f64;
        if facts.is_nested && sleepers_pct > SLEEPERS_MAX_PCT {
            return Vec::new(); // how much they leave to their siblings is unknown
        }
        // A task that sleeps takes a part of its cgroup's share while it is awake, so the fair share of the
        // others lies between two bounds: without that part, and with all of it. While several tasks sleep at
        // once, there may be more CPUs than the awake tasks can use, so either all of the spare time counts,
        // or none. But a task that always computes has a CPU while no task waits, and at other times at least
        // its share as if no task ever slept.
        let quiet = self.run.quiet_ns as f64 / self.window_ns() as f64;
        let due = |used: &[f64], counts: &dyn Fn(usize) -> bool| {
            let rates = |used: &[f64], weight: &dyn Fn(usize) -> f64| {
                facts.fair(&masks, used, |task| counts(task).then_some(1.0), weight)
            };
            let ways = |used: &[f64]| {
                [
                    rates(used, &|task| facts.tasks[task].weight),
                    rates(used, &|task| facts.tasks[task].weight_of_busy),
                ]
            };
            let (all_could, none_could) = (ways(used), ways(&self.with_unwanted(used)));
            move |tasks: Range<usize>| {
                let sums = |ways: &[Vec<f64>; 2]| {
                    let sums = ways.each_ref().map(|rates| rates[tasks.clone()].iter().sum::<f64>());
                    (sums[0].min(sums[1]), sums[0].max(sums[1]))
                };
                let (all, none) = (sums(&all_could), sums(&none_could));
                let floor =
                    tasks.clone().map(|task| quiet + (1.0 - quiet) * facts.tasks[task].rate).sum::<f64>();
                (none.0.min(all.0).max(all.0.min(floor)), none.1.max(all.1))
            }
        };
        let got = |tasks: Range<usize>| tasks.map(rate).sum::<f64>();
        let sleepers = used.iter().sum();
        let fair = due(&used, &is_busy);
        let is_full = |task: usize| fair(task..task + 1).1 > FULL_PCT / 100.0;
        let pauses = |task: usize| matches!(facts.tasks[task].demand, Demand::Busy { pauses: true, .. });
        if (0..facts.tasks.len()).any(|task| pauses(task) && is_full(task)) {
            return Vec::new(); // others use its CPU while it pauses, and one CPU is not enough to catch up
        }
        let busy_vms = facts.vms.iter().filter(|vm| (vm.first..vm.first + vm.count).all(is_busy));
        let busy_vms: Vec<_> = busy_vms.map(|vm| (vm, vm.first..vm.first + vm.count)).collect();
        let mut findings = Vec::new();
        for (vm, tasks) in &busy_vms {
            let (got, due) = (got(tasks.clone()), fair(tasks.clone()));
            let promise = if vm.prefers && got < due.0 { Promise::Preferences } else { Promise::Shares };
            findings.push(self.share(promise, vm.name.clone(), got, due, (vm.count, sleepers)));
        }
        if sleepers_pct <= SLEEPERS_MAX_PCT {
            for task in (0..facts.tasks.len()).filter(|&task| is_busy(task)) {
                let (got, due) = (rate(task), fair(task..task + 1));
                findings.push(self.share(Promise::TaskShares, facts.name(task), got, due, (1, sleepers)));
            }
        }
        if (0..facts.tasks.len()).any(yields) {
            let computes = |task: usize| is_busy(task) || yields(task);
            let least = due(&used_by(&computes), &computes);
            for (vm, tasks) in &busy_vms {
                let (got, due) = (got(tasks.clone()), least(tasks.clone()));
                if got < due.0 {
                    findings.push(self.share(
                        Promise::Yields,
                        vm.name.clone(),
                        got,
                        due,
                        (vm.count, sleepers),
                    ));
                }
            }
        }
        findings.into_iter().map(Some).collect()
    }

    /// Compares the CPU time of `count` tasks, in CPUs, with the least and the most that is fair; `sleepers`
    /// is the CPU time, in CPUs, of the tasks that sleep now and then.
    fn share(
        &self,
        promise: Promise,
        who: String,
        got: f64,
        (least, most): (f64, f64),
        (count, sleepers): (usize, f64),
    ) -> Finding {
        let slice = SLICE_NS as f64 / self.window_ns() as f64;
        let part = SHARE_TOLERANCE_PCT / 100.0 * (WINDOW_NS as f64 / self.window_ns() as f64).clamp(1.0, 5.0);
        let due = if got < least { least } else { most };
        let mut tolerance = due * part + slice;
        if got < least && least > FULL_PCT / 100.0 * count as f64 {
            // These tasks need their CPUs all the time, so each wake-up of a sleeper takes time from them.
            tolerance += sleepers;
        }
        let excess = (least - got).max(got - most).max(0.0) / tolerance;
        Finding {
            promise: self.or_changes(promise, self.facts.window_ns),
            who,
            at_ns: self.facts.window_ns,
            seen: format!(
                "gets {got:.3} CPUs over {}; its fair share is {due:.3} ± {tolerance:.3}",
                time(self.window_ns()),
            ),
            excess,
            over_ns: Some(self.window_ns()),
        }
    }

    /// Whether the task uses less than its share.
    fn is_light(&self, task: usize) -> bool {
        let rate = self.run.tasks[task].ran_ns as f64 / self.window_ns().max(1) as f64;
        self.facts.tasks[task].demand == Demand::Unknown
            && rate * 100.0 <= self.facts.tasks[task].rate * LIGHT_MAX_PCT
    }

    /// The longest wait at a wake-up of a light task.
    fn late_wakeup(&self) -> Option<Finding> {
        let light = (0..self.facts.tasks.len()).filter(|&task| self.is_light(task));
        let finding = |task: usize| {
            let longest = self.run.tasks[task].longest_wakeup;
            let allowed_ns = self.facts.tasks[task].wait_max_ns / 2;
            Finding {
                promise: Promise::Latency,
                who: self.facts.name(task),
                at_ns: longest.from_ns,
                seen: format!(
                    "uses less than its share, and waits for {} when it wakes; allowed are {}",
                    time(longest.length_ns),
                    time(allowed_ns)
                ),
                excess: longest.length_ns as f64 / allowed_ns as f64,
                over_ns: None,
            }
        };
        light.map(finding).max_by(|a, b| a.excess.total_cmp(&b.excess))
    }

    /// The 99th percentile of the waits of a group's light tasks at wake-ups, and the longest of them.
    fn p99(&self, vm: usize, is_light: &dyn Fn(usize) -> bool) -> Option<(u64, Stretch)> {
        let vm = &self.facts.vms[vm];
        let light = (vm.first..vm.first + vm.count).filter(|&task| is_light(task));
        let records: Vec<_> = light.map(|task| &self.run.tasks[task]).collect();
        let mut waits_ns: Vec<u64> = records.iter().flat_map(|record| &record.wakeups_ns).copied().collect();
        if waits_ns.len() < WAKEUPS_MIN {
            return None;
        }
        waits_ns.sort_unstable();
        let longest =
            records.iter().map(|record| record.longest_wakeup).max_by_key(|longest| longest.length_ns);
        Some((waits_ns[waits_ns.len() * 99 / 100], longest?))
    }

    fn slow_groups(&self) -> Vec<Slow> {
        let slow = |vm| {
            let (p99_ns, at) = self.p99(vm, &|task| self.is_light(task))?;
            (p99_ns > LATENCY_RESOLUTION_NS).then_some(Slow { vm, p99_ns, at })
        };
        (0..self.facts.vms.len()).filter_map(slow).collect()
    }

    /// Compares a slow group with this run of the same work.
    fn compared(&self, slow: Slow) -> Option<Finding> {
        let (p99_ns, _) = self.p99(slow.vm, &|task| self.facts.tasks[task].demand == Demand::Unknown)?;
        let seconds = self.facts.end_ns as f64 / 1e9;
        let storms = self.run.tasks.iter().any(|task| task.wakeups_ns.len() as f64 >= STORM_PER_S * seconds);
        let allowed_ns = p99_ns + LATENCY_RESOLUTION_NS + if storms { RATE_WINDOW_NS } else { 0 };
        Some(Finding {
            promise: Promise::Latency,
            who: self.facts.vms[slow.vm].name.clone(),
            at_ns: slow.at.from_ns,
            seen: format!(
                "uses less than its share, and waits for {} at the 99th percentile when it wakes; allowed are {}, {} more \
                 than under EEVDF",
                time(slow.p99_ns),
                time(allowed_ns),
                if storms { "a tick and the window of rate control" } else { "a tick" }
            ),
            excess: slow.p99_ns as f64 / allowed_ns as f64,
            over_ns: None,
        })
    }
}

/// A time in the notation of scenarios, to about three digits.
pub fn time(ns: u64) -> String {
    let unit = [1_000_000_000, 1_000_000, 1_000].into_iter().find(|unit| ns >= *unit).unwrap_or(1);
    let step = (unit / 100).max(1);
    Duration { ns: ns / step * step }.to_string()
}

#[cfg(test)]
mod tests;
