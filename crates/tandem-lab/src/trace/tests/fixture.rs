//! A host with two pCPUs, a VM without a guest kernel and one with a guest kernel, and events of both levels.

use crate::scenario::ScenarioSource;
use std::path::Path;
use std::sync::Arc;
use tandem_machine::MachineBuilder;
use tandem_machine::ids::{CpuId, KernelId, TaskId};
use tandem_sim::cost::CostModels;
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::policy::linux::LinuxSettings;
use tandem_sim::program::Program;
use tandem_sim::scenario::{Affinity, Guest, HostTask, PolicySettings, Scenario, Workload, WorkloadKind};
use tandem_sim::trace::{Event, EventKind, Observer};

use EventKind::{Block, Continue, Exit, Preempt, Start, Wake};

/// End of the run that [`play`] plays, ns.
pub const END_NS: u64 = 1000;
/// The kernel of the second VM.
pub const GUEST: KernelId = KernelId(2);

const HOST: KernelId = KernelId::HOST;

/// VM `plain` has one vCPU, VM `web` two and a guest kernel.
pub fn scenario() -> Scenario {
    scenario_with(2, &[("plain", 1, false), ("web", 2, true)])
}

/// A host with so many pCPUs and VMs: name, vCPUs, and whether it has a guest kernel.
pub fn scenario_with(pcpus: u32, vms: &[(&str, u32, bool)]) -> Scenario {
    let machine = |cpus| Arc::new(MachineBuilder::symmetric(1, cpus, 1).build().unwrap());
    let host = machine(pcpus);
    let vms = vms.iter().map(|&(name, vcpus, has_guest)| {
        let anywhere = Affinity::hard(host.all_cpus().clone());
        let guest = || Guest {
            policy: PolicySettings::Linux(LinuxSettings::default()),
            topology: machine(vcpus),
            context_switch: None,
            interrupt: None,
            programs: Vec::new(),
            processes: Vec::new(),
            locks: 0,
            family_channels: 0,
        };
        let kind = match has_guest {
            true => WorkloadKind::guest(vec![anywhere; vcpus as usize], guest()),
            false => {
                let vcpu = HostTask::new(Arc::new(Program::default()), anywhere);
                WorkloadKind::vm(vec![vcpu; vcpus as usize])
            }
        };
        Workload::new(name, kind, vec![1.0])
    });
    Scenario {
        workloads: vms.collect(),
        machine: Arc::clone(&host),
        costs: CostModels::off(),
        policy: PolicySettings::Credit(CreditSettings::default()),
        warmup_ns: 0,
        length_ns: END_NS,
        stop_at_count: None,
        gates: 0,
        cgroups: Vec::new(),
        events: Vec::new(),
        homes: Default::default(),
        pause_loop: None,
        halt_poll_ns: None,
    }
}

/// VMs that compute, serve and build on a host that is too small for them.
pub fn mixed() -> Scenario {
    let text = r#"
        length = "50ms"
        machine = "xeon-e5620-2s"
        [policy]
        host = { xen-credit = { timeslice = "2ms" } }
        guest = { linux = { version = "4.2" } }
        [programs.hog]
        ops = [{ forever = [{ compute = "1ms" }] }]
        [programs.server]
        ops = [{ forever = [{ wait = "requests" }, { compute = { exponential = "200us" } }, "respond"] }]
        [programs.make]
        ops = [{ forever = [{ fork = "cc" }, { fork = "cc" }, { compute = "200us" }, "wait_child", "wait_child"] }]
        [programs.cc]
        ops = [{ compute = "100us" }, { exec = "as" }]
        [programs.as]
        ops = [{ compute = "300us" }]
        [[vm]]
        group = "batch"
        count = 2
        vcpus = 7
        memory = "1GiB"
        programs = ["hog"]
        [[vm]]
        group = "web"
        vcpus = 2
        memory = "1GiB"
        programs = ["server"]
        [[vm.source]]
        channel = "requests"
        arrivals = { clients = { number = 8, think = { exponential = "2ms" } } }
        [[vm]]
        group = "builder"
        count = 2
        vcpus = 4
        memory = "1GiB"
        [vm.guest]
        process = [{ program = "make", copies = 2 }]
    "#;
    let source = ScenarioSource::parse(Path::new("mixed.toml"), text).unwrap();
    source.build(&Default::default(), &Default::default()).unwrap()
}

/// Sends the observer one event of each kind that the two levels can produce.
pub fn play(to: &mut impl Observer) {
    // plain/vcpu0, web/vcpu0 and web/vcpu1 are tasks 0, 1 and 2 of the host.
    event(to, 100, HOST, Start, 1, 1, None);
    to.named(100, GUEST, TaskId(0), "sh");
    event(to, 110, GUEST, Wake, 0, 0, None);
    event(to, 110, GUEST, Start, 0, 0, None);
    event(to, 120, HOST, Wake, 0, 0, None);
    event(to, 120, HOST, Start, 0, 0, None);
    // sh forks cc onto the other vCPU, which sleeps and gets an IPI.
    to.named(200, GUEST, TaskId(1), "cc");
    event(to, 200, GUEST, Wake, 1, 1, Some((0, Some(0))));
    event(to, 210, HOST, Wake, 0, 2, Some((1, Some(1))));
    event(to, 220, HOST, Preempt, 0, 0, None);
    event(to, 220, HOST, Start, 0, 2, None);
    event(to, 220, GUEST, Start, 1, 1, None);
    // The host takes the vCPU away from under sh, and gives it back.
    event(to, 300, HOST, Preempt, 1, 1, None);
    event(to, 300, HOST, Start, 1, 0, None);
    event(to, 400, HOST, Block, 1, 0, None);
    event(to, 400, HOST, Start, 1, 1, None);
    event(to, 450, GUEST, Continue, 0, 0, None);
    // cc becomes another program, and sleeps.
    to.named(500, GUEST, TaskId(1), "as");
    event(to, 600, GUEST, Block, 1, 1, None);
    event(to, 600, HOST, Block, 0, 2, None);
    // It is woken onto the CPU of sh, ends, and another task gets its number.
    event(to, 700, GUEST, Wake, 0, 1, Some((0, None)));
    event(to, 700, GUEST, Preempt, 0, 0, None);
    event(to, 700, GUEST, Start, 0, 1, None);
    event(to, 800, GUEST, Exit, 0, 1, None);
    to.named(800, GUEST, TaskId(1), "ld");
    event(to, 800, GUEST, Start, 0, 1, None);
}

fn event(
    to: &mut impl Observer,
    at_ns: u64,
    kernel: KernelId,
    kind: EventKind,
    cpu: u32,
    task: u32,
    by: Option<(u32, Option<u32>)>,
) {
    let by = by.map(|(cpu, task)| (CpuId(cpu), task.map(TaskId)));
    to.observe(Event { at_ns, kernel, kind, cpu: CpuId(cpu), task: TaskId(task), by });
}
