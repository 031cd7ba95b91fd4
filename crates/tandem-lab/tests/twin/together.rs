//! A host and its guest, recorded together: clocks are matched, and a replay through both levels is like the recording.
//! The recorded machine is the simulator, with one run that is seen from the host and from within the guest.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use tandem_lab::machine_file::to_toml;
use tandem_lab::scenario::ScenarioSource;
use tandem_lab::scenario::policy::words::Word;
use tandem_lab::twin::grouping::GroupBy;
use tandem_lab::twin::observed::{Kernels, Observed};
use tandem_lab::twin::plan::{GroupPlan, Plan};
use tandem_lab::twin::replay::{Measured, Twin};
use tandem_lab::twin::situation::{Change, Situation};
use tandem_lab::twin::together::Together;
use tandem_machine::Machine;
use tandem_machine::ids::KernelId;
use tandem_recording::{Event, Recording, Task, Vm};
use tandem_sim::cost::{CostModels, Timer};
use tandem_sim::scenario::{TaskPolicy, Workload};

/// When the guest's recording starts, ns after the host's, and how much its clock loses, parts of a million.
#[derive(Clone, Copy, Debug)]
struct Differs {
    offset_ns: u64,
    drift_ppm: i64,
}

/// What a run looks like from the host, and from within its guest.
fn recorded(hogs: u32, weight: u32, seed: u64, differs: Differs) -> (Recording, Recording) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/twin/together.toml");
    let text = std::fs::read_to_string(path)
        .unwrap()
        .replace("hogs = 1", &format!("hogs = {hogs}"))
        .replace("weight = 256", &format!("weight = {weight}"));
    let source = ScenarioSource::parse(Path::new("together.toml"), &text).unwrap();
    let mut scenario = source.build(&Default::default(), &Default::default()).unwrap();
    scenario.remove_kernel_threads();
    scenario.costs = CostModels { timer: Some(Timer::Hardware), ..CostModels::off() };
    (scenario.warmup_ns, scenario.halt_poll_ns) = (0, Some(0));
    let guest = scenario.workloads[0].guest().expect("it has one").clone();
    let mut host_recording = described(&scenario.machine);
    let mut guest_recording = described(&guest.topology);
    host_recording.about.vms = vec![Vm { name: "web".into(), pid: 1, memory_bytes: None }];
    for (vm, workload) in scenario.workloads.iter().enumerate() {
        for number in 0..workload.task_count() {
            let mut task = task_of(&mut host_recording, &workload.group);
            if vm == 0 {
                (task.vm, task.vcpu) = (Some(0), Some(number as u32));
                task.priority = Some(120 + nice_of_weight(workload));
            }
            host_recording.about.tasks.push(task);
        }
    }
    for process in &guest.processes {
        for _ in 0..process.copies {
            let task = task_of(&mut guest_recording, &guest.programs[process.program].name);
            guest_recording.about.tasks.push(task);
        }
    }
    let (host_machine, guest_machine): (&Machine, &Machine) = (&scenario.machine, &guest.topology);
    let (mut host_events, mut guest_events): (Vec<Event>, Vec<Event>) = (Vec::new(), Vec::new());
    let mut kernels = Kernels(vec![
        Observed::new(host_machine, into(&mut host_events)),
        Observed::of_kernel(KernelId(1), guest_machine, into(&mut guest_events)),
    ]);
    let length_ns = tandem_sim::run_observed(&scenario, seed, &mut kernels).unwrap().length_ns;
    drop(kernels);
    host_recording.events = host_events;
    host_recording.about.length_ns = length_ns;
    // The guest's recording ends a little before the host's.
    let last_ns = length_ns - 20_000_000;
    let by_guest = |ns: u64| {
        let ns = (ns - differs.offset_ns) as i64;
        (ns - ns * differs.drift_ppm / 1_000_000) as u64
    };
    let seen = guest_events.into_iter().filter(|event| (differs.offset_ns..=last_ns).contains(&event.at_ns));
    guest_recording.events = seen.map(|event| Event { at_ns: by_guest(event.at_ns), ..event }).collect();
    guest_recording.about.length_ns = by_guest(last_ns);
    host_recording.check().unwrap();
    guest_recording.check().unwrap();
    (host_recording, guest_recording)
}

