//! A minimal kernel, to call single callbacks of the compiled scheduler.
//!
//! Nothing runs here: a test decides when a task wakes, when a CPU decides, and how much time passes, and
//! checks the scheduler's response.

use std::sync::Arc;
use tandem_lab::scenario::policy::compiled::{self, Program};
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId, VmId};
use tandem_machine::{Machine, MachineBuilder};
use tandem_settings::{Mode, Settings};
use tandem_sim::policy::sched_ext::{KernelVersion, SchedExt};
use tandem_sim::policy::{Alarm, Context, Policy, Reason, TaskFacts};
use tandem_sim::scenario::TaskPolicy;

/// The scheduler, and the kernel around it.
pub struct Desk {
    policy: SchedExt,
    machine: Arc<Machine>,
    facts: Vec<TaskFacts>,
    pub now_ns: u64,
    /// By CPU.
    pub current: Vec<Option<TaskId>>,
    pub stolen_ns: Vec<u64>,
    /// CPUs that the last callback wanted to reschedule.
    pub kicked: Vec<CpuId>,
    pub alarms: Vec<Alarm>,
}

/// Two nodes of four CPUs, each with a cache that its CPUs share.
pub fn two_nodes() -> Machine {
    MachineBuilder::symmetric(2, 4, 1).build().unwrap()
}

/// As [`two_nodes`], with two CPUs per core.
pub fn two_nodes_with_smt() -> Machine {
    MachineBuilder::symmetric(2, 2, 2).build().unwrap()
}

/// The CPUs with these numbers, of eight.
pub fn cpus(numbers: &[u32]) -> Arc<CpuMask> {
    Arc::new(CpuMask::from_cpus(8, numbers.iter().map(|&cpu| CpuId(cpu))))
}

/// A task that may run on all eight CPUs.
pub fn task() -> TaskFacts {
    TaskFacts {
        vm: VmId(0),
        weight: 1024,
        nice: 0,
        policy: TaskPolicy::Normal,
        hard_affinity: cpus(&[0, 1, 2, 3, 4, 5, 6, 7]),
        soft_affinity: None,
        past_cpu: None,
        is_kernel_thread: false,
    }
}

/// A task that prefers some CPUs.
pub fn preferring(numbers: &[u32]) -> TaskFacts {
    TaskFacts { soft_affinity: Some(cpus(numbers)), ..task() }
}

/// A task that may use one CPU.
pub fn pinned(cpu: u32) -> TaskFacts {
    restricted(&[cpu])
}

/// A task that may use some CPUs.
pub fn restricted(numbers: &[u32]) -> TaskFacts {
    TaskFacts { hard_affinity: cpus(numbers), ..task() }
}

impl Desk {
    /// A kernel on two nodes with these tasks, all of which sleep.
    pub fn new(settings: &Settings, tasks: Vec<TaskFacts>) -> Self {
        Self::on(two_nodes(), 0, settings, tasks)
    }

    /// The same on another machine of eight CPUs, with a kernel that takes `put_back_ns` for a decision.
    pub fn on(machine: Machine, put_back_ns: u64, settings: &Settings, tasks: Vec<TaskFacts>) -> Self {
        let machine = Arc::new(machine);
        let is_guest = settings.mode == Mode::Guest;
        let program = Program::Tandem(Some(settings));
        let mut settings = compiled::settings(program, KernelVersion::V7_3, is_guest, &machine).unwrap();
        settings.put_back_ns = put_back_ns;
        let cpu_count = machine.cpu_count();
        Self {
            policy: SchedExt::new(&settings, &machine, &tasks, &[], &[], 1),
            machine,
            facts: tasks,
            now_ns: 1_000_000,
            current: vec![None; cpu_count],
            stolen_ns: vec![0; cpu_count],
            kicked: Vec::new(),
            alarms: Vec::new(),
        }
    }

