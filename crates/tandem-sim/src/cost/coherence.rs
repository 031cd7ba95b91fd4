//! Cache coherence: the cost of writing and reading the same cache lines from several tasks.
//!
//! Problem: a line that one core has written is in no other core's cache. The next core that needs it fetches
//! it from there, which takes longer the farther away it is.
//!
//! Approach: [`Machine::line_transfer_ns`] gives the time that a line travels: that of the last-level cache
//! that the two CPUs share, or else that of a load from memory at the same distance. Between the threads of a
//! core it need not travel.
//! - *Messages*. A task that takes a message fetches the lines that the sender wrote; a task that sends or
//!   takes one fetches the lines of the queue from the core that used the queue last. It waits for each line.
//! - *Shared data*. Tasks of a VM access lines of a data set, in an order that does not matter, and write
//!   some of them. A line that was fetched into a last-level cache stays valid there until a task on another
//!   one writes it. If the tasks on the cache access a line at the rate `a`, and those on others write it at
//!   the rate `w`, both at random moments, then an access finds the line valid if no such write has come
//!   since the access before: with the chance `a / (a + w)`. How many lines the accesses spread over cancels
//!   out.
//!
//! Limits: a sender's program contains the cost of writing the lines of a message. Lines of messages and of
//! shared data take no room in the caches, and shared data always fits: capacity is left to [`super::Cache`]
//! and [`super::Memory`]. All lines of a data set are equally popular. Links between sockets have no
//! bandwidth, and snoop filters and directories have no limit.

use tandem_machine::Machine;
use tandem_machine::ids::CpuId;

/// Cost of sharing cache lines. All of its numbers are the machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coherence;

impl Coherence {
    /// Time that CPU `to` waits for this many lines, one after the other, that CPU `from` used last, ns.
    #[inline]
    pub fn fetch_ns(machine: &Machine, from: CpuId, to: CpuId, lines: u32) -> u64 {
        if machine.cpu(from).core == machine.cpu(to).core {
            return 0;
        }
        u64::from(lines) * machine.line_transfer_ns(from, to)
    }

    /// Chance that a line of shared data is valid in a last-level cache, whose tasks access the data at one
    /// rate while those on other caches write it at the other rate.
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
