//! Made-up results for tests: the shape is that of the real experiments, the simulated numbers are invented.

use crate::results::{
    Better, Cell, CellRuns, ExperimentResults, HeatMap, Key, RangeBasis, Role, Target, Verdict,
};
use std::collections::BTreeMap;

/// An experiment without cells.
pub fn empty() -> ExperimentResults {
    ExperimentResults {
        name: "made-up".to_owned(),
        title: "An experiment that was made up".to_owned(),
        story: Vec::new(),
        source: "nowhere".to_owned(),
        modelled: Vec::new(),
        not_modelled: Vec::new(),
        replications: 1,
        seed: 1,
        is_cut: false,
        precision: None,
        cells: Vec::new(),
        heat_maps: Vec::new(),
        calibrations: Vec::new(),
        verdict: Verdict::default(),
    }
}

/// A predicted effect, against a published baseline of 100.
pub fn effect(published_pct: f64, simulated_pct: f64, half_width: f64) -> Cell {
    Cell {
        experiment: "made-up".to_owned(),
        cell: keys(&[("benchmark", Key::Text("sums".to_owned())), ("vms", Key::Number(2))]),
        metric: "throughput".to_owned(),
        baseline: "plain".to_owned(),
        variant: "better".to_owned(),
        published: Some(100.0 + published_pct),
        simulated: 100.0 + simulated_pct,
        published_effect_pct: Some(published_pct),
        simulated_effect_pct: Some(simulated_pct),
        ci_low_pct: Some(simulated_pct - half_width),
        ci_high_pct: Some(simulated_pct + half_width),
        range_low_pct: None,
        range_high_pct: None,
        basis: RangeBasis::default(),
        noise_pct: 1.0,
        role: Role::Predicted,
        better: Better::Higher,
        unit: "1/s".to_owned(),
        precision_pct: None,
        runs: CellRuns::default(),
    }
}

/// Odd input: text that is valid markup, numbers that are not finite, nothing to compare.
pub fn odd() -> ExperimentResults {
    let markup = "<script>alert(\"&'\")</script>";
    let good = effect(14.0, 12.0, 1.0);
    let cells = vec![
        Cell { variant: markup.to_owned(), unit: markup.to_owned(), ..good.clone() },
        Cell {
            simulated: f64::NAN,
            simulated_effect_pct: None,
            ci_low_pct: None,
            ci_high_pct: None,
            ..good.clone()
        },
        Cell { simulated: f64::INFINITY, simulated_effect_pct: Some(f64::INFINITY), ..good.clone() },
        Cell { published: Some(f64::NAN), published_effect_pct: Some(f64::NAN), ..good.clone() },
        Cell { ci_low_pct: Some(f64::NEG_INFINITY), ci_high_pct: Some(f64::NAN), ..good.clone() },
        Cell { cell: BTreeMap::new(), ..good.clone() },
        Cell { cell: keys(&[(markup, Key::Text(markup.to_owned()))]), metric: markup.to_owned(), ..good },
    ];
    ExperimentResults {
        name: markup.to_owned(),
        title: markup.to_owned(),
        story: vec![markup.to_owned()],
        source: markup.to_owned(),
        modelled: vec![markup.to_owned()],
        not_modelled: vec![markup.to_owned()],
        cells,
        verdict: Verdict {
            predicted: 1,
            median_abs_error_pct: Some(f64::NAN),
            max_abs_error_pct: Some(f64::INFINITY),
            targets: vec![(markup.to_owned(), Target::Missed)],
            ..Verdict::default()
        },
        ..empty()
    }
}

