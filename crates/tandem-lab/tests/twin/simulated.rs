//! A run of the simulator is a recording, too, and one of a machine of which everything is known: its replay must
//! be like it. The programs are those on which the simulator is held to the real kernel.

use std::fmt::Write as _;
use std::path::Path;
use tandem_lab::machine_file::to_toml;
use tandem_lab::scenario::ScenarioSource;
use tandem_lab::twin::grouping::GroupBy;
use tandem_lab::twin::observed::Observed;
use tandem_lab::twin::replay::{Measured, Twin};
use tandem_lab::twin::situation::Situation;
use tandem_recording::{Event, Recording, Task};
use tandem_sim::cost::{CostModels, Timer};

/// How far the replay of a program may be from the recording, percent.
struct Bound {
    program: &'static str,
    switches_pct: f64,
    wait_pct: f64,
}

/// Programs whose tasks wake each other at fixed points of their work, or not at all, come out within 10%. Those
/// with queues that several of them share, hackbench's and the server's, do not: a recording does not show what is
/// in them.
const BOUNDS: [Bound; 8] = [
    Bound { program: "hackbench", switches_pct: 25.0, wait_pct: 20.0 },
    Bound { program: "ping-pong", switches_pct: 1.0, wait_pct: 10.0 },
    Bound { program: "pinned", switches_pct: 10.0, wait_pct: 10.0 },
    Bound { program: "sleepers", switches_pct: 10.0, wait_pct: 10.0 },
    Bound { program: "mix", switches_pct: 10.0, wait_pct: 20.0 },
    Bound { program: "pairs", switches_pct: 15.0, wait_pct: 25.0 },
    Bound { program: "server", switches_pct: 10.0, wait_pct: 60.0 },
    Bound { program: "spill", switches_pct: 15.0, wait_pct: 100.0 },
];

/// Half a second of a program on eight CPUs, as a recording.
fn recorded(program: &str) -> Recording {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vm/agreement/{}.toml"), program);
    let source = ScenarioSource::read(Path::new(&path)).unwrap();
    let policy = toml::from_str("host = { linux = { version = \"7.3\" } }").unwrap();
    let mut scenario = source.build(&Default::default(), &policy).unwrap();
    scenario.remove_kernel_threads();
    scenario.costs = CostModels { timer: Some(Timer::Hardware), ..CostModels::off() };
    (scenario.warmup_ns, scenario.length_ns) = (0, 500_000_000);
    let mut recording = Recording::default();
    let about = &mut recording.about;
    about.kernel = "7.3.4".into();
    about.cpus = scenario.machine.cpu_count() as u32;
    about.machine = Some(to_toml(&scenario.machine));
    for workload in &scenario.workloads {
        for task in 0..workload.task_count() {
            let number = about.tasks.len() as u32 + 1;
            about.tasks.push(Task {
                tid: number,
                pid: number,
                name: format!("{}/{task}", workload.name),
                process: workload.name.clone(),
                priority: Some(120 + i32::from(workload.nice(task))),
                policy: Some(workload.policy(task).number()),
                cpus: Some(scenario.machine.os_list(&workload.affinity(task).hard)),
                ..Task::default()
            });
        }
    }
    let machine = scenario.machine.clone();
    let mut observed = Observed::new(&machine, |event: &Event| recording.events.push(*event));
    recording.about.length_ns = tandem_sim::run_observed(&scenario, 1, &mut observed).unwrap().length_ns;
    recording.check().unwrap();
    recording
}

#[test]
fn a_replay_of_a_simulated_machine_is_like_it() {
    let mut wrong = String::new();
    for Bound { program, switches_pct, wait_pct } in BOUNDS {
        let recording = recorded(program);
        let twin = Twin::new(&recording, GroupBy::Process);
        let (was, situation) = (twin.recorded().unwrap(), Situation::recorded(&recording).unwrap());
        let runs: Vec<Measured> = (1..=3).map(|seed| twin.run(&situation, seed).unwrap()).collect();
        let mean = |of: fn(&Measured) -> u64| runs.iter().map(of).sum::<u64>() as f64 / runs.len() as f64;
        let mut check = |what: &str, was: u64, is: f64, bound_pct: f64| {
            let off_pct = 100.0 * (is - was as f64) / was.max(1) as f64;
            // Below a millisecond in all there is nothing to be off.
            let matters = is.max(was as f64) > 1_000_000.0 || what == "switches";
            if matters && off_pct.abs() > bound_pct {
                let _ = writeln!(wrong, "{program}: {what} {was}, in the replay {is:.0}: {off_pct:+.1}%");
            }
        };
        assert!(runs.iter().all(|run| run.is_complete), "{program}");
        check("switches", was.total.switches, mean(|run| run.total.switches), switches_pct);
        check("waiting, ns", was.total.wait_ns, mean(|run| run.total.wait_ns), wait_pct);
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn a_replay_is_the_same_every_time() {
    let recording = recorded("mix");
    let twin = Twin::new(&recording, GroupBy::Process);
    let situation = Situation::recorded(&recording).unwrap();
    let [one, other, next] = [5, 5, 6].map(|seed| twin.run(&situation, seed).unwrap().total);
    assert_eq!((one.switches, &one.waits_ns), (other.switches, &other.waits_ns));
    assert_ne!(one.waits_ns, next.waits_ns, "another seed is another run");
}
