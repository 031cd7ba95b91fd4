//! A source of interrupts: when the next one comes.

use super::random::{Entity, Stream};
use super::timetable::Timetable;
use crate::program::Amount;
use crate::scenario::{Arrivals, Source};
use tandem_machine::ids::VmId;

/// A source while it runs.
#[derive(Clone, Debug)]
pub(super) struct SourceState {
    pub vm: VmId,
    pub channel: usize,
    arrivals: Arrivals,
    random: Stream,
    /// When requests come that are decided already.
    coming: Timetable<()>,
}

impl SourceState {
    /// Source number `index` over all VMs, from the start of its VM.
    pub fn new(vm: VmId, source: &Source, seed: u64, index: usize, start_ns: u64) -> Self {
        let mut random = Stream::new(seed, Entity::Source, index as u64);
        let (first, time) = match source.arrivals {
            Arrivals::Open { interval } => (1, interval),
            Arrivals::Closed { clients, think } => (clients, think),
        };
        let coming = (0..first).map(|_| (start_ns + random.draw(time), ())).collect();
        Self { vm, channel: source.channel, arrivals: source.arrivals, random, coming }
    }

    /// When the next interrupt comes; [`NEVER`](super::event_queue::NEVER) while all clients wait for
    /// answers.
    pub fn next_ns(&self) -> u64 {
        self.coming.next_ns()
    }

    /// No more of them come.
    pub fn stop(&mut self) {
        self.arrivals = Arrivals::Closed { clients: 0, think: Amount::Fixed(0) };
        self.coming.clear();
    }

    /// Takes note that the next interrupt has come.
    pub fn arrived(&mut self, now_ns: u64) {
        self.coming.pop_due(now_ns);
        if let Arrivals::Open { interval } = self.arrivals {
            let next_ns = now_ns + self.random.draw(interval).max(1);
            self.coming.add(next_ns, ());
        }
    }

    /// A request of this source was answered; its client, if it has one, goes on to think.
    pub fn answered(&mut self, now_ns: u64) {
        if let Arrivals::Closed { think, .. } = self.arrivals {
            let next_ns = now_ns + self.random.draw(think);
            self.coming.add(next_ns, ());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::event_queue::NEVER;
    use super::*;

    #[test]
    fn clients_wait_for_their_answers() {
        let think = Amount::Fixed(10);
        let source = Source { channel: 0, arrivals: Arrivals::Closed { clients: 2, think } };
        let mut state = SourceState::new(VmId(0), &source, 1, 0, 0);
        state.arrived(10);
        assert_eq!(state.next_ns(), 10, "the second client");
        state.arrived(10);
        assert_eq!(state.next_ns(), NEVER, "both wait");
        state.answered(35);
        assert_eq!(state.next_ns(), 45);
    }

    #[test]
    fn an_open_source_goes_on_by_itself() {
        let source = Source { channel: 0, arrivals: Arrivals::Open { interval: Amount::Fixed(7) } };
        let mut state = SourceState::new(VmId(0), &source, 1, 0, 0);
        assert_eq!(state.next_ns(), 7);
        state.arrived(7);
        state.answered(8);
        assert_eq!(state.next_ns(), 14);
        state.stop();
        assert_eq!(state.next_ns(), NEVER);
        state.arrived(14);
        assert_eq!(state.next_ns(), NEVER, "what was on its way when it stopped brings no more");
    }

    #[test]
    fn a_source_waits_for_its_vm() {
        let source = Source { channel: 0, arrivals: Arrivals::Open { interval: Amount::Fixed(7) } };
        assert_eq!(SourceState::new(VmId(0), &source, 1, 0, 100).next_ns(), 107);
    }
}