fn into(events: &mut Vec<Event>) -> impl FnMut(&Event) {
    |event| events.push(*event)
}

fn described(machine: &Machine) -> Recording {
    let mut recording = Recording::default();
    recording.about.kernel = "7.3.4".into();
    recording.about.cpus = machine.cpu_count() as u32;
    recording.about.machine = Some(to_toml(machine));
    recording
}

fn task_of(recording: &mut Recording, process: &str) -> Task {
    let number = recording.about.tasks.len() as u32 + 1;
    Task {
        tid: number,
        pid: number,
        name: format!("{process}/{number}"),
        process: process.into(),
        priority: Some(120),
        ..Task::default()
    }
}

/// The nice value that has the weight of these vCPUs.
fn nice_of_weight(workload: &Workload) -> i32 {
    let usual = f64::from(Workload::DEFAULT_WEIGHT);
    -((f64::from(workload.weight) / usual).ln() / 1.25f64.ln()).round() as i32
}

fn group(twin: &Twin<'_>, name: &str) -> usize {
    twin.groups
        .iter()
        .position(|known| known == name)
        .unwrap_or_else(|| panic!("{name} in {:?}", twin.groups))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn clocks_are_matched(
        hogs in 1u32..5, seed in 0u64..1000, offset_ms in 5u64..300, drift_ppm in -100i64..=100,
    ) {
        let differs = Differs { offset_ns: offset_ms * 1_000_000 + 12_345, drift_ppm };
        let (host, guest) = recorded(hogs, 256, seed, differs);
        let together = Together::new(host, vec![("web".into(), guest)]).unwrap();
        let clocks = together.guests[0].clocks;
        let off_ns = (clocks.offset_ns - differs.offset_ns as f64).abs();
        prop_assert!(off_ns < 20_000.0, "{differs:?} {clocks}");
        prop_assert!((clocks.drift_ppm - drift_ppm as f64).abs() < 30.0, "{differs:?} {clocks}");
    }
}

/// How far the replays of all recordings together may be off, percent: in time on a CPU, in time of waiting, and in
/// switches. What the guest's tasks have of both is what the host leaves them, as chance has it.
const BOUNDS: [(&str, [f64; 3]); 5] = [
    ("web", [3.0, 15.0, 15.0]),
    ("web/batch", [10.0, 25.0, 15.0]),
    ("web/sleeper", [15.0, 25.0, 10.0]),
    ("web/ping", [10.0, 25.0, 10.0]),
    ("web/pong", [10.0, 25.0, 10.0]),
];

