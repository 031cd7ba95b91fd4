//! What the model makes of events, on recordings of a few of them.

use tandem_lab::twin::Model;
use tandem_lab::twin::grouping::GroupBy;
use tandem_lab::twin::model::{End, Step, Wait};
use tandem_lab::twin::replay::Twin;
use tandem_lab::twin::situation::{Change, Situation};
use tandem_recording::{Context, Event, Kind, NO_TASK, Recording, Source, Task, TaskState};
use tandem_sim::scenario::{TaskPolicy, WorkloadKind};

const US: u64 = 1_000;
/// Where the tasks are in the recordings.
const A: u32 = 0;
const B: u32 = 1;

/// Builds a recording event by event; times in us.
struct Builder(Recording);

impl Builder {
    /// Of so many CPUs, with two tasks of different processes, `a` and `b`.
    fn new(cpus: u32) -> Self {
        let mut recording = Recording::default();
        recording.about.cpus = cpus;
        recording.about.kernel = "7.3.4".into();
        for (tid, name) in [(10, "a"), (11, "b")] {
            recording.about.tasks.push(Task {
                tid,
                pid: tid,
                name: name.into(),
                process: name.into(),
                priority: Some(120),
                ..Task::default()
            });
        }
        Self(recording)
    }

    fn add(mut self, at_us: u64, cpu: u32, kind: Kind, task: u32, other: u32, detail: u32) -> Self {
        self.0.events.push(Event { at_ns: at_us * US, cpu, kind, task, other, detail });
        self
    }

    fn switch(self, at_us: u64, cpu: u32, from: u32, state: TaskState, to: u32) -> Self {
        self.add(at_us, cpu, Kind::Switch, from, to, state as u32)
    }

    fn wake(self, at_us: u64, cpu: u32, task: u32, by: u32, context: Context) -> Self {
        self.add(at_us, cpu, Kind::Wake, task, by, context as u32)
    }

    fn until(mut self, at_us: u64) -> Recording {
        self.0.about.length_ns = at_us * US;
        self.0.check().expect("it is a recording");
        self.0
    }
}

fn steps(recording: &Recording, name: &str) -> Vec<Step> {
    let model = Model::of(recording, GroupBy::Process);
    let found = model.tasks.into_iter().find(|task| recording.about.tasks[task.recorded].name == name);
    found.expect("the task was met").steps
}

use TaskState::{Dead, Interruptible, Runnable};

#[test]
fn a_waker_opens_the_gate_at_its_point_of_work() {
    let recording = Builder::new(2)
        .switch(0, 0, NO_TASK, Runnable, A)
        .switch(0, 1, NO_TASK, Runnable, B)
        .switch(100, 1, B, Interruptible, NO_TASK)
        .wake(300, 0, B, A, Context::Task)
        .switch(310, 1, NO_TASK, Runnable, B)
        .switch(400, 0, A, Dead, NO_TASK)
        .switch(410, 1, B, Dead, NO_TASK)
        .until(500);
    let open = Step::Open { gate: 0, sync: true };
    assert_eq!(steps(&recording, "a"), [Step::Work(300 * US), open, Step::Work(100 * US)]);
    let expected = [Step::Work(100 * US), Step::Wait(Wait::Gate(0)), Step::Work(100 * US)];
    assert_eq!(steps(&recording, "b"), expected);
}

#[test]
fn a_wake_up_may_come_before_the_switch_that_it_ends() {
    let recording = Builder::new(2)
        .switch(0, 0, NO_TASK, Runnable, A)
        .switch(0, 1, NO_TASK, Runnable, B)
        .wake(99, 0, B, A, Context::Task)
        .switch(100, 1, B, Interruptible, NO_TASK)
        .switch(120, 1, NO_TASK, Runnable, B)
        .switch(200, 1, B, Dead, NO_TASK)
        .until(200);
    let expected = [Step::Work(100 * US), Step::Wait(Wait::Gate(0)), Step::Work(80 * US)];
    assert_eq!(steps(&recording, "b"), expected);
}

