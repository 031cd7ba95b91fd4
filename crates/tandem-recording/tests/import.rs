//! Traces of other tools become recordings: real ones of a small machine in which a few programs start, and
//! one that was encoded with Perfetto's own definitions.
//!
//! Those of trace-cmd 3.1.6 and perf 6.1 were made on Linux 6.18, then shortened: formats of other
//! tracepoints, names and paths of other programs were removed, after which the two tools still read them.

use proptest::prelude::*;
use std::collections::BTreeMap;
use tandem_recording::{Context, Event, Kind, Lost, NO_TASK, Recording, Source, Task, TaskState, import};

const TRACE_CMD_6: &[u8] = include_bytes!("data/trace-cmd-v6.dat");
const TRACE_CMD_7: &[u8] = include_bytes!("data/trace-cmd-v7.dat");
/// Of `perf sched record`.
const PERF_SCHED: &[u8] = include_bytes!("data/perf-sched.data");
/// Of `perf record -e sched:sched_switch -e sched:sched_wakeup`, as older kernels have it.
const PERF_WAKEUP: &[u8] = include_bytes!("data/perf-wakeup.data");
const PERFETTO: &[u8] = include_bytes!("data/perfetto-compact.pftrace");

const ALL: [&[u8]; 5] = [TRACE_CMD_6, TRACE_CMD_7, PERF_SCHED, PERF_WAKEUP, PERFETTO];

fn imported(bytes: &[u8]) -> Recording {
    import::from_bytes(bytes).unwrap()
}

fn message(bytes: &[u8]) -> String {
    import::from_bytes(bytes).unwrap_err().to_string()
}

fn kinds(recording: &Recording) -> BTreeMap<Kind, usize> {
    let mut kinds = BTreeMap::new();
    recording.events.iter().for_each(|event| *kinds.entry(event.kind).or_insert(0) += 1);
    kinds
}

fn task<'a>(recording: &'a Recording, name: &str) -> &'a Task {
    recording.about.tasks.iter().find(|task| task.name == name).unwrap()
}

/// Each task that leaves a CPU is the one that came there last.
fn assert_switches_fit(recording: &Recording) {
    let mut current = BTreeMap::new();
    for event in recording.events.iter().filter(|event| event.kind == Kind::Switch) {
        if let Some(last) = current.insert(event.cpu, event.other) {
            assert_eq!(event.task, last, "{event:?}");
        }
    }
}

#[test]
fn both_versions_of_trace_dat_become_the_same_recording() {
    let mut old = imported(TRACE_CMD_6);
    let new = imported(TRACE_CMD_7);
    assert_eq!(old.about.recorder, "trace.dat version 6");
    old.about.recorder = "trace.dat version 7".into();
    assert!(old == new);
    // As many as `trace-cmd report` prints; of wake-ups those of sched_waking, each of which has a
    // sched_wakeup.
    let expected = [
        (Kind::Switch, 166),
        (Kind::Wake, 85),
        (Kind::WakeNew, 13),
        (Kind::Fork, 13),
        (Kind::Exec, 7),
        (Kind::Exit, 13),
        (Kind::Interrupt, 31),
    ];
    assert_eq!(kinds(&new), BTreeMap::from(expected));
    assert_switches_fit(&new);
    let about = &new.about;
    assert_eq!((about.kernel.as_str(), about.cpus, about.clock.as_str()), ("6.18.44-fc-v669", 2, "local"));
    assert_eq!(about.timers[..3], ["tick_nohz_handler", "process_timeout", "hrtimer_wakeup"]);
    // A sleeping program is woken by its timer, from an interrupt.
    let sleep = about.tasks.iter().position(|task| task.name == "sleep").unwrap() as u32;
    let woken = new.events.iter().position(|event| event.kind == Kind::Wake && event.task == sleep);
    let woken = woken.unwrap();
    assert_eq!(new.events[woken].context(), Context::Interrupt);
    assert_eq!(new.events[woken - 1].source(), Source::HrTimer(2));
    // It was forked, and its last switch is its end.
    let fork = new.events.iter().find(|event| event.task == sleep).unwrap();
    assert_eq!(fork.kind, Kind::Fork);
    let last = new.events.iter().rfind(|event| event.kind == Kind::Switch && event.task == sleep).unwrap();
    assert_eq!(last.state(), TaskState::Dead);
}

#[test]
fn perf_data_becomes_a_recording() {
    let recording = imported(PERF_SCHED);
    // As many as `perf script` prints.
    let expected = [(Kind::Switch, 49), (Kind::Wake, 26), (Kind::WakeNew, 12), (Kind::Fork, 12)];
    assert_eq!(kinds(&recording), BTreeMap::from(expected));
    assert_switches_fit(&recording);
    let about = &recording.about;
    assert_eq!((about.kernel.as_str(), about.cpus, about.clock.as_str()), ("6.18.44-fc-v669", 2, "perf"));
    let sleep = task(&recording, "sleep");
    assert_eq!((sleep.pid, sleep.process.as_str(), sleep.nice()), (sleep.tid, "sleep", Some(0)));
    assert_eq!(task(&recording, "migration/0").nice(), None);

    let recording = imported(PERF_WAKEUP);
    assert_eq!(kinds(&recording), BTreeMap::from([(Kind::Switch, 94), (Kind::Wake, 56)]));
    assert_switches_fit(&recording);
}