/// Three benchmarks, each with three numbers of VMs and three variants, all published.
pub fn numa_affinity() -> ExperimentResults {
    let published = [
        ("specjbb2005", "throughput", 2, [43318.613, 49715.158, 49822.545], [13.9, 14.4]),
        ("specjbb2005", "throughput", 6, [29587.838, 33560.944, 33739.412], [12.2, 13.0]),
        ("specjbb2005", "throughput", 10, [19223.962, 21860.794, 20089.602], [9.1, 5.6]),
        ("sysbench-memory", "throughput", 2, [469.37667, 534.03167, 555.09500], [15.2, 15.9]),
        ("sysbench-memory", "throughput", 6, [411.45056, 437.02333, 463.53389], [7.4, 10.1]),
        ("sysbench-memory", "throughput", 10, [292.79400, 309.63800, 305.55167], [4.9, 4.1]),
        ("lmbench-proc", "latency", 2, [788.06613, 753.78508, 750.07010], [-3.1, -3.6]),
        ("lmbench-proc", "latency", 6, [986.44955, 1076.7447, 900.21504], [-4.4, -4.0]),
        ("lmbench-proc", "latency", 10, [1211.2434, 1371.6014, 1285.5947], [8.8, 2.6]),
    ];
    let mut cells = Vec::new();
    for (index, (benchmark, metric, vms, values, effects)) in published.into_iter().enumerate() {
        let [base, ..] = values;
        let (unit, better) = match metric {
            "latency" => ("us", Better::Lower),
            _ => ("1/s", Better::Higher),
        };
        let baseline = Cell {
            experiment: "numa-affinity".to_owned(),
            cell: keys(&[("benchmark", Key::Text(benchmark.to_owned())), ("vms", Key::Number(vms))]),
            metric: metric.to_owned(),
            baseline: "no-affinity".to_owned(),
            variant: "no-affinity".to_owned(),
            published: Some(base),
            simulated: base * 1.012,
            published_effect_pct: None,
            simulated_effect_pct: None,
            ci_low_pct: None,
            ci_high_pct: None,
            range_low_pct: None,
            range_high_pct: None,
            basis: RangeBasis::default(),
            noise_pct: 1.0,
            role: Role::Calibrated,
            better,
            unit: unit.to_owned(),
            precision_pct: None,
            runs: CellRuns::default(),
        };
        cells.push(baseline.clone());
        for (variant, value, effect) in [("pinning", values[1], effects[0]), ("numa", values[2], effects[1])]
        {
            let half_width = 0.4 + 0.25 * index as f64;
            cells.push(Cell {
                variant: variant.to_owned(),
                published: Some(value),
                simulated: baseline.simulated * (1.0 + effect / 100.0),
                published_effect_pct: Some((value - base) / base * 100.0),
                simulated_effect_pct: Some(effect),
                ci_low_pct: Some(effect - half_width),
                ci_high_pct: Some(effect + half_width),
                range_low_pct: None,
                range_high_pct: None,
                basis: RangeBasis::default(),
                noise_pct: 1.0,
                role: Role::Predicted,
                ..baseline.clone()
            });
        }
    }
    ExperimentResults {
        name: "numa-affinity".to_owned(),
        title: "NUMA affinity: vCPUs that prefer the node of their memory".to_owned(),
        story: vec![
            "Two to ten virtual machines on a host with two nodes ran three benchmarks at once, first without \
             affinity, then pinned to a node, then preferring a node."
                .to_owned(),
            "Preferring kept the gain of pinning and lost less when the host was overloaded.".to_owned(),
            "A host that may use an idle CPU of the other node need not choose between locality and load balance."
                .to_owned(),
        ],
        source: "NUMA aware scheduling in Xen 4.3, development report, 2013".to_owned(),
        modelled: ["Memory latency and bandwidth of each node", "Work stealing with soft affinity", "Placement by node"]
            .map(str::to_owned)
            .to_vec(),
        not_modelled: ["The garbage collector of the Java machine", "Ballooning while VMs start"]
            .map(str::to_owned)
            .to_vec(),
        replications: 10,
        seed: 42,
        is_cut: false,
        precision: None,
        cells,
        heat_maps: Vec::new(),
        calibrations: Vec::new(),
        verdict: Verdict {
            predicted: 18,
            beyond_noise: 15,
            sign_right: 13,
            sign_open: 1,
            median_abs_error_pct: Some(1.93),
            max_abs_error_pct: Some(10.6),
            targets: vec![
                ("The sign of every predicted effect beyond noise is right: 13 of 15".to_owned(), Target::Open),
                ("Median absolute error at most 3 points: 1.9".to_owned(), Target::Met),
            ],
        },
    }
}