#[test]
fn a_replay_through_both_levels_is_like_the_recording() {
    let mut wrong = String::new();
    for hogs in [1, 2, 4] {
        let mut sums = [([0u64; 3], [0u64; 3]); BOUNDS.len()];
        for seed in 1..=4 {
            let differs = Differs { offset_ns: 40_000_000 + seed * 7_000_000, drift_ppm: 20 };
            let (host, guest) = recorded(hogs, 256, seed, differs);
            let together = Together::new(host, vec![("web".into(), guest)]).unwrap();
            let twin = Twin::of(&together, GroupBy::Vm).unwrap();
            let (was, situation) = (twin.recorded().unwrap(), Situation::recorded(&together.host).unwrap());
            let runs = twin.run_all(&situation, &[1, 2]).unwrap();
            assert!(runs.iter().all(|run| run.is_complete));
            for ((name, _), (recorded, simulated)) in BOUNDS.iter().zip(&mut sums) {
                let at = group(&twin, name);
                let values = |of: &Measured| {
                    let group = &of.groups[at];
                    [group.run_ns, group.wait_ns, group.switches]
                };
                for measure in 0..3 {
                    recorded[measure] += runs.len() as u64 * values(&was)[measure];
                    simulated[measure] += runs.iter().map(|run| values(run)[measure]).sum::<u64>();
                }
            }
        }
        for ((name, bounds), (recorded, simulated)) in BOUNDS.iter().zip(&sums) {
            for (at, what) in ["run", "wait", "switches"].into_iter().enumerate() {
                let off_pct = 100.0 * (simulated[at] as f64 / recorded[at] as f64 - 1.0);
                println!("{hogs} hogs: {name} {what} {} -> {} ({off_pct:+.1}%)", recorded[at], simulated[at]);
                if off_pct.abs() > bounds[at] {
                    let _ = writeln!(wrong, "{hogs} hogs: {name} {what} {off_pct:+.1}%");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn what_a_weight_does_within_the_guest_is_foretold() {
    let differs = Differs { offset_ns: 50_000_000, drift_ppm: 20 };
    // What two hogs leave of two CPUs.
    let measured = |weight: u32| {
        let (host, guest) = recorded(4, weight, 3, differs);
        let together = Together::new(host, vec![("web".into(), guest)]).unwrap();
        let twin = Twin::of(&together, GroupBy::Vm).unwrap();
        (twin.recorded().unwrap(), group(&twin, "web/batch"), group(&twin, "web"))
    };
    let (before, ..) = measured(256);
    let (after, batch, web) = measured(1024);
    let (host, guest) = recorded(4, 256, 3, differs);
    let together = Together::new(host, vec![("web".into(), guest)]).unwrap();
    let twin = Twin::of(&together, GroupBy::Vm).unwrap();
    let mut situation = Situation::recorded(&together.host).unwrap();
    situation.changes.insert("web".into(), Change { nice: Some(-6), ..Change::default() });
    let runs = twin.run_all(&situation, &[1, 2, 3]).unwrap();
    // The share of its time that the VM waits in the host.
    let share = |run: &Measured| {
        run.groups[web].wait_ns as f64 / (run.groups[web].run_ns + run.groups[web].wait_ns) as f64
    };
    let foretold = runs.iter().map(share).sum::<f64>() / runs.len() as f64;
    assert!(share(&after) < 0.6 * share(&before), "the weight matters: {} {}", share(&before), share(&after));
    assert!(
        (foretold - share(&after)).abs() < 0.1,
        "{} foretold, {} measured, {} before",
        foretold,
        share(&after),
        share(&before)
    );
    let _ = batch;
}

#[test]
fn a_plan_says_which_groups_of_guests_it_changes() {
    let (mut host, mut guest) = recorded(1, 256, 3, Differs { offset_ns: 50_000_000, drift_ppm: 20 });
    // A process of the host is called as one of the guest.
    host.about.tasks.iter_mut().filter(|task| task.vm.is_none()).for_each(|task| {
        task.process = "web/batch".into();
    });
    guest.about.tasks.iter_mut().filter(|task| task.process == "sleeper").for_each(|task| {
        task.policy = Some(TaskPolicy::Idle.number());
    });
    let whole = Plan::made_of(&host);
    let together = Together::new(host, vec![("web".into(), guest)]).unwrap();
    let twin = Twin::of(&together, GroupBy::Vm).unwrap();
    let batch = "web/batch (process in the guest)";
    for name in ["web", "web/batch (process)", batch, "web/ping", "web/pong", "web/sleeper"] {
        assert_eq!(twin.groups.iter().filter(|known| *known == name).count(), 1, "{name}: {:?}", twin.groups);
    }
    assert!(twin.check_group("web/batch").is_err());
    // What tasks of each group of the guest have.
    let staged = |situation: &Situation| {
        let scenario = twin.stage(situation).scenario;
        let processes = scenario.workloads.iter().find_map(Workload::guest).unwrap().processes.clone();
        let model = &twin.guests[0].model;
        let groups = model.tasks.iter().map(|task| model.groups[task.group].clone());
        groups.zip(processes.iter().map(|it| (it.nice, it.policy))).collect::<BTreeMap<_, _>>()
    };
    let before = staged(&Situation::recorded(twin.recording).unwrap());
    assert_eq!(before["web/sleeper"], (0, TaskPolicy::Idle));
    assert_eq!(before[batch], (0, TaskPolicy::Normal));
    let change = GroupPlan { nice: Some(3), policy: Word::of("batch"), ..GroupPlan::default() };
    let plan = Plan {
        recording: "host.parquet".into(),
        guest: BTreeMap::from([("web".into(), "guest.parquet".into())]),
        group: BTreeMap::from([(batch.into(), change)]),
        ..Plan::default()
    };
    let situation = plan.situation(&twin, None).unwrap();
    let after = staged(&situation);
    assert_eq!(after[batch], (3, TaskPolicy::Batch));
    assert_eq!(after["web/sleeper"], before["web/sleeper"]);
    // As a file, it says the same, and knows the recording of the host whatever guests there are.
    let text = plan.to_toml(&twin).unwrap();
    let read: Plan = toml::from_str(&text).unwrap();
    assert_eq!((&read.guest, read.made_of.as_ref()), (&plan.guest, Some(&whole)));
    assert_eq!(read.situation(&twin, None).unwrap().changes[batch], situation.changes[batch]);
    assert!(read.is_of(&twin));
    for name in ["weight = 3", "copies = 2", "cpus = \"0\""] {
        let text = format!("recording = \"host.parquet\"\n[group.\"web/ping\"]\n{name}\n");
        let plan: Plan = toml::from_str(&text).unwrap();
        let problem = plan.situation(&twin, None).unwrap_err();
        assert!(problem.contains("'web/ping' is in a guest"), "{problem}");
    }
}

#[test]
fn copies_of_a_vm_have_its_guest_and_cannot_be_too_many() {
    let (host, guest) = recorded(1, 256, 3, Differs { offset_ns: 50_000_000, drift_ppm: 20 });
    let together = Together::new(host, vec![("web".into(), guest)]).unwrap();
    let twin = Twin::of(&together, GroupBy::Vm).unwrap();
    let mut situation = Situation::recorded(twin.recording).unwrap();
    let mut run = |copies: u32| {
        situation.changes.insert("web".into(), Change { copies: Some(copies), ..Change::default() });
        twin.run(&situation, 1)
    };
    let at = group(&twin, "web/sleeper");
    let (one, two) = (run(1).unwrap(), run(2).unwrap());
    assert!(two.groups[at].switches > one.groups[at].switches * 3 / 2);
    // With the guest's tasks, not with the vCPUs alone.
    let problem = run(20_000).unwrap_err();
    let tasks = 20_000 * (2 + twin.guests[0].model.tasks.len()) + 1;
    assert!(problem.starts_with(&format!("the replay would have {tasks} tasks")), "{problem}");
}

#[test]
fn a_recording_that_does_not_belong_to_the_vm_is_refused() {
    let differs = Differs { offset_ns: 50_000_000, drift_ppm: 20 };
    let (host, guest) = recorded(1, 256, 3, differs);
    let (_, other) = recorded(1, 256, 4, differs);
    let refused = |host: &Recording, name: &str, guest: &Recording| {
        Together::new(host.clone(), vec![(name.into(), guest.clone())]).unwrap_err()
    };
    let problem = refused(&host, "web", &other);
    assert!(problem.contains("idles at other times than its vCPUs sleep"), "{problem}");
    let problem = refused(&host, "mail", &guest);
    assert!(problem.contains("no VM 'mail' in the recording; VMs: 'web'"), "{problem}");
    let mut unknown = host.clone();
    unknown.about.tasks.iter_mut().for_each(|task| task.vcpu = None);
    assert!(refused(&unknown, "web", &guest).contains("which threads of VM 'web' are its vCPUs"));
    let mut small = host.clone();
    small.about.tasks.iter_mut().filter(|task| task.vcpu == Some(1)).for_each(|task| task.vcpu = None);
    assert!(refused(&small, "web", &guest).contains("has CPU 1, but VM 'web' has no vCPU 1"));
    let mut busy = guest.clone();
    busy.events.retain(|event| event.kind != tandem_recording::Kind::Switch);
    assert!(refused(&host, "web", &busy).contains("never idles in its recording"));
    let twice = vec![("web".into(), guest.clone()), ("web".into(), guest)];
    assert!(Together::new(host, twice).unwrap_err().contains("two recordings"));
}
