//! What a change would do: variants of the recorded situation, each run and compared with it.
//!
//! All variants run with the same seeds as the recorded situation, so that differences are those of pairs. How
//! far the replay of the recorded situation is from the recording says how far to trust the rest.

use super::comparison::{Row, TRUSTED_PCT};
use super::grouping::TOTAL;
use super::replay::{Measured, Twin, unfinished};
use super::situation::{Change, Situation};
use crate::runner::Progress;
use crate::scenario::policy::scheduler::SchedulerName;
use crate::statistics::{Effect, paired_effect};
use serde::Serialize;
use std::fmt;
use tandem_file::shown::{readable, shortened};
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;
use tandem_machine::placement::{self, Occupancy, PlacementOutcome, Request};
use tandem_sim::scenario::{BandwidthLimit, PolicySettings};

/// Groups with such a share of all CPU time or more are looked at one by one.
const GROUP_SHARE: f64 = 0.05;
/// Most such groups.
const GROUPS_MAX: usize = 8;
/// Waits of a group may grow by so much before a variant counts as hurting it, percent, and us.
const HURTS_PCT: f64 = 25.0;
const HURTS_US: f64 = 500.0;

/// A change of the recorded situation.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its name in tables.
    pub name: &'static str,
    /// What is different, in words.
    pub words: String,
    /// The operator can make it without buying or moving anything, so that it may be advised.
    pub is_choice: bool,
    /// The situation; or why there is none.
    pub situation: Result<Situation, String>,
}

/// The variants of a recorded situation.
pub fn variants(twin: &Twin<'_>, recorded: &Measured, situation: &Situation) -> Vec<Variant> {
    let shown = |group: usize| readable(&twin.model.groups[group], &[]);
    let variant = |name, words: String, is_choice, change: &dyn Fn(&mut Situation) -> Result<(), String>| {
        let mut changed = situation.clone();
        let situation = change(&mut changed).map(|()| changed);
        Variant { name, words, is_choice, situation }
    };
    let mut all = vec![variant("tandem", "the scheduler tandem with its defaults".into(), true, &|it| {
        it.set_scheduler(SchedulerName::Tandem)
    })];
    all.push(variant("pinned", "each task of a VM on one CPU, in turn".into(), true, &|it| pin(twin, it)));
    all.push(variant(
        "homes",
        "VMs on NUMA nodes that the planner chooses, under tandem".into(),
        true,
        &|it| {
            it.set_scheduler(SchedulerName::Tandem)?;
            homes(twin, it)
        },
    ));
    let by = |value: &dyn Fn(usize) -> u64| {
        (0..twin.model.groups.len())
            .filter(|&group| is_large(recorded, group))
            .max_by_key(|&group| value(group))
    };
    if let Some(group) = by(&|group| recorded.groups[group].wait_percentile_ns(0.99)) {
        let words = format!("twice the weight for {}, whose waits are longest", shown(group));
        all.push(variant("weight", words, true, &|it| {
            let change = Change { weight_factor: Some(2.0), ..Change::default() };
            it.changes.insert(twin.model.groups[group].clone(), change);
            Ok(())
        }));
    }
    if let Some(group) = by(&|group| recorded.groups[group].run_ns) {
        let cpus = recorded.groups[group].run_ns as f64 / twin.model.length_ns.max(1) as f64;
        let period_us = BandwidthLimit::DEFAULT_PERIOD_US;
        let quota_us = ((0.5 * cpus * period_us as f64) as u64).max(BandwidthLimit::QUOTA_MIN_US);
        let words = format!("{} may use half of the CPU time that it used", shown(group));
        all.push(variant("limit", words, true, &|it| {
            let limit = Some(BandwidthLimit { quota_us, period_us });
            it.changes.insert(twin.model.groups[group].clone(), Change { limit, ..Change::default() });
            match it.policy {
                PolicySettings::Linux(_) => Ok(()),
                _ => Err("the recorded scheduler has no limits".into()),
            }
        }));
    }
    let fewer = fewer_cpus(situation);
    let words = match situation.machine.node_count() > 1 {
        true => "one NUMA node fewer",
        false => "half of the CPUs",
    };
    all.push(variant("fewer", words.into(), false, &|it| {
        it.within = Some(fewer.clone().ok_or("there is one CPU alone")?);
        Ok(())
    }));
    let vms: Vec<usize> = vm_groups(twin);
    let doubled = match vms.is_empty() {
        true => by(&|group| recorded.groups[group].run_ns).into_iter().collect(),
        false => vms.clone(),
    };
    let words = match (vms.is_empty(), doubled.first()) {
        (true, Some(group)) => format!("{} twice", shown(*group)),
        _ => "all VMs twice".into(),
    };
    all.push(variant("twice", words, false, &|it| {
        for &group in &doubled {
            it.changes.entry(twin.model.groups[group].clone()).or_default().copies = Some(2);
        }
        Ok(())
    }));
    all
}

