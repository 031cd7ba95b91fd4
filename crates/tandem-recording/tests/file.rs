//! The file of a recording: what is written comes back, others are refused, and other programs read it.

use proptest::prelude::*;
use std::path::Path;
use tandem_recording::file::GROUP;
use tandem_recording::{
    About, Context, Event, Kind, Lost, NO_TASK, Recording, RecordingWriter, Source, Task, TaskState, event,
};

/// A file that pyarrow 26.0.1 and Polars 2.1.0 have read: their tables were those of [`small`].
const GOLDEN: &[u8] = include_bytes!("data/golden.parquet");

/// A recording with each kind of event.
fn small() -> Recording {
    let task = |tid, name: &str| Task { tid, name: name.into(), ..Task::default() };
    let about = About {
        recorder: "tandem 0.1.0".into(),
        cpus: 4,
        length_ns: 5_000_000,
        lost: vec![Lost { cpu: 1, events: 3 }],
        tasks: vec![task(17, "web"), task(18, "db\u{1b}[31m")],
        timers: vec!["hrtimer_wakeup".into()],
        ..About::default()
    };
    let events = event::KINDS.iter().zip(0..).map(|(&(kind, _), at)| Event {
        at_ns: 1_000 * at * at,
        cpu: at as u32 % 4,
        kind,
        task: at as u32 % 2,
        other: if at % 3 == 0 { NO_TASK } else { 1 },
        detail: match kind {
            Kind::Switch => TaskState::Interruptible as u32,
            Kind::Wake => Context::Interrupt as u32,
            Kind::Interrupt => Source::HrTimer(0).detail(),
            Kind::GuestExit => u32::MAX,
            _ => 0,
        },
    });
    Recording { about, events: events.collect() }
}

fn written(recording: &Recording) -> Vec<u8> {
    let mut bytes = Vec::new();
    recording.write(&mut bytes).unwrap();
    bytes
}

fn message(bytes: &[u8]) -> String {
    Recording::from_bytes(bytes).unwrap_err().to_string()
}

prop_compose! {
    fn any_event(cpus: u32, tasks: u32, timers: u32)(
        step_ns in prop_oneof![5 => 0..20_000_u64, 1 => 0..1_u64 << 40],
        cpu in 0..cpus,
        kind in prop::sample::select(event::KINDS.map(|(kind, _)| kind).to_vec()),
        task in prop_oneof![4 => 0..tasks, 1 => Just(NO_TASK)],
        other in prop_oneof![4 => 0..tasks, 1 => Just(NO_TASK)],
        timer in 0..timers,
        detail in prop_oneof![3 => 0..5_u32, 1 => any::<u32>()],
    ) -> (u64, Event) {
        let detail = if kind == Kind::Interrupt { Source::Timer(timer).detail() } else { detail };
        (step_ns, Event { at_ns: 0, cpu, kind, task, other, detail })
    }
}

prop_compose! {
    fn any_recording()(
        events in prop::collection::vec(any_event(5, 9, 3), 0..400),
        names in prop::collection::vec(".{0,15}", 9),
    ) -> Recording {
        let mut at_ns = 0;
        let events: Vec<_> = events
            .into_iter()
            .map(|(step_ns, event)| {
                at_ns += step_ns;
                Event { at_ns, ..event }
            })
            .collect();
        let about = About {
            cpus: 5,
            length_ns: at_ns,
            tasks: names.into_iter().map(|name| Task { name, ..Task::default() }).collect(),
            timers: vec![String::new(); 3],
            ..About::default()
        };
        Recording { about, events }
    }
}

