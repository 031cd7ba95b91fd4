//! Who woke a task: another one, a timer, a device, or nobody that is known.
//!
//! The kernel says on which CPU a wake-up happened, what ran there, and whether it was interrupted. If it was,
//! the interrupt that began last on that CPU is the cause. Softirqs run in two ways: after a device's
//! interrupt, or because the task that runs has asked for it, as one that sends to a socket of the same
//! machine does: then the wake-up is that task's.

use tandem_recording::{About, Context, Event, NO_TASK, Source};

/// Longest time from the start of an interrupt's handler to a wake-up by it, ns: far above what handlers take,
/// far below the time between two interrupts of a kind. An assumption.
const HANDLER_MAX_NS: u64 = 100_000;
/// The same for softirqs, of which the kernel runs up to ten rounds or 2 ms (`MAX_SOFTIRQ_TIME`) at a time.
const SOFTIRQ_MAX_NS: u64 = 2_000_000;

/// Numbers of softirqs (`include/linux/interrupt.h`).
mod softirq {
    pub const TIMER: u32 = 1;
    pub const NET_TX: u32 = 2;
    pub const NET_RX: u32 = 3;
    pub const HRTIMER: u32 = 8;
    pub const RCU: u32 = 9;
}

/// What caused a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A task, by position in the recording.
    Task(u32),
    /// A timer, by position among the recorded names of their functions.
    Timer(u32),
    /// The answer of a device to a request.
    Device,
    /// Something from outside that nobody asked for: a packet.
    Outside,
    /// Not known.
    Unknown,
}

/// What has interrupted a CPU last.
#[derive(Clone, Copy, Default)]
struct Last {
    any: Option<(u64, Source)>,
    device_ns: Option<u64>,
    softirq: Option<(u64, u32)>,
    timer: Option<(u64, u32)>,
    /// The last device interrupt before the last softirq.
    device_before_softirq_ns: Option<u64>,
}

/// Follows the interrupts of all CPUs.
pub(super) struct Wakers {
    last: Vec<Last>,
}

impl Wakers {
    pub fn new(about: &About) -> Self {
        Self { last: vec![Last::default(); about.cpus as usize] }
    }

    /// A CPU is interrupted.
    pub fn interrupted(&mut self, event: &Event) {
        let Some(last) = self.last.get_mut(event.cpu as usize) else { return };
        let source = event.source();
        last.any = Some((event.at_ns, source));
        match source {
            Source::Device(_) => last.device_ns = Some(event.at_ns),
            Source::Softirq(number) => {
                last.softirq = Some((event.at_ns, number));
                last.device_before_softirq_ns = last.device_ns;
            }
            Source::HrTimer(timer) | Source::Timer(timer) => last.timer = Some((event.at_ns, timer)),
        }
    }

    /// The cause of a wake-up.
    pub fn cause(&self, wake: &Event) -> Cause {
        let last = self.last.get(wake.cpu as usize).copied().unwrap_or_default();
        let recent = |at_ns: u64, max_ns: u64| wake.at_ns - at_ns.min(wake.at_ns) <= max_ns;
        match wake.context() {
            Context::Task if wake.other != NO_TASK => Cause::Task(wake.other),
            Context::Task => Cause::Unknown,
            Context::Interrupt => match last.any {
                Some((at_ns, source)) if recent(at_ns, HANDLER_MAX_NS) => match source {
                    Source::HrTimer(timer) | Source::Timer(timer) => Cause::Timer(timer),
                    Source::Device(_) => Cause::Device,
                    Source::Softirq(_) => Cause::Unknown,
                },
                _ => Cause::Unknown,
            },
            Context::SoftInterrupt => {
                let Some((began_ns, number)) =
                    last.softirq.filter(|(at_ns, _)| recent(*at_ns, SOFTIRQ_MAX_NS))
                else {
                    return by_current(wake);
                };
                let after_device = last
                    .device_before_softirq_ns
                    .is_some_and(|device_ns| began_ns - device_ns <= HANDLER_MAX_NS);
                match number {
                    softirq::TIMER | softirq::HRTIMER => match last.timer {
                        Some((at_ns, timer)) if at_ns >= began_ns => Cause::Timer(timer),
                        _ => Cause::Unknown,
                    },
                    softirq::NET_TX | softirq::NET_RX if after_device => Cause::Outside,
                    softirq::NET_TX | softirq::NET_RX => by_current(wake),
                    softirq::RCU => Cause::Unknown,
                    _ => Cause::Device,
                }
            }
        }
    }
}

/// The task that runs has asked for what woke the other.
fn by_current(wake: &Event) -> Cause {
    match wake.other {
        NO_TASK => Cause::Outside,
        task => Cause::Task(task),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_recording::Kind;

    fn event(at_ns: u64, kind: Kind, other: u32, detail: u32) -> Event {
        Event { at_ns, cpu: 0, kind, task: 7, other, detail }
    }

    fn cause_after(interrupts: &[(u64, Source)], wake: Event) -> Cause {
        let mut wakers = Wakers::new(&About { cpus: 1, ..About::default() });
        for (at_ns, source) in interrupts {
            wakers.interrupted(&event(*at_ns, Kind::Interrupt, NO_TASK, source.detail()));
        }
        wakers.cause(&wake)
    }

    #[test]
    fn what_interrupts_the_cpu_wakes() {
        let wake = |context: Context, other| event(1_000, Kind::Wake, other, context as u32);
        let timer = Source::HrTimer(2);
        assert_eq!(cause_after(&[(900, timer)], wake(Context::Interrupt, 3)), Cause::Timer(2));
        assert_eq!(cause_after(&[(900, timer)], wake(Context::Task, 3)), Cause::Task(3));
        assert_eq!(cause_after(&[(900, Source::Device(30))], wake(Context::Interrupt, 3)), Cause::Device);
        assert_eq!(cause_after(&[], wake(Context::Interrupt, 3)), Cause::Unknown);
    }

    #[test]
    fn a_packet_of_the_same_machine_is_from_the_task_that_runs() {
        let wake = |other| event(1_000, Kind::Wake, other, Context::SoftInterrupt as u32);
        let packet = Source::Softirq(softirq::NET_RX);
        assert_eq!(cause_after(&[(900, packet)], wake(3)), Cause::Task(3));
        assert_eq!(cause_after(&[(800, Source::Device(30)), (900, packet)], wake(3)), Cause::Outside);
        assert_eq!(cause_after(&[(900, packet)], wake(NO_TASK)), Cause::Outside);
    }
}