#[test]
fn a_wake_up_that_came_to_nothing_is_not_waited_for() {
    let recording = Builder::new(2)
        .switch(0, 0, NO_TASK, Runnable, A)
        .switch(0, 1, NO_TASK, Runnable, B)
        .wake(50, 0, B, A, Context::Task)
        .switch(100, 1, B, Interruptible, NO_TASK)
        .wake(150, 0, B, A, Context::Task)
        .switch(160, 1, NO_TASK, Runnable, B)
        .switch(200, 1, B, Dead, NO_TASK)
        .until(200);
    assert_eq!(steps(&recording, "b")[1], Step::Wait(Wait::Gate(1)), "the second ended its wait");
}

#[test]
fn a_preempted_task_goes_on_with_its_work() {
    let recording = Builder::new(1)
        .switch(0, 0, NO_TASK, Runnable, A)
        .switch(100, 0, A, Runnable, B)
        .switch(150, 0, B, Dead, A)
        .switch(250, 0, A, Dead, NO_TASK)
        .until(250);
    assert_eq!(steps(&recording, "a"), [Step::Work(200 * US)]);
}

#[test]
fn who_was_there_before_has_run_or_waited_since_the_start() {
    let recording = Builder::new(1)
        .switch(40, 0, A, Interruptible, NO_TASK)
        .wake(90, 0, B, NO_TASK, Context::Interrupt)
        .switch(95, 0, NO_TASK, Runnable, B)
        .switch(100, 0, B, Interruptible, NO_TASK)
        .until(200);
    assert_eq!(steps(&recording, "a"), [Step::Work(40 * US)]);
    assert_eq!(steps(&recording, "b"), [Step::Wait(Wait::Until(90 * US)), Step::Work(5 * US)]);
}

#[test]
fn timers_and_devices_take_their_time() {
    let mut builder = Builder::new(1);
    builder.0.about.timers = vec!["hrtimer_wakeup".into()];
    let timer = Source::HrTimer(0).detail();
    let disk = Source::Device(7).detail();
    let recording = builder
        .switch(0, 0, NO_TASK, Runnable, A)
        .switch(100, 0, A, Interruptible, NO_TASK)
        .add(600, 0, Kind::Interrupt, NO_TASK, NO_TASK, timer)
        .wake(601, 0, A, NO_TASK, Context::Interrupt)
        .switch(605, 0, NO_TASK, Runnable, A)
        .switch(700, 0, A, TaskState::Uninterruptible, NO_TASK)
        .add(800, 0, Kind::Interrupt, NO_TASK, NO_TASK, disk)
        .wake(802, 0, A, NO_TASK, Context::Interrupt)
        .switch(805, 0, NO_TASK, Runnable, A)
        .switch(900, 0, A, Dead, NO_TASK)
        .until(900);
    let expected = [
        Step::Work(100 * US),
        Step::Wait(Wait::For(501 * US)),
        Step::Work(95 * US),
        Step::Wait(Wait::For(102 * US)),
        Step::Work(95 * US),
    ];
    assert_eq!(steps(&recording, "a"), expected);
    let model = Model::of(&recording, GroupBy::Process);
    assert_eq!((model.wakeups.by_timers, model.wakeups.by_devices, model.wakeups.unknown), (1, 1, 0));
}

