//! What a run measures of each group, and of the host.

use crate::measure::Measure;
use crate::results::Better;
use std::borrow::Cow;
use std::collections::BTreeMap;
use tandem_sim::metrics::RunMetrics;
use tandem_sim::scenario::Scenario;
use tandem_sim::times::Times;

/// Percentiles that are compared, and whether a precision is asked of them: the last ones vary too much.
const QUANTILES: [(&str, f64, bool); 5] = [
    ("p50", 0.50, true),
    ("p95", 0.95, true),
    ("p99", 0.99, true),
    ("p99.9", 0.999, false),
    ("max", 1.0, false),
];

/// What is measured, and of whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Measured {
    /// The group, by its position; the host comes last.
    pub group: usize,
    /// Where it stands among the measures of the group.
    at: usize,
    /// Its name, with the unit.
    pub name: String,
    /// Its name alone.
    what: String,
    /// The unit.
    pub unit: &'static str,
}

impl Measured {
    fn new(group: usize, at: usize, what: String, unit: &'static str) -> Self {
        // A rate reads as "rounds /s", and an amount as "longest wait, us".
        let separator = if unit.starts_with('/') { " " } else { ", " };
        Self { group, at, name: format!("{what}{separator}{unit}"), what, unit }
    }
}

/// A measure of a run, for a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The group; `None`: the host.
    pub group: Option<String>,
    /// What was measured.
    pub measure: String,
    /// In which unit.
    pub unit: Cow<'static, str>,
    /// How much it was.
    pub value: f64,
}

impl Measurement {
    /// All of a run: what is compared, under the same names, and then what only describes a run.
    pub fn all(scenario: &Scenario, run: &RunMetrics) -> Vec<Self> {
        let groups = scenario.groups();
        let name = |group: usize| groups.get(group).map(|name| (*name).to_owned());
        let compared = values(scenario, run).into_iter().map(|(measured, (_, value))| Self {
            group: name(measured.group),
            measure: measured.what,
            unit: measured.unit.into(),
            value,
        });
        compared.chain(description(&groups, run)).collect()
    }
}

/// What describes the groups of a run and its host, and is not compared.
fn description(groups: &[&str], run: &RunMetrics) -> Vec<Measurement> {
    let of_group = [
        ("sleep", "% of life", Measure::SleepShare),
        ("local", "% of run time", Measure::LocalShare),
        ("moves in LLC", "/s", Measure::MigrationsInLlc),
        ("moves in node", "/s", Measure::MigrationsInNode),
        ("moves across nodes", "/s", Measure::MigrationsAcrossNodes),
    ];
    let of_host = [
        ("idle", "% of pCPUs", Measure::IdleShare),
        ("away", "% of pCPUs", Measure::AwayShare),
        ("waits for locks", "% of pCPUs", Measure::SpinShare),
        ("coherence", "% of busy pCPUs", Measure::CoherenceShare),
        ("schedules", "/s and pCPU", Measure::SchedulesPerPcpu),
        ("preemptions", "/s and pCPU", Measure::PreemptionsPerPcpu),
        ("mean run", "us", Measure::MeanRunTime),
        ("pause-loop exits", "/s and pCPU", Measure::PauseExitsPerPcpu),
        ("directed yields", "/s", Measure::DirectedYields),
        ("failed yields", "/s", Measure::FailedYields),
    ];
    let value = |group: Option<&str>, (what, unit, measure): &(&str, &'static str, Measure)| {
        let value = measure.value(run, group)?;
        Some(Measurement {
            group: group.map(str::to_owned),
            measure: (*what).into(),
            unit: (*unit).into(),
            value,
        })
    };
    let groups =
        groups.iter().flat_map(|group| of_group.iter().filter_map(|measure| value(Some(group), measure)));
    let host = of_host.iter().filter_map(|measure| value(None, measure));
    let policy = run.host.policy.iter().map(|(&counter, &count)| Measurement {
        group: None,
        measure: counter.into(),
        unit: "times".into(),
        value: count as f64,
    });
    groups.chain(host).chain(policy).collect()
}

/// How a measure is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    /// Which way it is better.
    pub better: Better,
    /// How much a precision is asked of it.
    pub weight: Weight,
}

