//! Interrupts of sources: from their arrival at a pCPU to the task that gets a token.
//!
//! An interrupt comes in at the pCPU where the task is, or was, that will take it. The host's kernel passes
//! it on to the guest kernel of the VM, if it has one.

use super::REQUESTS_MAX;
use super::agenda::{Agenda, Item};
use super::source::SourceState;
use super::vm::VmState;
use crate::kernel::{CpuRef, System, TimerTarget, Waker};
use crate::program::channel::{Request, Token};
use crate::scenario::Scenario;
use crate::trace::Observer;
use tandem_machine::ids::{CpuId, VmId};

/// The sources of all VMs, by number over all of them.
pub(super) struct Interrupts(Vec<SourceState>);

impl Interrupts {
    /// Each source starts with its VM.
    pub fn new(scenario: &Scenario, vms: &[VmState], seed: u64) -> Self {
        let mut sources = Vec::new();
        for (vm, spec) in scenario.workloads.iter().enumerate() {
            for source in &spec.sources {
                sources.push(SourceState::new(vm.into(), source, seed, sources.len(), vms[vm].life.start_ns));
            }
        }
        Self(sources)
    }

    /// How many sources there are.
    pub fn sources(&self) -> usize {
        self.0.len()
    }

    /// When the next interrupt of the source comes, ns.
    pub fn next_ns(&self, source: usize) -> u64 {
        self.0[source].next_ns()
    }

    /// A request of this source was answered.
    pub fn answer(&mut self, source: usize, agenda: &mut Agenda, now_ns: u64) {
        self.0[source].answered(now_ns);
        agenda.set(Item::Interrupt(source), self.0[source].next_ns());
    }

    /// No more come from the sources of the VM.
    pub fn stop(&mut self, vm: VmId, agenda: &mut Agenda) {
        for (number, source) in self.0.iter_mut().enumerate().filter(|(_, source)| source.vm == vm) {
            source.stop();
            agenda.set(Item::Interrupt(number), source.next_ns());
        }
    }

    /// An interrupt arrives at the pCPU where the vCPU is, or was, that will take it. Returns the VM if more of its
    /// requests wait than may.
    pub fn arrive<O: Observer>(
        &mut self,
        source: usize,
        system: &mut System<O>,
        vms: &[VmState],
        now_ns: u64,
    ) -> Option<VmId> {
        let cpu = self.taker(source, system, vms);
        let pcpu = match cpu.is_host() {
            true => cpu.cpu,
            false => system.kernels.host()[system.kernels.vcpu_task(cpu)].last_cpu,
        };
        system.arm(CpuRef::host(pcpu), now_ns, TimerTarget::Source(source as u32));
        system.processors.refresh(&system.kernels, pcpu);
        self.0[source].arrived(now_ns);
        let SourceState { vm, channel, .. } = self.0[source];
        // On their way to the host's kernel, to the guest's, and in the channel.
        let on_host = system.kernels.host()[pcpu].timers.len();
        let in_guest = if cpu.is_host() { 0 } else { system.kernels[cpu].timers.len() };
        let waiting = on_host + in_guest + vms[vm.index()].channels[channel].len();
        (waiting >= REQUESTS_MAX).then_some(vm)
    }

    /// A CPU of the kernel that the source's VM belongs to takes the interrupt; or a CPU of the host does,
    /// which passes it on to the VM's guest kernel.
    pub fn handle<O: Observer>(
        &self,
        source: u32,
        system: &mut System<O>,
        vms: &mut [VmState],
        on: CpuRef,
        arrived_ns: u64,
        now_ns: u64,
    ) {
        let SourceState { vm, channel, .. } = self.0[source as usize];
        let kernel = vms[vm.index()].kernel;
        if kernel != on.kernel {
            let vcpu = self.taker(source as usize, system, vms);
            system.arm(vcpu, arrived_ns, TimerTarget::Source(source));
            match system.kernels[vcpu].pcpu {
                Some(pcpu) => system.processors.refresh(&system.kernels, pcpu),
                None => system.wake_vcpu(vcpu, now_ns, Some(on.cpu), Waker::Interrupt),
            }
            return;
        }
        let token = Token::Request(Request { arrived_ns, source });
        if let Some(task) = vms[vm.index()].channels[channel].put(token) {
            system.kernels[kernel][task].run.receive(token);
            system.wake(task, now_ns, on, Waker::Interrupt);
        }
    }

    /// The CPU of its VM's kernel at which an interrupt of the source comes in: where the task is, or was,
    /// that will take it.
    fn taker<O>(&self, source: usize, system: &System<O>, vms: &[VmState]) -> CpuRef {
        let SourceState { vm, channel, .. } = self.0[source];
        let state = &vms[vm.index()];
        let taker = state.channels[channel].likely_taker();
        let tasks = system.kernels[state.kernel].tasks().all();
        // A guest may have no task at all.
        let cpu = tasks.get(taker.index()).map_or(CpuId(0), |task| task.last_cpu);
        CpuRef { kernel: state.kernel, cpu }
    }
}
