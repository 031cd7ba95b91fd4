//! Cache coherence: what it costs tasks to write and read the same cache lines.
//!
//! Problem: a line that one core has written is in no other core's cache. Who wants it next fetches it from there, and
//! that takes the longer, the farther away it is.
//!
//! Approach: a line travels as fast as [`Machine::line_transfer_ns`] says: from the last-level cache that the two CPUs
//! share, or else like a load from memory at the same distance. Between the threads of a core it need not travel.
//! - *Messages*. Who takes a message fetches the lines that its sender wrote; who sends or takes one fetches the lines
//!   of the queue from who used the queue last. Each line is waited for.
//! - *Shared data*. Tasks of a VM access lines of a data set, in an order that does not matter, and write some of them.
//!   A line that was fetched into a last-level cache stays valid there until a task on another one writes it. If the
//!   tasks on the cache access a line at the rate `a`, and those on others write it at the rate `w`, both at random
//!   moments, then an access finds the line valid if no such write has come since the access before: with the chance
//!   `a / (a + w)`. How many lines the accesses spread over cancels out.
//!
//! Limits: what a message's sender pays for writing its lines is in its program. Lines of messages and of shared data
//! take no room in the caches, and shared data always fits: capacity is left to [`super::Cache`] and [`super::Memory`].
//! All lines of a data set are equally popular. Links between sockets have no bandwidth, and there is no snoop filter
//! or directory to run out of.

use tandem_machine::Machine;
use tandem_machine::ids::CpuId;

/// Cost of sharing cache lines. All of its numbers are the machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coherence;

impl Coherence {
    /// Time that CPU `to` waits for so many lines, one after the other, that CPU `from` has used last, ns.
    #[inline]
    pub fn fetch_ns(machine: &Machine, from: CpuId, to: CpuId, lines: u32) -> u64 {
        if machine.cpu(from).core == machine.cpu(to).core {
            return 0;
        }
        u64::from(lines) * machine.line_transfer_ns(from, to)
    }

    /// Chance that a line of shared data is valid in a last-level cache, whose tasks access the data at one rate while
    /// those on other caches write it at the other rate.
    pub fn hit_chance(accesses: f64, writes_elsewhere: f64) -> f64 {
        if writes_elsewhere == 0.0 { 1.0 } else { accesses / (accesses + writes_elsewhere) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_machine::MachineBuilder;

    #[test]
    fn lines_take_longer_from_farther_away() {
        let machine = MachineBuilder::symmetric(2, 2, 2).build().unwrap();
        let hardware = machine.hardware();
        let fetch_ns = |to| Coherence::fetch_ns(&machine, CpuId(0), CpuId(to), 3);
        let others = |is_there: fn(&Machine, CpuId) -> bool| -> Vec<u64> {
            let cpus = (1..8).map(CpuId).filter(|&cpu| is_there(&machine, cpu));
            cpus.map(|cpu| fetch_ns(cpu.0)).collect()
        };
        assert_eq!(others(|machine, cpu| machine.siblings(CpuId(0)).contains(cpu)), [0]);
        let near = others(|machine, cpu| {
            machine.llc_cpus(CpuId(0)).contains(cpu) && !machine.siblings(CpuId(0)).contains(cpu)
        });
        assert_eq!(near, [3 * u64::from(hardware.llc_latency_ns); 2]);
        let far = others(|machine, cpu| !machine.llc_cpus(CpuId(0)).contains(cpu));
        assert_eq!(far, [3 * u64::from(hardware.remote_memory_latency_ns); 4]);
    }

    #[test]
    fn writes_elsewhere_invalidate() {
        assert_eq!(Coherence::hit_chance(3.0, 0.0), 1.0, "nobody else writes");
        assert_eq!(Coherence::hit_chance(0.0, 0.0), 1.0, "nobody has used it yet");
        assert_eq!(Coherence::hit_chance(0.0, 2.0), 0.0, "a task that has just come here");
        assert_eq!(
            Coherence::hit_chance(1.0, 0.2),
            1.0 / 1.2,
            "as many accesses elsewhere, a fifth of them writes"
        );
    }
}