/// How much a precision is asked of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// It describes.
    None,
    /// It counts where nothing else does: a delay of wake-ups.
    Second,
    /// What the scenario's programs count, and their response times.
    First,
}

/// What a run has measured.
pub(super) type Values = BTreeMap<Measured, (Kind, f64)>;

/// What a run measures.
pub(super) fn values(scenario: &Scenario, run: &RunMetrics) -> Values {
    let mut values = Values::new();
    let groups = scenario.groups();
    for (group, name) in groups.iter().enumerate() {
        of_group(name, run, |at, what, unit, better, weight, value| {
            values.insert(Measured::new(group, at, what, unit), (Kind { better, weight }, value));
        });
    }
    let host = &run.host;
    let pcpu_ns = run.length_ns as f64 * host.pcpus as f64;
    let per_s = |count: u64| count as f64 / (run.length_ns as f64 / 1e9) / host.pcpus as f64;
    let switches = run.vms.iter().flat_map(|vm| &vm.vcpus).map(|task| task.switches()).sum();
    let pct = |ns: u64| 100.0 * ns as f64 / pcpu_ns;
    for (at, (what, unit, better, value)) in [
        ("busy", "% of pCPUs", Better::Neither, pct(host.busy_ns)),
        ("overhead", "% of pCPUs", Better::Lower, pct(host.overhead_ns)),
        ("idle while tasks wait", "% of pCPUs", Better::Lower, pct(host.idle_beside_ns)),
        ("context switches", "/s and pCPU", Better::Neither, per_s(switches)),
    ]
    .into_iter()
    .enumerate()
    {
        let measured = Measured::new(groups.len(), at, what.into(), unit);
        values.insert(measured, (Kind { better, weight: Weight::None }, value));
    }
    values
}

/// What a run measures of the VMs of a group.
fn of_group(
    group: &str,
    run: &RunMetrics,
    mut add: impl FnMut(usize, String, &'static str, Better, Weight, f64),
) {
    let vms = || run.vms.iter().filter(|vm| vm.group == group);
    let mut counters: Vec<&String> = vms().flat_map(|vm| vm.counts.keys()).collect();
    counters.sort_unstable();
    counters.dedup();
    for counter in counters {
        if let Some(rate) = Measure::Rate(counter.clone()).value(run, Some(group)) {
            add(0, counter.clone(), "/s", Better::Higher, Weight::First, rate);
        }
    }
    let [responses, wakeups] = times(group, run);
    for (at, what, times, weight) in
        [(10, "response", responses, Weight::First), (20, "wake-up", wakeups, Weight::Second)]
    {
        let values_ns = times.quantiles_ns(QUANTILES.map(|(_, part, _)| part));
        for (quantile, value_ns) in values_ns.into_iter().enumerate().filter(|_| times.count() > 0) {
            let (name, _, is_steady) = QUANTILES[quantile];
            let weight = if is_steady { weight } else { Weight::None };
            add(at + quantile, format!("{what} {name}"), "us", Better::Lower, weight, value_ns as f64 / 1e3);
        }
    }
    if let Some(longest_ns) = vms().flat_map(|vm| &vm.vcpus).map(|task| task.longest_wait_ns).max() {
        add(30, "longest wait".into(), "us", Better::Lower, Weight::None, longest_ns as f64 / 1e3);
    }
    let run_ns: u64 = vms().flat_map(|vm| &vm.vcpus).map(|task| task.run_ns).sum();
    let share_pct = 100.0 * run_ns as f64 / (run.length_ns as f64 * run.host.pcpus as f64);
    add(40, "share".into(), "% of pCPUs", Better::Neither, Weight::None, share_pct);
    for (at, name, better, measure) in
        [(41, "run", Better::Neither, Measure::RunShare), (42, "wait", Better::Lower, Measure::WaitShare)]
    {
        if let Some(pct) = measure.value(run, Some(group)) {
            add(at, name.into(), "% of life", better, Weight::None, pct);
        }
    }
}

/// The response times of a group in a run, and the delays of its wake-ups.
pub(super) fn times(group: &str, run: &RunMetrics) -> [Times; 2] {
    let vms = || run.vms.iter().filter(|vm| vm.group == group);
    [Times::sum(vms().map(|vm| &vm.response)), Times::sum(vms().map(|vm| &vm.vcpu_delay))]
}