fn is_large(recorded: &Measured, group: usize) -> bool {
    recorded.groups[group].run_ns as f64 >= GROUP_SHARE * recorded.total.run_ns as f64
}

/// The groups of VMs.
fn vm_groups(twin: &Twin<'_>) -> Vec<usize> {
    let about = &twin.recording.about;
    let is_vm = |group: &usize| {
        let mut members = twin.model.tasks.iter().filter(|task| task.group == *group);
        members.any(|task| about.tasks[task.recorded].vm.is_some())
    };
    (0..twin.model.groups.len()).filter(is_vm).collect()
}

/// Tasks of VMs get a CPU each, in turn.
fn pin(twin: &Twin<'_>, situation: &mut Situation) -> Result<(), String> {
    let vms = vm_groups(twin);
    if vms.is_empty() {
        return Err("there is no VM in the recording".into());
    }
    let cpus: Vec<CpuId> = situation.machine.housekeeping_cpus().iter().collect();
    let capacity = situation.machine.cpu_count();
    let mut turn = cpus.iter().cycle();
    for task in twin.model.tasks.iter().filter(|task| vms.contains(&task.group)) {
        if twin.recording.about.tasks[task.recorded].vcpu.is_some()
            && let Some(&cpu) = turn.next()
        {
            situation.pins.insert(task.recorded, CpuMask::from_cpus(capacity, [cpu]));
        }
    }
    match situation.pins.is_empty() {
        true => Err("the recording does not say which tasks are vCPUs".into()),
        false => Ok(()),
    }
}

/// VMs run on the nodes that the planner chooses, with what they use.
fn homes(twin: &Twin<'_>, situation: &mut Situation) -> Result<(), String> {
    let machine = situation.machine.clone();
    if machine.node_count() < 2 {
        return Err("the machine has one NUMA node".into());
    }
    let about = &twin.recording.about;
    let mut occupancy = Occupancy::empty(&machine);
    for group in vm_groups(twin) {
        let members = || twin.model.tasks.iter().filter(|task| task.group == group);
        let vcpus = members().filter(|task| about.tasks[task.recorded].vcpu.is_some()).count().max(1);
        let vm = members().find_map(|task| about.tasks[task.recorded].vm);
        let memory_bytes = vm.and_then(|vm| about.vms[vm].memory_bytes).unwrap_or(0);
        let request = Request { vcpus: vcpus as u32, memory_bytes };
        let PlacementOutcome::Placed(placed) = placement::place(&machine, &occupancy, request) else {
            continue;
        };
        let nodes = placed.best().nodes.clone();
        if occupancy.add(request, &nodes).is_ok() {
            let cpus = placement::home_cpus(&nodes, &machine);
            situation.changes.entry(twin.model.groups[group].clone()).or_default().prefers = Some(cpus);
        }
    }
    match situation.changes.is_empty() {
        true => Err("there is no VM in the recording".into()),
        false => Ok(()),
    }
}

/// The machine's CPUs without those of its last node, or half of them.
fn fewer_cpus(situation: &Situation) -> Option<CpuMask> {
    let machine = &situation.machine;
    let mut cpus = machine.all_cpus().clone();
    match machine.node_count() {
        0 | 1 => {
            let all: Vec<CpuId> = cpus.iter().collect();
            all[all.len().div_ceil(2)..].iter().for_each(|cpu| cpus.remove(*cpu));
        }
        nodes => cpus.remove_all(machine.node_cpus((nodes - 1).into())),
    }
    (!cpus.is_empty() && cpus != *machine.all_cpus()).then_some(cpus)
}

/// An effect as it is printed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Shown {
    /// The mean of the variant, in the unit of the measure.
    pub value: f64,
    /// Its difference from the recorded situation, percent; `None` if that has none of it.
    pub effect_pct: Option<f64>,
    /// The low end of the 95% confidence interval, percent.
    pub low_pct: Option<f64>,
    /// The high end, percent.
    pub high_pct: Option<f64>,
}

/// What a variant does to a group, or to all.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The group.
    pub group: String,
    /// CPU time, s.
    pub run_s: Shown,
    /// Time of waiting, s.
    pub wait_s: Shown,
    /// The 99th percentile of waits, us.
    pub wait_p99_us: Shown,
    /// From first to last turn, s.
    pub span_s: Shown,
}

/// A variant with what it does.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// Its name.
    pub variant: &'static str,
    /// What is different.
    pub words: String,
    /// Whether it may be advised.
    #[serde(skip)]
    pub is_choice: bool,
    /// For all tasks, then for each large group; none if it was not run.
    pub outcomes: Vec<Outcome>,
    /// Runs in which not all of the work was done.
    pub incomplete_runs: usize,
    /// Why it was not run, or did not come to its end.
    pub problem: Option<String>,
}

