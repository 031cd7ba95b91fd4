//! Errors about guests whose parts do not fit together.

use crate::common::{compute, cores, send, textbook, vm};
use std::sync::Arc;
use tandem_machine::MachineBuilder;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::policy::linux::LinuxSettings;
use tandem_sim::policy::pause_loop::PauseLoop;
use tandem_sim::program::{CHANNEL_LINES_MAX, MemoryProfile, Op, Program, SharedData};
use tandem_sim::scenario::{
    Affinity, Guest, GuestProgram, PROCESSES_MAX, PolicySettings, Process, Scenario, TaskPolicy, WorkloadKind,
};

/// A VM of 2 vCPUs on 4 pCPUs, whose guest runs one process that starts another program.
fn scenario() -> Scenario {
    let machine = cores(4);
    let program = |name: &str, ops| GuestProgram::new(name, program(ops));
    let mut vm = vm("guest", &machine, 2, vec![]);
    let guest = Guest {
        policy: PolicySettings::Linux(LinuxSettings::default()),
        topology: Arc::new(MachineBuilder::symmetric(1, 2, 1).build().unwrap()),
        context_switch: None,
        interrupt: None,
        programs: vec![
            program("parent", vec![Op::Lock { lock: 0 }, Op::Unlock { lock: 0 }, Op::Fork { program: 1 }]),
            program("child", vec![compute(1), send(1, 1)]),
        ],
        processes: vec![Process {
            program: 0,
            copies: 2,
            nice: 0,
            policy: TaskPolicy::Normal,
            affinity: None,
        }],
        locks: 1,
        family_channels: 1,
    };
    vm.kind = WorkloadKind::guest(vec![Affinity::hard(machine.all_cpus().clone()); 2], guest);
    textbook(machine, CreditSettings::default(), 1, vec![vm])
}

fn program(ops: Vec<Op>) -> Arc<Program> {
    Arc::new(Program { ops, profiles: vec![] })
}

fn sharing(data: usize, lines_per_us: f64, write_share: f64) -> Arc<Program> {
    let shared = Some(SharedData { data, lines_per_us, write_share });
    let profile = MemoryProfile { parallelism: 1.0, shared, ..MemoryProfile::default() };
    Arc::new(Program { ops: vec![], profiles: vec![profile.into()] })
}

#[test]
fn a_guest_that_fits_is_accepted() {
    assert_eq!(scenario().check(), Ok(()));
}

#[test]
fn what_does_not_fit_is_refused() {
    type Change = fn(&mut Guest);
    let cases: [(Change, &str); 18] = [
        (|guest| guest.topology = cores(3), "sees 3 CPUs, but it has 2 vCPUs"),
        (|guest| guest.policy = PolicySettings::Credit(CreditSettings::default()), "credit is no policy"),
        (
            |guest| guest.policy = PolicySettings::Linux(LinuxSettings { tick_hz: 0, ..Default::default() }),
            "no tick of 0 Hz; 100, 250, 300 and 1000 Hz are allowed",
        ),
        (|guest| guest.processes[0].program = 2, "a process runs program 2"),
        (|guest| guest.processes[0].nice = 20, "the nice value 20; -20 to 19"),
        (|guest| guest.processes[0].affinity = Some(Arc::new(CpuMask::empty(2))), "may run on no vCPU"),
        (
            |guest| guest.processes[0].affinity = Some(Arc::new(CpuMask::from_cpus(99, [CpuId(98)]))),
            "or on vCPUs that there are not",
        ),
        (|guest| guest.processes[0].copies = PROCESSES_MAX as u32 + 1, "more than 100000 processes"),
        (|guest| guest.family_channels = 0, "program 'child' of its guest: a program uses channel 1"),
        (|guest| guest.programs[1].program = program(vec![send(0, 0)]), "without capacity"),
        (|guest| guest.programs[1].program = program(vec![Op::Exec { program: 2 }]), "starts program 2"),
        (|guest| guest.programs[1].program = program(vec![Op::Lock { lock: 1 }]), "uses lock 1"),
        (
            |guest| {
                let profile =
                    MemoryProfile { parallelism: 1.0, smt_slowdown: Some(0.9), ..Default::default() };
                guest.programs[1].program = Arc::new(Program { ops: vec![], profiles: vec![profile.into()] });
            },
            "the SMT slowdown of a memory profile is outside 1 to 1000",
        ),
        (|guest| guest.programs[1].program = sharing(100, 1.0, 0.5), "more than 100 data sets"),
        (
            |guest| guest.programs[1].program = sharing(0, -1.0, 0.5),
            "shares a negative or huge number of lines",
        ),
        (|guest| guest.programs[1].program = sharing(0, 1.0, 1.1), "writes more than it accesses"),
        (
            |guest| {
                let (message_lines, queue_lines) = (0, CHANNEL_LINES_MAX + 1);
                let send = Op::Send { channel: 0, capacity: 1, resume_at: None, message_lines, queue_lines };
                guest.programs[1].program = program(vec![send]);
            },
            "a program sends more than 1000000 cache lines at once",
        ),
        (
            |guest| {
                let mut ops = vec![compute(1)];
                for _ in 0..5 {
                    ops = vec![Op::Repeat { times: Some(2), body: ops }];
                }
                guest.programs[1].program = program(ops);
            },
            "nests more than 4 repeats",
        ),
    ];
    for (change, says) in cases {
        let mut scenario = scenario();
        change(scenario.workloads[0].guest_mut().unwrap());
        let error = scenario.check().expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn some_operations_need_a_guest() {
    for op in [Op::Lock { lock: 0 }, Op::Unlock { lock: 0 }, Op::Fork { program: 0 }, Op::WaitChild] {
        let machine = cores(4);
        let vm = vm("alone", &machine, 1, vec![op]);
        let scenario = textbook(machine, CreditSettings::default(), 1, vec![vm]);
        assert!(scenario.check().unwrap_err().to_string().contains("needs a guest"));
    }
}

#[test]
fn a_pause_loop_that_cannot_work_is_refused() {
    let sane = PauseLoop::V6_12;
    let cases = [
        (PauseLoop { gap_cycles: 0, ..sane }, "the gap of pause loops is 0, or longer than their window"),
        (PauseLoop { window_cycles: 0, ..sane }, "the gap of pause loops is 0, or longer than their window"),
        (PauseLoop { window_growth: 0, ..sane }, "would shrink"),
        (PauseLoop { window_max_cycles: 4_095, ..sane }, "would shrink"),
    ];
    let mut scenario = scenario();
    scenario.policy = PolicySettings::Linux(LinuxSettings::default());
    for (pause_loop, says) in cases {
        scenario.pause_loop = Some(pause_loop);
        let error = scenario.check().expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
    }
    scenario.pause_loop = Some(sane);
    assert_eq!(scenario.check(), Ok(()));
    scenario.policy = PolicySettings::Credit(CreditSettings::default());
    assert!(scenario.check().unwrap_err().to_string().contains("has no directed yield"));
    scenario.pause_loop = Some(PauseLoop::XEN);
    assert_eq!(scenario.check(), Ok(()));
}
