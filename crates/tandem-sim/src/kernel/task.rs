//! A task of a kernel.

use super::HOST;
use super::kernels::CpuRef;
use crate::cost::Residue;
use crate::engine::event_queue::NEVER;
use crate::engine::random::{Entity, Stream};
use crate::metrics::TaskMetrics;
use crate::program::LOOP_DEPTH_MAX;
use crate::program::channel::{Message, Request, Token};
use crate::program::code::{Instruction, ProfileId};
use std::sync::Arc;
use tandem_machine::ids::{CpuId, TaskId, VmId};

/// What a task of the host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskKind {
    Vcpu,
    /// A process with an address space of its own.
    Process,
    /// A thread that shares the address space of its workload.
    Thread,
}

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// Yet to start.
    New,
    /// On a CPU.
    Running,
    /// Wants a CPU.
    Runnable,
    /// Waits for something else than a CPU.
    Blocked,
    /// Done for good.
    Exited,
}

/// A task of a guest's past or present: numbers of tasks are used again, births are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Birth {
    pub task: TaskId,
    /// How many tasks of the kernel were born before.
    pub number: u32,
}

/// A task: its program, how far it has come, what it left in the caches, and what it used.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub vm: VmId,
    /// What its measurements are summed up by: the VM in the host's kernel, the program in a guest's.
    pub group: u32,
    /// For a vCPU of a guest kernel: position of that kernel, and the CPU that it is there. The host's otherwise.
    guest_kernel: u32,
    guest_cpu: CpuId,
    /// What it is to the host.
    pub kind: TaskKind,
    pub state: TaskState,
    /// Where it ran last; before it ever ran, where it was forked or queued first.
    pub last_cpu: CpuId,
    /// When it began to be measured: it was born, became another program by exec, or the measuring started.
    pub measured_since_ns: u64,
    /// When it was born, it blocked, or the measuring started, whichever is latest.
    pub blocked_since_ns: u64,
    /// When it last began to wait for a CPU.
    pub runnable_since_ns: u64,
    /// When it woke up, until it runs; else [`NEVER`].
    pub woken_ns: u64,

    pub code: Arc<[Instruction]>,
    pub next_instruction: u32,
    pub loops: [u64; LOOP_DEPTH_MAX],
    pub random: Stream,
    /// Whether its program is in the middle of a burst of work.
    pub in_burst: bool,
    /// Work left of the current burst, ns.
    pub work_left_ns: u64,
    pub request: Option<Request>,
    /// A message that it was given while it was blocked, and that it has not read yet.
    pub unread: Option<Message>,
    pub timer_started_ns: u64,
    /// Tokens that it took at once and has not answered.
    pub tokens_taken: u32,
    /// Waits for a spin lock or for answers to interrupts, keeping its CPU busy.
    pub spins: bool,
    /// Spin locks that it holds.
    pub locks_held: u32,
    /// Answers to its interrupts that it still waits for.
    pub answers_missing: u32,
    /// The process of the start that it descends from.
    pub family: u32,
    pub birth: u32,
    pub parent: Option<Birth>,
    /// Children that have ended and that it has not waited for.
    pub ended_children: u32,
    pub waits_for_child: bool,
    /// The signal of a child's end wakes it.
    pub is_signalled: bool,
    /// Its memory is its parent's until one of them writes: it has not begun another program since it was forked.
    pub shares_memory: bool,
    /// Where the channels of its family begin, less the number of channels that the VM shares.
    pub family_channels: u32,
    /// Key of its random numbers, and how many children have got theirs from it.
    pub random_key: u64,
    pub children: u32,

    pub profile: ProfileId,
    /// Work during which the missing part of the footprint is still coming in, ns.
    pub refill_work_left_ns: u64,
    /// Bytes of the footprint in the private and in the last-level cache when the task came.
    pub resident_bytes: [f64; 2],
    /// Bytes of the footprint that each of the two still lacked.
    pub missing_bytes: [f64; 2],
    /// What it left in each.
    pub residues: [Residue; 2],

    pub metrics: TaskMetrics,
}

impl Task {
    /// A task that is yet to start. Its random numbers are those of `random_key` under the seed.
    pub fn new(vm: VmId, group: usize, code: Arc<[Instruction]>, seed: u64, random_key: u64) -> Self {
        Self {
            vm,
            group: group as u32,
            guest_kernel: HOST as u32,
            guest_cpu: CpuId(0),
            kind: TaskKind::Vcpu,
            state: TaskState::New,
            last_cpu: CpuId(0),
            measured_since_ns: 0,
            blocked_since_ns: 0,
            runnable_since_ns: 0,
            woken_ns: NEVER,
            code,
            next_instruction: 0,
            loops: [0; LOOP_DEPTH_MAX],
            random: Stream::new(seed, Entity::Task, random_key),
            in_burst: false,
            work_left_ns: 0,
            request: None,
            unread: None,
            timer_started_ns: 0,
            tokens_taken: 0,
            spins: false,
            locks_held: 0,
            answers_missing: 0,
            family: 0,
            birth: 0,
            parent: None,
            ended_children: 0,
            waits_for_child: false,
            is_signalled: false,
            shares_memory: false,
            family_channels: 0,
            random_key,
            children: 0,
            profile: ProfileId::NONE,
            refill_work_left_ns: 0,
            resident_bytes: [0.0; 2],
            missing_bytes: [0.0; 2],
            residues: [Residue::default(); 2],
            metrics: TaskMetrics::default(),
        }
    }

    /// Gives it a token that it has been blocked for. To read a message, it goes back to its wait.
    pub fn receive(&mut self, token: Token) {
        self.request = None;
        match token {
            Token::Signal => {}
            Token::Request(request) => self.request = Some(request),
            Token::Message(message) => {
                self.unread = Some(message);
                self.next_instruction -= 1;
            }
        }
    }

    /// How long it has waited for a CPU, of the measured time, ns.
    pub fn waited_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.runnable_since_ns.max(self.measured_since_ns))
    }

    /// Lets it end as soon as it runs: what its program had before it is skipped.
    pub fn cut_short(&mut self) {
        self.work_left_ns = 0;
        self.next_instruction = self.code.len() as u32 - 1;
        debug_assert_eq!(self.code.last(), Some(&Instruction::Exit), "every program ends");
    }

    /// For a vCPU of a guest kernel: the CPU that it is there.
    #[inline]
    pub fn guest(&self) -> Option<CpuRef> {
        let kernel = self.guest_kernel as usize;
        (kernel != HOST).then_some(CpuRef { kernel, cpu: self.guest_cpu })
    }

    /// Makes it that CPU of a guest kernel.
    pub fn set_guest(&mut self, cpu: CpuRef) {
        self.guest_kernel = cpu.kernel as u32;
        self.guest_cpu = cpu.cpu;
    }
}

/// What an entry of a CPU's timer queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerTarget {
    /// Ends the sleep of a task.
    Task(TaskId),
    /// An interrupt of the source with this number.
    Source(u32),
    /// The timer of the policy with this token.
    Policy(u32),
    /// The interrupt by which this task of the guest asks the CPU to flush its TLB.
    Flush(TaskId),
}
