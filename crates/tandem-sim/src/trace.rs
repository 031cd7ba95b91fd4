//! Scheduling events, with which an observer follows a run.

use tandem_machine::ids::{CpuId, KernelId, TaskId};

/// Something that happened to a task on a CPU of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, ns since the start of the run.
    pub at_ns: u64,
    /// The kernel, to which the CPUs and tasks below belong.
    pub kernel: KernelId,
    /// The kind of event.
    pub kind: EventKind,
    /// The CPU that the task runs or ran on, or whose queue it was put in.
    pub cpu: CpuId,
    /// The task.
    pub task: TaskId,
    /// For [`EventKind::Wake`]: the CPU and, unless an interrupt did, the task that woke it; `None` if the
    /// wake-up came from outside.
    pub by: Option<(CpuId, Option<TaskId>)>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Became runnable.
    Wake = 1,
    /// Was put on the CPU.
    Start = 2,
    /// Was running at a decision, and goes on.
    Continue = 3,
    /// Lost the CPU although it could have gone on.
    Preempt = 4,
    /// Gave the CPU away.
    Yield = 5,
    /// Left the CPU to sleep or to wait.
    Block = 6,
    /// Ended.
    Exit = 7,
}

/// Follows a run. The unit type ignores all events, at no cost.
pub trait Observer {
    /// Called for each event, in the order of time.
    fn observe(&mut self, event: Event);

    /// Called before the first event of a task under this name: when it is new, and at its exec. A task's
    /// number may be used again after its [`EventKind::Exit`].
    fn named(&mut self, at_ns: u64, kernel: KernelId, task: TaskId, name: &str) {
        let _ = (at_ns, kernel, task, name);
    }

    /// Called whenever the clock has moved on, before what happens then; whether the run goes on. If not, it ends now,
    /// and its results are those of the time until then.
    #[inline]
    fn goes_on(&mut self, now_ns: u64) -> bool {
        let _ = now_ns;
        true
    }
}

impl Observer for () {
    #[inline]
    fn observe(&mut self, _: Event) {}
}

impl<O: Observer + ?Sized> Observer for &mut O {
    #[inline]
    fn observe(&mut self, event: Event) {
        O::observe(self, event);
    }

    #[inline]
    fn named(&mut self, at_ns: u64, kernel: KernelId, task: TaskId, name: &str) {
        O::named(self, at_ns, kernel, task, name);
    }

    #[inline]
    fn goes_on(&mut self, now_ns: u64) -> bool {
        O::goes_on(self, now_ns)
    }
}

impl<O: Observer> Observer for Option<O> {
    #[inline]
    fn observe(&mut self, event: Event) {
        self.iter_mut().for_each(|observer| observer.observe(event));
    }

    #[inline]
    fn named(&mut self, at_ns: u64, kernel: KernelId, task: TaskId, name: &str) {
        self.iter_mut().for_each(|observer| observer.named(at_ns, kernel, task, name));
    }

    #[inline]
    fn goes_on(&mut self, now_ns: u64) -> bool {
        self.as_mut().is_none_or(|observer| observer.goes_on(now_ns))
    }
}

impl Observer for Vec<Event> {
    fn observe(&mut self, event: Event) {
        self.push(event);
    }
}

/// Hash over all events of a run: equal runs have equal hashes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TraceHash(u64);

impl TraceHash {
    #[inline]
    pub fn add(&mut self, event: Event) {
        let place = u64::from(event.kernel.0) << 52 ^ u64::from(event.cpu.0) << 40;
        let who = place ^ u64::from(event.task.0) << 8 ^ event.kind as u64;
        // A multiplication by an odd number after each word; the rotation carries high bits back down.
        let mixed = (self.0 ^ event.at_ns).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        self.0 = (mixed ^ who).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31);
    }

    pub fn value(self) -> u64 {
        self.0
    }
}
