//! When the engine's own events come, which belong to no processor.
//!
//! What comes next of each kind is the business of the part of the engine that it belongs to; the agenda
//! holds the times.

use super::event_queue::EventQueue;

/// A kind of events, of which one is on the agenda at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// The timer of the host's policy.
    PolicyTimer,
    /// A sample of the memory system and of shared data.
    MemorySample,
    /// End of the warm-up, then end of the run.
    Phase,
    /// An administrator changes the affinity of a VM.
    AffinityChange,
    /// Something else happens to the host.
    HostEvent,
    /// The watchdog of compiled schedulers checks the tasks.
    Watchdog,
    /// VMs come or go.
    VmChange,
    /// The agent that chooses homes scans the host.
    HomeScan,
    /// The next task starts.
    Start,
    /// An interrupt of the source with this number arrives.
    Interrupt(usize),
}

/// All but the interrupts, in the order in which they come at one instant. Those of sources follow.
const ITEMS: [Item; 9] = [
    Item::PolicyTimer,
    Item::MemorySample,
    Item::Phase,
    Item::AffinityChange,
    Item::HostEvent,
    Item::Watchdog,
    Item::VmChange,
    Item::HomeScan,
    Item::Start,
];

/// The engine's own events to come.
pub(super) struct Agenda(EventQueue);

impl Agenda {
    /// An empty one, with so many sources of interrupts.
    pub fn new(sources: usize) -> Self {
        Self(EventQueue::new(ITEMS.len() + sources))
    }

    /// When the next event comes, ns; [`NEVER`](super::event_queue::NEVER) if there is none.
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.0.peek().0
    }

    /// The kind of the next event.
    pub fn next_item(&self) -> Item {
        let number = self.0.peek().1;
        ITEMS.get(number).copied().unwrap_or_else(|| Item::Interrupt(number - ITEMS.len()))
    }

    /// Sets the time of the kind's next event; [`NEVER`](super::event_queue::NEVER) if there is none.
    pub fn set(&mut self, item: Item, at_ns: u64) {
        let number = match item {
            Item::Interrupt(source) => ITEMS.len() + source,
            _ => ITEMS.iter().position(|&listed| listed == item).expect("all other kinds are listed"),
        };
        self.0.set(number, at_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_an_order_at_one_instant() {
        let mut agenda = Agenda::new(2);
        let all = [ITEMS.as_slice(), &[Item::Interrupt(0), Item::Interrupt(1)]].concat();
        all.iter().rev().for_each(|&item| agenda.set(item, 7));
        for &item in &all {
            assert_eq!((agenda.next_ns(), agenda.next_item()), (7, item));
            agenda.set(item, 8);
        }
        agenda.set(Item::Interrupt(1), 3);
        assert_eq!((agenda.next_ns(), agenda.next_item()), (3, Item::Interrupt(1)));
    }
}
