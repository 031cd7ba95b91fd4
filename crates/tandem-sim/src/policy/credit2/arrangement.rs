//! Which CPUs share a run queue.
//!
//! CPUs join in the order of their numbers (`cpu_add_to_runqueue()`, before 4.14 `cpu_to_runqueue()`): each
//! the queue of its part of the machine, or a new one. Since 4.14 a queue takes only so many CPUs, and of
//! several that have room, the one with the fewest gets the next; but threads of a core stay together.

use super::settings::{Credit2Settings, Release, Sharing};
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;

/// The CPUs of each run queue, in the order in which Xen lists the queues.
pub(super) fn arrange(settings: &Credit2Settings, machine: &Machine) -> Vec<CpuMask> {
    let cpus = machine.cpu_count();
    let most = settings.queue_cpus_max.max(1) as usize;
    let room = cpus / ((cpus - 1) / most + 1);
    let mut queues: Vec<CpuMask> = Vec::new();
    for cpu in (0..cpus).map(CpuId::from) {
        let fits =
            |queue: &CpuMask| queue.iter().next().is_some_and(|peer| shares(settings, machine, peer, cpu));
        let found = if settings.release < Release::Xen4_14 {
            queues.iter().position(fits)
        } else {
            let matching = || queues.iter().enumerate().filter(|(_, queue)| fits(queue));
            let of_its_core = matching().find(|(_, queue)| queue.intersects(machine.siblings(cpu)));
            let with_room = || {
                matching().filter(|(_, queue)| {
                    queue.count() < room
                        && (core_fits(machine, queue, cpu, room)
                            || (settings.sharing == Sharing::All && settings.release >= Release::Xen4_17))
                })
            };
            of_its_core.or_else(|| with_room().min_by_key(|(_, queue)| queue.count())).map(|(at, _)| at)
        };
        match found {
            Some(at) => queues[at].insert(cpu),
            None => queues.push(CpuMask::from_cpus(cpus, [cpu])),
        }
    }
    queues
}

/// Whether the CPUs belong to the same part of the machine (`cpu_runqueue_match()`).
fn shares(settings: &Credit2Settings, machine: &Machine, a: CpuId, b: CpuId) -> bool {
    let (a_cpu, b_cpu) = (machine.cpu(a), machine.cpu(b));
    match settings.sharing {
        Sharing::Cpu => false,
        Sharing::Core => machine.siblings(a).contains(b),
        Sharing::Socket => a_cpu.package == b_cpu.package,
        Sharing::Node => a_cpu.node == b_cpu.node,
        Sharing::All => true,
    }
}

/// Whether the queue has room for all threads of the CPU's core beside those of the cores that it has
/// (`cpu_runqueue_siblings_match()`).
fn core_fits(machine: &Machine, queue: &CpuMask, cpu: CpuId, room: usize) -> bool {
    let firsts = queue.iter().filter(|&peer| machine.siblings(peer).iter_and(queue).next() == Some(peer));
    let threads: usize = firsts.map(|peer| machine.siblings(peer).count()).sum();
    threads + machine.siblings(cpu).count() <= room
}