    /// Calls the scheduler, which must not fail.
    fn ask<R>(&mut self, question: impl FnOnce(&mut SchedExt, &mut Context<'_>) -> R) -> R {
        self.kicked.clear();
        let mut failure = None;
        let mut context = Context {
            now_ns: self.now_ns,
            machine: &self.machine,
            tasks: &self.facts,
            stolen_ns: &self.stolen_ns,
            kicked: &mut self.kicked,
            peers_scanned: &mut 0,
            locked: &mut Vec::new(),
            shared_locked: &mut Vec::new(),
            alarms: &mut self.alarms,
            later: &mut Vec::new(),
            failure: &mut failure,
        };
        let answer = question(&mut self.policy, &mut context);
        assert_eq!(failure, None);
        answer
    }

    /// Its machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Lets time pass.
    pub fn pass_us(&mut self, us: u64) {
        self.now_ns += us * 1_000;
    }

    /// An event on a CPU wakes a task; returns where the scheduler puts it.
    pub fn wake(&mut self, task: u32, by: u32) -> CpuId {
        self.wake_by(task, Reason::Wake { waker: self.current[by as usize], cpu: CpuId(by), sync: false })
    }

    /// The task on a CPU creates another one.
    pub fn fork(&mut self, task: u32, by: u32) -> CpuId {
        let parent = self.current[by as usize].expect("a task runs there");
        self.wake_by(task, Reason::Fork { parent, cpu: CpuId(by) })
    }

    /// A task that is about to sleep wakes another.
    pub fn wake_sync(&mut self, task: u32, by: u32) -> CpuId {
        self.wake_by(task, Reason::Wake { waker: self.current[by as usize], cpu: CpuId(by), sync: true })
    }

    fn wake_by(&mut self, task: u32, reason: Reason) -> CpuId {
        let task = TaskId(task);
        let cpu = self.ask(|policy, ctx| policy.select_cpu(ctx, task, reason));
        let mut kicked = self.kicked.clone();
        self.ask(|policy, ctx| policy.enqueue(ctx, task, cpu, reason));
        kicked.append(&mut self.kicked);
        self.kicked = kicked;
        cpu
    }

    /// A CPU decides; returns the task that it then runs.
    pub fn decide(&mut self, cpu: u32) -> Option<TaskId> {
        let previous = self.current[cpu as usize];
        let next = self.ask(|policy, ctx| policy.dispatch(ctx, CpuId(cpu), previous)).task;
        let kicked = self.kicked.clone();
        if next != previous
            && let Some(task) = next
        {
            self.ask(|policy, ctx| policy.running(ctx, CpuId(cpu), task));
        }
        self.kicked = kicked;
        self.current[cpu as usize] = next;
        next
    }

    /// The task on a CPU goes to sleep; returns the task that the CPU then runs.
    pub fn sleep(&mut self, cpu: u32) -> Option<TaskId> {
        let task = self.current[cpu as usize].take().expect("a task runs there");
        self.ask(|policy, ctx| policy.blocked(ctx, CpuId(cpu), task));
        self.decide(cpu)
    }

    /// A running task begins to exit.
    pub fn begin_exit(&mut self, task: u32) {
        self.policy.exits(TaskId(task));
    }

    /// A tick on a CPU that runs a task.
    pub fn tick(&mut self, cpu: u32) {
        let task = self.current[cpu as usize].expect("a task runs there");
        self.ask(|policy, ctx| policy.tick(ctx, CpuId(cpu), task));
    }

    /// The task on a CPU yields; returns the task that the CPU then runs.
    pub fn yields(&mut self, cpu: u32) -> Option<TaskId> {
        let task = self.current[cpu as usize].expect("a task runs there");
        self.ask(|policy, ctx| policy.yielded(ctx, CpuId(cpu), task));
        self.decide(cpu)
    }

    /// The task on a CPU yields to another one; returns whether the scheduler does it.
    pub fn yield_to(&mut self, cpu: u32, target: u32) -> bool {
        let task = self.current[cpu as usize].expect("a task runs there");
        self.ask(|policy, ctx| policy.yield_to(ctx, CpuId(cpu), task, TaskId(target)))
    }

    /// A timer of the scheduler expires.
    pub fn expire(&mut self, alarm: Alarm) {
        self.now_ns = alarm.at_ns;
        self.ask(|policy, ctx| policy.alarm(ctx, alarm.cpu, alarm.token));
    }

    /// An event on a CPU wakes a task; the CPU where the scheduler puts it decides.
    pub fn run_on(&mut self, task: u32, by: u32) -> CpuId {
        let cpu = self.wake(task, by);
        assert_eq!(self.decide(cpu.0), Some(TaskId(task)), "it runs where it was put");
        cpu
    }

    /// A task runs for a moment on an idle CPU, and sleeps.
    pub fn run_briefly(&mut self, task: u32, cpu: u32) {
        self.run_on(task, cpu);
        self.pass_us(10);
        self.sleep(cpu);
    }

    /// One of the scheduler's counters.
    pub fn counter(&self, name: &str) -> u64 {
        self.policy
            .counters()
            .into_iter()
            .find(|(other, _)| *other == name)
            .expect("there is such a counter")
            .1
    }
}