/// All variants, beside the recorded situation.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIf {
    /// How far the replay of the recorded situation is from the recording, percent: total wait, and its 99th
    /// percentile.
    pub replay_off_pct: [Option<f64>; 2],
    /// Runs of each.
    pub runs: usize,
    /// The variants, the recorded situation first.
    pub answers: Vec<Answer>,
    /// What to do, in one sentence that says how sure it is.
    pub advice: String,
}

/// Runs the variants.
///
/// # Errors
/// A sentence, if the recorded situation cannot be run.
pub fn what_if(
    twin: &Twin<'_>,
    recorded: &Measured,
    situation: &Situation,
    seeds: &[u64],
    progress: &dyn Progress,
) -> Result<WhatIf, String> {
    let variants = variants(twin, recorded, situation);
    let possible = variants.iter().filter(|variant| variant.situation.is_ok()).count();
    progress.planned((1 + possible) * seeds.len());
    let run = |situation: &Situation| twin.run_reporting(situation, seeds, progress);
    let late = |runs: &[Measured]| runs.iter().filter(|run| !run.is_complete).count();
    let baseline = run(situation)?;
    let mut groups: Vec<usize> = (0..twin.groups.len()).filter(|&group| is_large(recorded, group)).collect();
    groups.sort_by_key(|&group| std::cmp::Reverse(recorded.groups[group].run_ns));
    groups.truncate(GROUPS_MAX);
    let outcomes = |runs: &[Measured]| -> Vec<Outcome> {
        let total = outcome(TOTAL, &baseline, runs, |run| Row::from(&run.total));
        let of_group = groups
            .iter()
            .map(|&group| outcome(&twin.groups[group], &baseline, runs, |run| Row::from(&run.groups[group])));
        std::iter::once(total).chain(of_group).collect()
    };
    let mut answers = vec![Answer {
        variant: "recorded",
        words: "as it was recorded".into(),
        is_choice: false,
        outcomes: outcomes(&baseline),
        incomplete_runs: late(&baseline),
        problem: unfinished(&baseline),
    }];
    for Variant { name, words, is_choice, situation } in variants {
        let runs = situation.and_then(|situation| run(&situation));
        let (outcomes, incomplete_runs, problem) = match runs {
            Ok(runs) => (outcomes(&runs), late(&runs), unfinished(&runs)),
            Err(problem) => (Vec::new(), 0, Some(problem)),
        };
        answers.push(Answer { variant: name, words, is_choice, outcomes, incomplete_runs, problem });
    }
    let of = |row: &Row| [row.wait_s, row.wait_p99_us];
    let measured = of(&Row::from(&recorded.total));
    let simulated: Vec<[f64; 2]> = baseline.iter().map(|run| of(&Row::from(&run.total))).collect();
    let replay_off_pct = [0, 1].map(|at| {
        let mean = simulated.iter().map(|row| row[at]).sum::<f64>() / simulated.len() as f64;
        (measured[at] > 0.0).then(|| 100.0 * (mean / measured[at] - 1.0))
    });
    let advice = advice(&answers, replay_off_pct);
    Ok(WhatIf { replay_off_pct, runs: seeds.len(), answers, advice })
}

fn outcome(group: &str, baseline: &[Measured], runs: &[Measured], row: impl Fn(&Measured) -> Row) -> Outcome {
    let shown = |value: fn(&Row) -> f64| {
        let pairs: Vec<(f64, f64)> =
            baseline.iter().zip(runs).map(|(one, other)| (value(&row(one)), value(&row(other)))).collect();
        let mean = pairs.iter().map(|(_, variant)| variant).sum::<f64>() / pairs.len().max(1) as f64;
        let effect = paired_effect(&pairs, pairs.len()).map(Effect::of_amounts);
        let interval = effect.and_then(|Effect { interval_pct, .. }| interval_pct);
        Shown {
            value: mean,
            effect_pct: effect.map(|effect| effect.percent),
            low_pct: interval.map(|(low, _)| low),
            high_pct: interval.map(|(_, high)| high),
        }
    };
    Outcome {
        group: group.to_owned(),
        run_s: shown(|row| row.run_s),
        wait_s: shown(|row| row.wait_s),
        wait_p99_us: shown(|row| row.wait_p99_us),
        span_s: shown(|row| row.span_s),
    }
}

