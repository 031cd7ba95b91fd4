//! Which part of a run a trace is of: a window of time, some VMs, some pCPUs.
//!
//! **Problem.** A second of a busy host has millions of events, and a question is about a few of them.
//!
//! **Approach.** What a user asks for is checked against the scenario before the run. While the run goes on, a
//! [`Filter`] follows which pCPU each vCPU has, so that it knows where the events of a guest's kernel happen: on the
//! pCPU below the vCPU.
//!
//! **Limits.** What a guest's kernel does about a vCPU that has no pCPU, such as putting a task into its queue from
//! outside, happens on no pCPU: a trace of some pCPUs leaves it out. A wake-up is in the trace if either end of it is.

use crate::scenario::cpu_list;
use serde::Serialize;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, KernelId, TaskId};
use tandem_sim::scenario::Scenario;
use tandem_sim::trace::{Event, EventKind};

/// What to trace, as a user says it; without anything the whole run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Selection {
    /// Nothing before this time, ns since the start of the run; the warm-up counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_ns: Option<u64>,
    /// Nothing from this time on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_ns: Option<u64>,
    /// Only these VMs, by their names or those of their groups; all if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vms: Vec<String>,
    /// Only these pCPUs, as a list of CPUs in a scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
}

impl Selection {
    /// Whether it leaves nothing out.
    pub fn is_all(&self) -> bool {
        self.from_ns.is_none() && self.to_ns.is_none() && self.vms.is_empty() && self.cpus.is_none()
    }

    /// Checks it against a scenario.
    ///
    /// # Errors
    /// A sentence, if it names no time of the run, or a VM or pCPU that is not there.
    pub(super) fn filter(&self, scenario: &Scenario) -> Result<Filter, String> {
        let (from_ns, to_ns) = (self.from_ns.unwrap_or(0), self.to_ns.unwrap_or(u64::MAX));
        let end_ns = scenario.warmup_ns.saturating_add(scenario.length_ns);
        if from_ns >= to_ns {
            return Err(format!(
                "the trace would end at {to_ns} ns, before it begins at {from_ns} ns; let it end later"
            ));
        }
        if let Some(to_ns) = self.to_ns.filter(|&to_ns| to_ns > end_ns) {
            return Err(format!(
                "the trace would end at {to_ns} ns, but the run ends at {end_ns} ns, its warm-up included; let it end \
                 earlier, or leave its end out"
            ));
        }
        if from_ns >= end_ns {
            return Err(format!(
                "the trace would begin at {from_ns} ns, but the run ends at {end_ns} ns, its warm-up included; let it \
                 begin earlier"
            ));
        }
        let workloads = &scenario.workloads;
        for name in &self.vms {
            if !workloads.iter().any(|vm| vm.name == *name || vm.group == *name) {
                let mut groups: Vec<&str> = workloads.iter().map(|vm| vm.group.as_str()).collect();
                groups.dedup();
                return Err(format!(
                    "there is no VM and no group `{name}` to trace; there are the groups {}",
                    groups.join(", ")
                ));
            }
        }
        let is_asked = |name: &str, group: &str| self.vms.iter().any(|it| it == name || it == group);
        let vms = workloads.iter().map(|vm| self.vms.is_empty() || is_asked(&vm.name, &vm.group)).collect();
        let cpus = self.cpus.as_ref().map(|list| cpu_list::parse(list, &scenario.machine)).transpose()?;
        let mut first_vcpus = Vec::new();
        let mut vm_of_vcpu = Vec::new();
        for (vm, workload) in workloads.iter().enumerate() {
            first_vcpus.push(vm_of_vcpu.len());
            vm_of_vcpu.extend((0..workload.task_count()).map(|_| vm));
        }
        let on = vec![None; vm_of_vcpu.len()];
        Ok(Filter { from_ns, to_ns, vms, cpus, first_vcpus, vm_of_vcpu, on })
    }
}

/// Says of each event whether it is in the trace; it must see all of them.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub from_ns: u64,
    pub to_ns: u64,
    /// By VM, whether it is traced.
    vms: Vec<bool>,
    /// The traced pCPUs; all if there are none.
    cpus: Option<CpuMask>,
    /// By VM, its first vCPU among all of them.
    first_vcpus: Vec<usize>,
    /// By vCPU.
    vm_of_vcpu: Vec<usize>,
    /// The pCPU of each vCPU, while it has one.
    on: Vec<Option<CpuId>>,
}

impl Filter {
    /// Whether the event is in the trace.
    pub fn shows(&mut self, event: Event) -> bool {
        let is_on_cpu = match event.kernel {
            KernelId::HOST => {
                let is_on_cpu = self.has_cpu(event.cpu) || event.by.is_some_and(|(cpu, _)| self.has_cpu(cpu));
                self.follow(event);
                is_on_cpu
            }
            guest => {
                self.is_below(guest, event.cpu) || event.by.is_some_and(|(cpu, _)| self.is_below(guest, cpu))
            }
        };
        let vm = match event.kernel {
            KernelId::HOST => self.vm_of_vcpu[event.task.index()],
            guest => guest.index() - 1,
        };
        is_on_cpu && self.vms[vm] && self.is_open(event.at_ns)
    }

    /// Whether the name that a task of a guest gets is in the trace. It belongs to no pCPU.
    pub fn shows_name(&self, at_ns: u64, kernel: KernelId) -> bool {
        kernel != KernelId::HOST && self.vms[kernel.index() - 1] && self.is_open(at_ns)
    }

    /// Whether the VM is traced, by its position.
    pub fn has_vm(&self, vm: usize) -> bool {
        self.vms[vm]
    }

    /// Whether the VM of a vCPU, which is a task of the host, is traced.
    pub fn has_vcpu(&self, vcpu: TaskId) -> bool {
        self.vms[self.vm_of_vcpu[vcpu.index()]]
    }

    /// Whether the pCPU is traced.
    pub fn has_cpu(&self, pcpu: CpuId) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(pcpu))
    }

    fn is_open(&self, at_ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&at_ns)
    }

    /// Whether what happens on a guest's CPU happens on a traced pCPU.
    fn is_below(&self, guest: KernelId, vcpu: CpuId) -> bool {
        let vcpu = self.first_vcpus[guest.index() - 1] + vcpu.index();
        self.cpus.is_none() || self.on[vcpu].is_some_and(|pcpu| self.has_cpu(pcpu))
    }

    /// Follows which pCPU a vCPU has.
    fn follow(&mut self, event: Event) {
        let on = &mut self.on[event.task.index()];
        match event.kind {
            EventKind::Start => *on = Some(event.cpu),
            EventKind::Wake | EventKind::Continue => {}
            EventKind::Preempt | EventKind::Yield | EventKind::Block | EventKind::Exit => *on = None,
        }
    }
}
