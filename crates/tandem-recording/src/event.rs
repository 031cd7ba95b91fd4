//! Events of a recording.

/// Stands for the idle task, and for a task that does not exist: an interrupt that woke somebody while its
/// CPU was idle.
pub const NO_TASK: u32 = u32::MAX;

/// Something that happened on a CPU.
///
/// One shape for all kinds, so that millions of them are a few columns; [`Kind`] says what the fields mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, ns since the start of the recording.
    pub at_ns: u64,
    /// The kernel's number of the CPU where it happened.
    pub cpu: u32,
    /// What happened.
    pub kind: Kind,
    /// The task that it happened to, by position in [`About::tasks`](crate::About::tasks), or [`NO_TASK`].
    pub task: u32,
    /// Another task that took part, or [`NO_TASK`].
    pub other: u32,
    /// A number whose meaning depends on the kind.
    pub detail: u32,
}

/// The kinds of events, and what their fields mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The CPU changes from `task` to `other`, either of which may be the idle task. `detail`: in which
    /// [`TaskState`] the task leaves.
    Switch,
    /// `task`, which had blocked, becomes runnable. `other`: what ran on the CPU at that time, which is the
    /// waker if `detail` says [`Context::Task`].
    Wake,
    /// `task` becomes runnable for the first time; `other` has forked it.
    WakeNew,
    /// `other` forks `task`.
    Fork,
    /// `task` begins to execute another program.
    Exec,
    /// `task` begins to end; it still runs for a while.
    Exit,
    /// The CPU handles an interrupt or a timer. `detail`: the [`Source`], with its number.
    Interrupt,
    /// `task`, a vCPU, leaves its guest. `detail`: the exit reason, as the processor numbers it.
    GuestExit,
    /// `task`, a vCPU, enters its guest.
    GuestEnter,
    /// `task`, a vCPU whose guest has halted, has polled for a reason to go on. `detail`: how long, us.
    HaltPoll,
}

/// Kinds, with the names that they have in files.
pub const KINDS: [(Kind, &str); 10] = [
    (Kind::Switch, "switch"),
    (Kind::Wake, "wake"),
    (Kind::WakeNew, "wake-new"),
    (Kind::Fork, "fork"),
    (Kind::Exec, "exec"),
    (Kind::Exit, "exit"),
    (Kind::Interrupt, "interrupt"),
    (Kind::GuestExit, "guest-exit"),
    (Kind::GuestEnter, "guest-enter"),
    (Kind::HaltPoll, "halt-poll"),
];

/// In which state a task leaves its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TaskState {
    /// It could have gone on: another task was put in its place.
    Runnable = 0,
    /// It waits and signals can end that, as for input, a child, or a time.
    Interruptible = 1,
    /// It waits and nothing but the event can end that, as for a disk or a lock of the kernel.
    Uninterruptible = 2,
    /// A signal or a debugger has stopped it.
    Stopped = 3,
    /// It has ended.
    Dead = 4,
}

/// Where the code ran that woke a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Context {
    /// In the task that ran, on its own behalf.
    Task = 0,
    /// In a softirq.
    SoftInterrupt = 1,
    /// In an interrupt.
    Interrupt = 2,
}

/// What interrupts a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A device, by the number of its interrupt.
    Device(u32),
    /// A softirq, by its number.
    Softirq(u32),
    /// A high-resolution timer, by position in [`About::timers`](crate::About::timers).
    HrTimer(u32),
    /// A timer of the wheel, by position in the same.
    Timer(u32),
}

/// Bits of a source's number; its kind is above.
const SOURCE_BITS: u32 = 28;

impl Event {
    /// The state in which the task of a switch leaves. Any unknown state is one in which it waits.
    pub fn state(&self) -> TaskState {
        match self.detail {
            0 => TaskState::Runnable,
            2 => TaskState::Uninterruptible,
            3 => TaskState::Stopped,
            4 => TaskState::Dead,
            _ => TaskState::Interruptible,
        }
    }

    /// Where the code of a wake-up ran.
    pub fn context(&self) -> Context {
        match self.detail {
            0 => Context::Task,
            1 => Context::SoftInterrupt,
            _ => Context::Interrupt,
        }
    }

    /// What interrupts the CPU.
    pub fn source(&self) -> Source {
        let number = self.detail & ((1 << SOURCE_BITS) - 1);
        match self.detail >> SOURCE_BITS {
            0 => Source::Device(number),
            1 => Source::Softirq(number),
            2 => Source::HrTimer(number),
            _ => Source::Timer(number),
        }
    }
}

impl Source {
    /// What an [`Event`] has as its detail.
    pub fn detail(self) -> u32 {
        let (kind, number) = match self {
            Self::Device(number) => (0, number),
            Self::Softirq(number) => (1, number),
            Self::HrTimer(number) => (2, number),
            Self::Timer(number) => (3, number),
        };
        kind << SOURCE_BITS | number & ((1 << SOURCE_BITS) - 1)
    }
}

impl Kind {
    /// The name that it has in files.
    pub fn name(self) -> &'static str {
        KINDS[self as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_in_the_order_of_their_numbers() {
        for (at, (kind, _)) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, at);
        }
    }

    #[test]
    fn sources_come_back_from_their_detail() {
        for source in
            [Source::Device(0), Source::Softirq(9), Source::HrTimer(3), Source::Timer((1 << 28) - 1)]
        {
            let detail = source.detail();
            let event = Event { at_ns: 0, cpu: 0, kind: Kind::Interrupt, task: 0, other: 0, detail };
            assert_eq!(event.source(), source);
        }
    }
}