/// One sentence.
fn advice(answers: &[Answer], off_pct: [Option<f64>; 2]) -> String {
    if let Some(problem) = answers.first().and_then(|recorded| recorded.problem.as_ref()) {
        return format!("No advice: {problem}, with nothing changed.");
    }
    let Some(off) = off_pct[0].map(f64::abs) else {
        return "No advice: nothing waited in the recording, so that nothing can wait less.".into();
    };
    if off > TRUSTED_PCT {
        return format!(
            "No advice: the replay of what was recorded is off by {off:.0}% in the time of waiting, so that its \
             answers are worth little."
        );
    }
    let hurt = |answer: &Answer| {
        let hurts = |outcome: &&Outcome| {
            let p99 = outcome.wait_p99_us;
            let before = p99.effect_pct.map_or(0.0, |pct| p99.value / (1.0 + pct / 100.0));
            p99.value > before * (1.0 + HURTS_PCT / 100.0) && p99.value - before > HURTS_US
        };
        answer.outcomes.iter().skip(1).find(hurts).map(|outcome| readable(&outcome.group, &[]))
    };
    let gains = |answer: &&Answer| {
        let wait = answer.outcomes.first().map(|total| total.wait_s);
        answer.is_choice
            && answer.problem.is_none()
            && wait.and_then(|wait| wait.high_pct.or(wait.effect_pct)).is_some_and(|high| high < 0.0)
    };
    let wait_pct =
        |answer: &Answer| answer.outcomes.first().and_then(|total| total.wait_s.effect_pct).unwrap_or(0.0);
    let better = || answers.iter().filter(gains);
    let best =
        better().filter(|answer| hurt(answer).is_none()).min_by(|a, b| wait_pct(a).total_cmp(&wait_pct(b)));
    match best {
        Some(best) => {
            let wait = best.outcomes[0].wait_s;
            format!(
                "Try `{}` ({}): all tasks together wait {:.0}% less in the replay ({:.0} to {:.0}%, 95% \
                 confidence, over seeds alone; the replay of the recorded situation is off by {off:.0}%), and no \
                 large group waits much longer; `tandem verify` measures whether it is so.",
                best.variant,
                best.words,
                -wait_pct(best),
                -wait.high_pct.unwrap_or(0.0),
                -wait.low_pct.unwrap_or(0.0),
            )
        }
        None => match better().find_map(|answer| hurt(answer).map(|group| (answer, group))) {
            Some((answer, group)) => format!(
                "Leave it as it is, unless {group} may wait longer: `{}` makes all tasks together wait {:.0}% less, \
                 but that group more (the replay of the recorded situation is off by {off:.0}%).",
                answer.variant,
                -wait_pct(answer)
            ),
            None => format!(
                "Leave it as it is: none of these makes tasks wait less, as far as the replay can tell (that of the \
                 recorded situation is off by {off:.0}%)."
            ),
        },
    }
}

/// Characters of a name that a table shows.
const NAME_WIDTH: usize = 20;

impl fmt::Display for WhatIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:10} {:NAME_WIDTH$} {:>9} {:>26} {:>11} {:>26} {:>9}",
            "variant", "group", "run s", "wait s", "", "wait p99 us", "span s"
        )?;
        for answer in &self.answers {
            for (at, outcome) in answer.outcomes.iter().enumerate() {
                let variant = if at == 0 { answer.variant } else { "" };
                let group = shortened(&readable(&outcome.group, &[]), NAME_WIDTH);
                writeln!(
                    f,
                    "{variant:10} {group:NAME_WIDTH$} {:>9.3} {:>9.3} {:>28} {:>9.1} {:>28} {:>9.3}",
                    outcome.run_s.value,
                    outcome.wait_s.value,
                    outcome.wait_s.words(),
                    outcome.wait_p99_us.value,
                    outcome.wait_p99_us.words(),
                    outcome.span_s.value
                )?;
            }
            match &answer.problem {
                Some(problem) if answer.outcomes.is_empty() => {
                    writeln!(f, "{:10} not run: {problem}", answer.variant)?;
                }
                Some(problem) => writeln!(f, "{:10} not trusted: {problem}", "")?,
                None => {}
            }
        }
        writeln!(f)?;
        for answer in &self.answers {
            writeln!(f, "{:10} {}", answer.variant, answer.words)?;
        }
        let off = |at: usize| self.replay_off_pct[at].map_or("-".into(), |pct| format!("{pct:+.0}%"));
        writeln!(f)?;
        writeln!(
            f,
            "Differences are from the recorded situation, in {} runs of each, with 95% confidence intervals over \
             seeds.\nThe replay of the recorded situation is off by {} in the time of waiting, and by {} in its 99th \
             percentile.",
            self.runs,
            off(0),
            off(1)
        )?;
        writeln!(f, "\n{}", self.advice)
    }
}

impl Shown {
    /// The effect in words.
    pub(super) fn words(&self) -> String {
        match (self.effect_pct, self.low_pct.zip(self.high_pct)) {
            (Some(effect), Some((low, high))) => format!("{effect:+.1}% [{low:+.1}, {high:+.1}]"),
            (Some(effect), None) => format!("{effect:+.1}%"),
            (None, _) => String::new(),
        }
    }
}