/// A sweep over load: five variants, seven metrics, two published numbers.
pub fn rate_control() -> ExperimentResults {
    let variants = [
        ("credit", 1.0),
        ("src", 0.22),
        ("ratelimit-1ms", 0.30),
        ("ratelimit-5ms", 0.12),
        ("ratelimit-10ms", 0.08),
    ];
    let metrics = [
        ("throughput", "1/s", Better::Higher),
        ("schedules_per_s_per_core", "1/s", Better::Neither),
        ("mean_run_us", "us", Better::Neither),
        ("context_switches", "", Better::Lower),
        ("response_p50_us", "us", Better::Lower),
        ("response_p95_us", "us", Better::Lower),
        ("response_p99_us", "us", Better::Lower),
    ];
    let mut cells = Vec::new();
    for (metric, unit, better) in metrics {
        for load_pct in (10..=100).step_by(10) {
            let load = load_pct as f64 / 100.0;
            let value = |switching: f64| match metric {
                "throughput" => 5200.0 * load * (1.0 - 0.2 * (load - 0.4).max(0.0) * switching),
                "schedules_per_s_per_core" => 15_200.0 * load * (1.0 - load.powi(3) * (1.0 - switching)),
                "mean_run_us" => 60.0 / (0.2 + 0.8 * switching * load),
                "context_switches" => 2.4e6 * load * (1.0 - load.powi(3) * (1.0 - switching)),
                "response_p50_us" => 180.0 / (1.08 - load * (0.8 + 0.2 * switching)),
                "response_p95_us" => 420.0 / (1.06 - load * (0.9 + 0.1 * switching)),
                _ => 700.0 / (1.05 - load * (0.95 + 0.05 * switching)),
            };
            let base = value(1.0);
            for (variant, switching) in variants {
                let is_baseline = variant == "credit";
                let effect = (!is_baseline).then(|| (value(switching) - base) / base * 100.0);
                let published_effect_pct = match (metric, variant, load_pct) {
                    ("throughput", "src", 100) => Some(14.0),
                    ("throughput", "src", 20) => Some(0.0),
                    _ => None,
                };
                let published = match (metric, load_pct, is_baseline) {
                    ("schedules_per_s_per_core", 100, true) => Some(15_000.0),
                    ("mean_run_us", 100, true) => Some(60.0),
                    _ => None,
                };
                cells.push(Cell {
                    experiment: "rate-control".to_owned(),
                    cell: keys(&[("load_pct", Key::Number(load_pct))]),
                    metric: metric.to_owned(),
                    baseline: "credit".to_owned(),
                    variant: variant.to_owned(),
                    published,
                    simulated: value(switching),
                    published_effect_pct,
                    simulated_effect_pct: effect,
                    ci_low_pct: effect.map(|pct| pct - 0.8),
                    ci_high_pct: effect.map(|pct| pct + 0.8),
                    range_low_pct: None,
                    range_high_pct: None,
                    basis: RangeBasis::default(),
                    noise_pct: 1.0,
                    role: if published.is_some() { Role::Calibrated } else { Role::Predicted },
                    better,
                    unit: unit.to_owned(),
                    precision_pct: None,
                    runs: CellRuns::default(),
                });
            }
        }
    }
    ExperimentResults {
        name: "rate-control".to_owned(),
        title: "Rate control: too many scheduling decisions, let the running vCPU go on".to_owned(),
        story: vec![
            "Network interrupts of a consolidated host woke vCPUs fifteen thousand times a second on each core, so \
             that each ran for 60 microseconds only."
                .to_owned(),
            "A controller that counts the decisions of an interval and stops preempting above a threshold gained 14% \
             at the peak."
                .to_owned(),
            "Below the threshold it does nothing, which a fixed minimum run time cannot say of itself.".to_owned(),
        ],
        source: "Scheduler rate controller, H. Lv, 2011-10-24".to_owned(),
        modelled: ["Cache refill after each switch", "Interrupts as a random process"].map(str::to_owned).to_vec(),
        not_modelled: ["The network cards themselves", "Storage over the network"].map(str::to_owned).to_vec(),
        replications: 10,
        seed: 42,
        is_cut: false,
        precision: None,
        cells,
        heat_maps: Vec::new(),
        calibrations: Vec::new(),
        verdict: Verdict {
            predicted: 2,
            beyond_noise: 1,
            sign_right: 1,
            sign_open: 0,
            median_abs_error_pct: Some(2.3),
            max_abs_error_pct: Some(4.5),
            targets: vec![
                ("SRC at the peak +14% (±3): +10.6%".to_owned(), Target::Missed),
                ("SRC at low load about 0: 0.0%".to_owned(), Target::Met),
            ],
        },
    }
}

/// Gains of three variants at four loads; the last load was run once.
pub fn heat_map() -> ExperimentResults {
    let rows = [
        ("soft-1-1", "1:1", [0.3, -0.5, 1.0, 2.0]),
        ("soft-5-4", "5:4", [0.2, 1.4, 6.2, -1.0]),
        ("soft-100-1", "100:1", [-0.9, -2.0, -6.0, 3.0]),
    ];
    let mut cells = Vec::new();
    for (column, load) in [1, 2, 4, 8].into_iter().enumerate() {
        let baseline = Cell {
            cell: keys(&[("benchmark", Key::Text("hackbench".to_owned())), ("load", Key::Number(load))]),
            metric: "time".to_owned(),
            baseline: "hard".to_owned(),
            variant: "hard".to_owned(),
            published: None,
            simulated: 10.0,
            published_effect_pct: None,
            simulated_effect_pct: None,
            ci_low_pct: None,
            ci_high_pct: None,
            better: Better::Lower,
            unit: "s".to_owned(),
            ..effect(0.0, 0.0, 1.0)
        };
        cells.push(baseline.clone());
        cells.extend(rows.iter().map(|(variant, _, gains)| Cell {
            variant: (*variant).to_owned(),
            simulated: 10.0 - 0.1 * gains[column],
            simulated_effect_pct: Some(-gains[column]),
            ci_low_pct: (load < 8).then_some(-gains[column] - 0.4),
            ci_high_pct: (load < 8).then_some(-gains[column] + 0.4),
            ..baseline.clone()
        }));
    }
    let map = HeatMap {
        title: "Hackbench: gain by tunables and load".to_owned(),
        metric: "time".to_owned(),
        keys: keys(&[("benchmark", Key::Text("hackbench".to_owned()))]),
        columns: "load".to_owned(),
        rows: rows.iter().map(|(variant, label, _)| ((*variant).to_owned(), (*label).to_owned())).collect(),
        rows_title: Some("allowed : preferred".to_owned()),
    };
    ExperimentResults { cells, heat_maps: vec![map], ..empty() }
}

/// Both experiments.
pub fn all() -> Vec<ExperimentResults> {
    vec![rate_control(), numa_affinity()]
}

fn keys(keys: &[(&str, Key)]) -> BTreeMap<String, Key> {
    keys.iter().map(|(name, key)| ((*name).to_owned(), key.clone())).collect()
}