proptest! {
    #[test]
    fn what_is_written_comes_back(recording in any_recording()) {
        prop_assert_eq!(Recording::from_bytes(&written(&recording)), Ok(recording));
    }

    #[test]
    fn damage_is_an_error_or_another_recording(
        recording in any_recording(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut bytes = written(&recording);
        for (at, byte) in damage {
            *at.get_mut(&mut bytes) = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(other) = Recording::from_bytes(&bytes) {
            prop_assert_eq!(other.check(), Ok(()));
        }
    }
}

#[test]
fn many_groups_come_back() {
    let event = |at: u64| {
        let noise = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        Event {
            at_ns: 1_000 * at + noise % 1_000,
            cpu: noise as u32 % 3,
            kind: event::KINDS[noise as usize % 2].0,
            task: noise as u32 % 5,
            other: NO_TASK,
            detail: 0,
        }
    };
    let about =
        About { cpus: 3, length_ns: u64::MAX / 2, tasks: vec![Task::default(); 5], ..About::default() };
    let events: Vec<_> = (0..2 * GROUP as u64 + 5).map(event).collect();
    let recording = Recording { about, events };
    let bytes = written(&recording);
    assert!(Recording::from_bytes(&bytes).unwrap() == recording);
    // Rows of one group reach the file before there are all of the next one.
    let (mut reader, writer) = std::io::pipe().unwrap();
    let first = std::thread::spawn(move || {
        let mut writer = RecordingWriter::new(writer).unwrap();
        (0..GROUP as u64).for_each(|at| writer.push(event(at)).unwrap());
        drop(writer);
    });
    let mut so_far = Vec::new();
    std::io::Read::read_to_end(&mut reader, &mut so_far).unwrap();
    first.join().unwrap();
    assert!(bytes.starts_with(&so_far));
    assert!(so_far.len() > bytes.len() / 3, "{} of {} bytes", so_far.len(), bytes.len());
}

#[test]
fn the_golden_file_is_what_is_written_and_read() {
    // Zstandard may compress better some day; then have the new file read by the two programs.
    let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join("golden.parquet");
    std::fs::write(&new, written(&small())).unwrap();
    assert!(written(&small()) == GOLDEN, "the file would be {}", new.display());
    assert_eq!(Recording::from_bytes(GOLDEN), Ok(small()));
}

#[test]
fn what_contradicts_itself_is_not_written() {
    let refused = |change: fn(&mut Recording)| {
        let mut recording = small();
        change(&mut recording);
        let error = recording.write(Vec::new()).unwrap_err().to_string();
        assert!(recording.check().is_err());
        error
    };
    assert_eq!(
        refused(|it| it.events[1].at_ns = 90_000),
        "the recording event 2 is at 4000 ns, after one at 90000 ns"
    );
    assert_eq!(
        refused(|it| it.about.length_ns = 10),
        "the recording has an event that is at 81000 ns, after the end at 10 ns"
    );
    assert_eq!(
        refused(|it| it.events[5].other = 2),
        "the recording has an event that is about task 2, of 2 tasks"
    );
    assert_eq!(refused(|it| it.about.cpus = 3), "the recording has an event that is on CPU 3, of 3 CPUs");
    assert_eq!(
        refused(|it| it.about.timers.clear()),
        "the recording has an event that is of timer 0, of 0 timers"
    );
    assert_eq!(
        refused(|it| it.about.tasks[1].vm = Some(0)),
        "the recording has a task 1 of a VM that it does not have"
    );
}

#[test]
fn errors_say_what_and_where() {
    let bytes = written(&small());
    assert_eq!(
        message(b"abc"),
        "is not a recording; `tandem record`, trace-cmd (trace.dat), perf (perf.data) and Perfetto make recordings"
    );
    let end = bytes.len();
    assert_eq!(
        message(&bytes[..end - 1]),
        format!("is damaged at byte {}: its end is missing, as that of an interrupted copy", end - 1)
    );
    let changed = |from: &str, to: &str| {
        let mut bytes = bytes.clone();
        let at = bytes.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        message(&bytes)
    };
    assert_eq!(
        changed("tandem_format", "another_forma"),
        "is a Parquet file that was not written by tandem: its metadata has no key `tandem` and `tandem_format`"
    );
    assert_eq!(
        changed("detail", "derail"),
        "is a Parquet file that was not written by tandem: it has other columns"
    );
    assert_eq!(
        changed("\"length_ns\":5000000", "\"length_ns\":0000000"),
        "has a text under the key `tandem` that cannot be used (invalid number at line 1 column 260); record again with this tandem"
    );
    assert_eq!(
        changed("\"length_ns\":5000000", "\"length_ns\":5000   "),
        "event 3 is at 9000 ns, after the end at 5000 ns"
    );
}