#[test]
fn columns_and_records_of_perfetto_become_a_recording() {
    let recording = imported(PERFETTO);
    let about = &recording.about;
    assert_eq!((about.kernel.as_str(), about.cpus, about.clock.as_str()), ("6.6.0-test", 2, "mono_raw"));
    assert_eq!(about.lost, [Lost { cpu: 0, events: 1 }]);
    assert_eq!(about.clock_start_ns, 4_900);
    let names: Vec<_> = about
        .tasks
        .iter()
        .map(|task| (task.tid, task.pid, task.name.as_str(), task.process.as_str()))
        .collect();
    let (worker, make, child, web) = (0, 1, 2, 3);
    assert_eq!(
        names,
        [(101, 100, "worker", "web"), (55, 0, "make", ""), (200, 0, "make", ""), (100, 100, "web", "web")]
    );
    let event = |at_ns, cpu, kind, task, other, detail| Event { at_ns, cpu, kind, task, other, detail };
    let (runnable, waits, dead) =
        (TaskState::Runnable as u32, TaskState::Interruptible as u32, TaskState::Dead as u32);
    let expected = [
        event(0, 1, Kind::Wake, worker, NO_TASK, Context::Interrupt as u32),
        event(100, 1, Kind::Switch, NO_TASK, worker, runnable),
        event(200, 0, Kind::Fork, child, make, 0),
        event(210, 0, Kind::WakeNew, child, make, 0),
        event(300, 1, Kind::Wake, web, worker, Context::Task as u32),
        event(400, 0, Kind::Interrupt, make, NO_TASK, Source::Device(24).detail()),
        event(500, 1, Kind::Switch, worker, NO_TASK, waits),
        event(600, 0, Kind::Switch, make, child, runnable),
        event(700, 0, Kind::Exit, child, NO_TASK, 0),
        event(800, 0, Kind::Switch, child, make, dead),
        event(1_100, 1, Kind::Switch, NO_TASK, web, runnable),
    ];
    assert_eq!(recording.events, expected);
    assert_eq!(about.devices, [(24, "eth0".to_owned())]);
}

#[test]
fn a_recording_comes_back_from_perfetto() {
    for bytes in ALL {
        let recording = imported(bytes);
        let mut trace = Vec::new();
        recording.write_perfetto(&mut trace).unwrap();
        let again = imported(&trace);
        // Tasks may be met in another order, which is that of times: packets are of one CPU each.
        let shown = |recording: &Recording| -> Vec<_> {
            let task =
                |at: u32| recording.about.tasks.get(at as usize).map(|task| (task.tid, task.name.clone()));
            let mut shown: Vec<_> = recording
                .events
                .iter()
                .map(|event| {
                    (event.at_ns, event.cpu, event.kind, task(event.task), task(event.other), event.detail)
                })
                .collect();
            shown.sort();
            shown
        };
        assert_eq!(shown(&again), shown(&recording));
        assert_eq!(again.about.kernel, recording.about.kernel);
    }
}

#[test]
fn what_is_not_supported_is_refused_in_a_sentence() {
    let changed = |bytes: &[u8], at: usize, to: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + to.len()].copy_from_slice(to);
        message(&bytes)
    };
    assert_eq!(changed(TRACE_CMD_6, 12, &[1]), "was made on a big-endian machine, which is not supported");
    assert_eq!(changed(TRACE_CMD_6, 10, b"5"), "has version 5 of trace.dat; 6 and 7 are supported");
    assert_eq!(
        changed(TRACE_CMD_7, 18, b"zlib"),
        "is compressed by zlib; convert it with `trace-cmd convert --compression none`"
    );
    let clock = TRACE_CMD_6.windows(7).position(|part| part == b"[local]").unwrap();
    assert_eq!(
        changed(TRACE_CMD_6, clock, b"[loca]t"),
        "has times of the clock \"loca\", which are not ns; record with `trace-cmd record -C mono`"
    );
    let data = u64::from_le_bytes(PERF_SCHED[40..48].try_into().unwrap()) as usize;
    assert_eq!(
        changed(PERF_SCHED, data, &[81, 0, 0, 0]),
        "is a compressed perf.data, which is not supported; record without -z"
    );
    assert_eq!(
        changed(PERF_SCHED, 48, &[0; 8]),
        "is a perf.data without data, as that of a perf that was killed"
    );
    // A packet with a field 50, and one without records.
    assert_eq!(
        message(&[0x0a, 0x03, 0x92, 0x03, 0x00]),
        "has compressed packets, which are not supported; record without compression_type"
    );
    assert!(message(&[0x0a, 0x02, 0x40, 0x01]).starts_with("has no records of sched_switch; record with"));
    assert_eq!(
        message(b"\nA text that begins with an empty line."),
        "is not a recording; `tandem record`, trace-cmd (trace.dat), perf (perf.data) and Perfetto make recordings"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damage_is_an_error_or_another_recording(
        which in 0..ALL.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut bytes = ALL[which].to_vec();
        for (at, byte) in damage {
            *at.get_mut(&mut bytes) = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(recording) = import::from_bytes(&bytes) {
            prop_assert_eq!(recording.check(), Ok(()));
        }
    }
}