#[test]
fn children_begin_where_their_parents_fork_them() {
    let recording = Builder::new(2)
        .switch(0, 0, NO_TASK, Runnable, A)
        .add(100, 0, Kind::Fork, B, A, 0)
        .add(110, 0, Kind::WakeNew, B, A, 0)
        .switch(120, 1, NO_TASK, Runnable, B)
        .switch(150, 0, A, Interruptible, NO_TASK)
        .wake(190, 1, A, B, Context::Task)
        .switch(200, 1, B, Dead, NO_TASK)
        .switch(205, 0, NO_TASK, Runnable, A)
        .switch(300, 0, A, Dead, NO_TASK)
        .until(300);
    let model = Model::of(&recording, GroupBy::Process);
    let child = model.tasks.iter().position(|task| task.is_forked).expect("one was forked") as u32;
    assert_eq!(model.tasks[0].steps[..2], [Step::Work(110 * US), Step::Fork(child)]);
    assert_eq!(model.tasks[0].end, End::Ended);

    // With two copies of both there are twice as many turns, each with the work of one.
    let twin = Twin::new(&recording, GroupBy::Process);
    let mut situation = Situation::recorded(&recording).unwrap();
    let once = twin.run(&situation, 1).unwrap();
    for name in ["a", "b"] {
        situation.changes.insert(name.into(), Change { copies: Some(2), ..Change::default() });
    }
    let twice = twin.run(&situation, 1).unwrap();
    assert!(once.is_complete && twice.is_complete);
    assert_eq!(twice.total.run_ns, 2 * once.total.run_ns);
}

#[test]
fn a_task_that_computes_to_the_end_would_have_gone_on() {
    let recording = Builder::new(1).switch(0, 0, NO_TASK, Runnable, A).until(1_000);
    let twin = Twin::new(&recording, GroupBy::Process);
    assert_eq!(twin.model.tasks[0].end, End::GoesOn);
    let run = twin.run(&Situation::recorded(&recording).unwrap(), 1).unwrap();
    assert!(run.is_complete);
    assert_eq!(run.total.run_ns, 1_000 * US, "it is measured as long as it was recorded");
}

#[test]
fn measures_are_those_of_the_events() {
    let recording = Builder::new(2)
        .switch(0, 0, NO_TASK, Runnable, A)
        .switch(10, 1, NO_TASK, Runnable, B)
        .switch(100, 0, A, Runnable, NO_TASK)
        .switch(130, 1, B, Interruptible, A)
        .wake(200, 1, B, A, Context::Task)
        .switch(250, 0, NO_TASK, Runnable, B)
        .switch(300, 0, B, Dead, NO_TASK)
        .switch(400, 1, A, Dead, NO_TASK)
        .until(400);
    let measured = Twin::new(&recording, GroupBy::Process).recorded().unwrap();
    let (a, b, total) = (&measured.groups[0], &measured.groups[1], &measured.total);
    assert_eq!((a.run_ns, a.wait_ns, a.sleep_ns), (370 * US, 30 * US, 0));
    assert_eq!((b.run_ns, b.wait_ns, b.sleep_ns), (170 * US, 60 * US, 70 * US));
    assert_eq!((total.switches, total.preemptions, total.migrations.total()), (4, 1, 2));
    assert_eq!(total.waits_ns, [0, 10 * US, 30 * US, 50 * US]);
    assert_eq!(total.span_ns, 400 * US);
}

#[test]
fn a_real_time_task_with_another_policy_is_as_urgent_as_others() {
    let mut recording = Builder::new(1)
        .switch(0, 0, NO_TASK, Runnable, A)
        .switch(100, 0, A, Dead, B)
        .switch(200, 0, B, Dead, NO_TASK)
        .until(200);
    recording.about.tasks[A as usize].priority = Some(9);
    let twin = Twin::new(&recording, GroupBy::Process);
    let staged = |policy: Option<TaskPolicy>| {
        let mut situation = Situation::recorded(&recording).unwrap();
        situation.changes.insert("a".into(), Change { policy, ..Change::default() });
        let scenario = twin.stage(&situation).scenario;
        let mut of_a = scenario.workloads.into_iter().filter(|workload| workload.group == "a");
        let WorkloadKind::Processes(tasks) = of_a.next().unwrap().kind else { panic!("it is no VM") };
        (tasks[0].nice, tasks[0].policy)
    };
    assert_eq!(staged(None), (-20, TaskPolicy::Normal));
    assert_eq!(staged(Some(TaskPolicy::Batch)), (0, TaskPolicy::Batch));
}
