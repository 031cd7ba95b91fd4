//! Kicks of pCPUs, which make them decide anew.

use super::{Kernels, Processors};
use crate::cost::IdleEnd;
use tandem_machine::ids::CpuId;

/// Sends kicks, and keeps those that cannot be sent yet: the host's code on their sender waits for a lock of
/// a run queue.
#[derive(Clone, Debug)]
pub(super) struct Kicks {
    /// By sender.
    late: Vec<Vec<CpuId>>,
}

impl Kicks {
    pub fn new(pcpus: usize) -> Self {
        Self { late: vec![Vec::new(); pcpus] }
    }

    /// Kicks a pCPU from another, by an interrupt, or from itself, at once.
    pub fn send(
        &mut self,
        kernels: &mut Kernels,
        processors: &mut Processors,
        pcpu: CpuId,
        by: CpuId,
        now_ns: u64,
    ) {
        let end = if pcpu == by { IdleEnd::OwnKick } else { IdleEnd::Kick };
        let mut arrives_ns = now_ns + processors.hardware.idle_exit_ns(pcpu, &kernels.host()[pcpu], end);
        if pcpu != by {
            if processors[by].waits_for_lock {
                return self.late[by.index()].push(pcpu);
            }
            let sent_ns = processors[by].settled_ns.max(now_ns);
            arrives_ns += sent_ns - now_ns + processors.hardware.ipi_ns();
        }
        let cpu = &mut kernels.host_mut()[pcpu];
        cpu.resched_ns = cpu.resched_ns.min(arrives_ns);
        processors.refresh(kernels, pcpu);
    }

    /// The processor gives back a lock that it has held openly; the line moves up, and its first sends its
    /// late kicks.
    pub fn unlock_queue(
        &mut self,
        kernels: &mut Kernels,
        processors: &mut Processors,
        pcpu: CpuId,
        queue: CpuId,
        now_ns: u64,
    ) {
        processors.give_back(pcpu, queue, now_ns);
        while let Some(next) = processors.move_line_up(kernels, queue) {
            if !processors[next].waits_for_lock {
                let mut kicks = std::mem::take(&mut self.late[next.index()]);
                for kicked in kicks.drain(..) {
                    self.send(kernels, processors, kicked, next, now_ns);
                }
                self.late[next.index()] = kicks;
            }
            processors.refresh(kernels, next);
        }
    }
}
