//! Executes programs: what a task does when its burst of work has ended.

use super::agenda::Agenda;
use super::gates::Gates;
use super::interrupts::Interrupts;
use super::phase::Phase;
use super::vm::VmState;
use super::{RunError, TASKS_MAX, stuck};
use crate::cost::Coherence;
use crate::kernel::{CpuRef, Leaving, System, Task, TaskRef, TimerTarget, Waker};
use crate::policy::Policy;
use crate::program::Amount;
use crate::program::channel::{Message, Token};
use crate::program::code::{Instruction, ProfileId};
use crate::scenario::{Scenario, Workload};
use crate::trace::Observer;
use tandem_machine::ids::{CpuId, TaskId};

/// Instructions that may follow each other without taking time.
const STEPS_AT_ONCE_MAX: u64 = 1_000_000;

/// Whether the task continues after an instruction.
enum Next {
    /// It goes on with the next instruction.
    Step,
    /// It computes, or has left the CPU.
    Done,
}

/// A task on a processor executes its program until that takes time.
pub(super) struct Execution<'a, O> {
    pub scenario: &'a Scenario,
    pub seed: u64,
    pub system: &'a mut System<O>,
    /// The VM that the task belongs to.
    pub vm: &'a mut VmState,
    pub interrupts: &'a mut Interrupts,
    pub agenda: &'a mut Agenda,
    pub phase: &'a mut Phase,
    pub gates: &'a mut Gates,
    /// The CPU of the task's kernel.
    pub on: CpuRef,
    pub pcpu: CpuId,
    pub task: TaskRef,
    pub now_ns: u64,
}

impl<O: Observer> Execution<'_, O> {
    /// Executes instructions until one takes time.
    pub fn run(mut self) -> Result<(), RunError> {
        for _ in 0..STEPS_AT_ONCE_MAX {
            if let Next::Done = self.step()? {
                return Ok(());
            }
        }
        let vm = self.task().vm;
        Err(stuck(self.scenario, vm, self.now_ns, STEPS_AT_ONCE_MAX))
    }

    #[inline]
    pub(super) fn task(&mut self) -> &mut Task {
        &mut self.system.kernels[self.task]
    }

    fn step(&mut self) -> Result<Next, RunError> {
        let now_ns = self.now_ns;
        match self.task().run.fetch() {
            Instruction::Compute { work, profile } => return Ok(self.compute(work, profile)),
            Instruction::Sleep(amount) => {
                let sleep_ns = self.task().run.draw(amount);
                return Ok(self.sleep_until(now_ns + sleep_ns));
            }
            Instruction::SleepUntil(at_ns) => return Ok(self.sleep_until(at_ns)),
            Instruction::Wait { channel } => return Ok(self.wait(channel)),
            Instruction::TakeRest { channel } => self.take_rest(channel),
            Instruction::SignalAll { channel } => {
                for _ in 0..self.task().run.take_tokens() {
                    self.signal(channel);
                }
            }
            Instruction::Signal { channel } => self.signal(channel),
            Instruction::Send { channel, capacity, resume_at, message_lines, queue_lines } => {
                let at = self.channel(channel);
                self.vm.channels[at].queue_lines = queue_lines;
                self.fetch_queue(at);
                if !self.vm.channels[at].has_room(capacity, resume_at, self.task.task) {
                    // It tries again when it is woken.
                    self.task().run.retry();
                    return Ok(self.block());
                }
                let token = match message_lines {
                    0 => Token::Signal,
                    lines => Token::Message(Message { sent_on: self.pcpu, lines }),
                };
                self.put(channel, token, true);
            }
            Instruction::Lock { lock } => {
                if !self.take_lock(lock as usize) {
                    return Ok(self.spin());
                }
            }
            Instruction::Unlock { lock } => {
                return Ok(match self.release_lock(lock as usize) {
                    true => self.gave_way(),
                    false => self.preempt_if_deferred(),
                });
            }
            Instruction::FlushTlbs => {
                if self.flush_tlbs() {
                    self.rerate_if_still_there();
                    return Ok(Next::Done);
                }
            }
            Instruction::EndFlush => return Ok(self.preempt_if_deferred()),
            Instruction::Fork { program } => self.fork(program)?,
            Instruction::Exec { program } => return Ok(self.exec(program)),
            Instruction::WaitChild => return Ok(self.wait_child(false)),
            Instruction::WaitChildSignal => return Ok(self.wait_child(true)),
            Instruction::Respond => {
                if let Some(request) = self.task().run.take_request() {
                    self.vm.record_response(now_ns - request.arrived_ns);
                    self.interrupts.answer(request.source as usize, self.agenda, now_ns);
                }
            }
            Instruction::Count { counter, amount } => {
                self.vm.count(counter as usize, amount);
                if counter == 0 {
                    self.phase.end_after_count(self.vm);
                }
            }
            Instruction::StartTimer => self.task().run.start_timer(now_ns),
            Instruction::StopTimer => {
                let elapsed_ns = self.task().run.stop_timer(now_ns);
                self.vm.record_response(elapsed_ns);
            }
            Instruction::LoopStart { depth, times, end } => self.task().run.start_loop(depth, times, end),
            Instruction::LoopEnd { depth, body } => self.task().run.end_round(depth, body),
            Instruction::LoopForever { body } => self.task().run.jump(body),
            Instruction::Yield => {
                self.system.decide(self.on, now_ns, Leaving::Yield);
                self.rerate_if_still_there();
                return Ok(Next::Done);
            }
            Instruction::Pass { gate } => {
                if !self.gates.pass(gate, self.task) {
                    return Ok(self.block());
                }
            }
            Instruction::Open { gate, sync } => {
                if let Some(TaskRef { task, .. }) = self.gates.open(gate) {
                    self.system.wake(task, now_ns, self.on, Waker::Task { sync });
                }
            }
            Instruction::StartTask { workload, task } => self.start_task(workload as usize, task as usize),
            Instruction::Exit => {
                self.exit();
                return Ok(Next::Done);
            }
        }
        Ok(Next::Step)
    }

    fn compute(&mut self, work: Amount, profile: ProfileId) -> Next {
        let work_ns = self.task().run.draw(work);
        if work_ns == 0 {
            return Next::Step;
        }
        let System { kernels, processors, .. } = self.system;
        processors.begin_burst(kernels, self.pcpu, self.task, work_ns, profile);
        Next::Done
    }

    fn block(&mut self) -> Next {
        self.system.decide(self.on, self.now_ns, Leaving::Block);
        Next::Done
    }

    /// The task spins from now on.
    fn spin(&mut self) -> Next {
        self.system.processors.rerate(&self.system.kernels, self.pcpu);
        Next::Done
    }

    /// Makes a decision that had to wait for the end of a spin lock.
    fn preempt_if_deferred(&mut self) -> Next {
        if !self.system.kernels[self.on.kernel].ends_deferral(self.on.cpu) {
            return Next::Step;
        }
        self.system.reschedule(self.on, self.now_ns);
        self.rerate_if_still_there();
        Next::Done
    }

    /// The host has run another vCPU, or not; a decision that had to wait comes when this one is back.
    fn gave_way(&mut self) -> Next {
        if self.system.kernels[self.on.kernel].ends_deferral(self.on.cpu) {
            self.system.kernels[self.on].resched_ns = self.now_ns;
        }
        self.rerate_if_still_there();
        Next::Done
    }

    /// After a decision that may have let the task go on.
    fn rerate_if_still_there(&mut self) {
        let System { kernels, processors, .. } = self.system;
        if processors.executing(self.pcpu).is_some_and(|(_, now)| now == self.task) {
            processors.rerate(kernels, self.pcpu);
        }
    }

    fn sleep_until(&mut self, at_ns: u64) -> Next {
        if at_ns <= self.now_ns {
            return Next::Step;
        }
        self.system.arm(self.on, at_ns, TimerTarget::Task(self.task.task));
        self.block()
    }

    /// Where a channel of the task's program is among those of its VM.
    fn channel(&mut self, channel: u32) -> usize {
        let is_shared = channel < self.vm.shared_channels;
        (channel + if is_shared { 0 } else { self.task().lineage.family_channels() }) as usize
    }

    /// Takes all tokens of a channel of which one has been taken.
    fn take_rest(&mut self, channel: u32) {
        let at = self.channel(channel);
        let mut taken = 1;
        while let Some(token) = self.vm.channels[at].take_present(self.task.task) {
            taken += 1;
            if let Token::Message(message) = token {
                self.read(message);
            }
            self.wake_senders(at);
        }
        self.task().run.took(taken);
    }

    /// Wakes the tasks that want to send into a channel from which a token was taken.
    fn wake_senders(&mut self, channel: usize) {
        for _ in 0..self.vm.channels[channel].senders_to_wake() {
            if let Some(sender) = self.vm.channels[channel].next_sender() {
                self.system.wake(sender, self.now_ns, self.on, Waker::Task { sync: true });
            }
        }
    }

    fn wait(&mut self, channel: u32) -> Next {
        let at = self.channel(channel);
        if let Some(message) = self.task().run.take_unread() {
            self.read(message);
            return Next::Step;
        }
        self.fetch_queue(at);
        let Some(token) = self.vm.channels[at].take(self.task.task) else { return self.block() };
        if let Some(message) = self.task().run.take(token) {
            self.read(message);
        }
        self.wake_senders(at);
        Next::Step
    }

    /// The task fetches the cache lines of a channel itself.
    fn fetch_queue(&mut self, channel: usize) {
        let channel = &mut self.vm.channels[channel];
        if let Some(from) = channel.move_queue(self.pcpu) {
            let lines = channel.queue_lines;
            self.fetch(from, lines);
        }
    }

    /// The task fetches the cache lines of a message.
    fn read(&mut self, message: Message) {
        self.fetch(message.sent_on, message.lines);
    }

    fn fetch(&mut self, from: CpuId, lines: u32) {
        let System { kernels, processors, .. } = self.system;
        if lines > 0 && processors.hardware().costs().coherence.is_some() {
            let fetch_ns = Coherence::fetch_ns(processors.hardware().machine(), from, self.pcpu, lines);
            processors.charge(kernels, self.on, fetch_ns);
            self.vm.add_coherence(fetch_ns);
        }
    }

    fn signal(&mut self, channel: u32) {
        if self.on.is_host() {
            self.system.processors.charge_exit(&mut self.system.kernels, self.pcpu);
        }
        self.put(channel, Token::Signal, false);
    }

    fn put(&mut self, channel: u32, token: Token, sync: bool) {
        let at = self.channel(channel);
        if let Some(woken) = self.vm.channels[at].put(token) {
            self.system.kernels[self.on.kernel][woken].run.receive(token);
            self.system.wake(woken, self.now_ns, self.on, Waker::Task { sync });
        }
    }

    fn fork(&mut self, program: u32) -> Result<(), RunError> {
        self.system.processors.leave_caches(&mut self.system.kernels, self.pcpu);
        let kernel = &mut self.system.kernels[self.on.kernel];
        let id = self.task.task;
        if kernel.tasks().live() >= TASKS_MAX {
            let vm = self.scenario.workloads[kernel[id].vm.index()].name.clone();
            return Err(RunError::TooManyTasks { vm, at_ns: self.now_ns });
        }
        let birth = kernel.tasks().birth(id);
        let code = self.vm.programs[program as usize].clone();
        let child = kernel[id].fork(birth, program, code, self.seed);
        let facts = kernel.tasks().facts()[id.index()].clone();
        let child = kernel.add(child, facts);
        name_task(self.scenario, self.system, TaskRef { task: child, ..self.task }, self.now_ns);
        self.system.start_child(self.on, id, child, self.now_ns);
        Ok(())
    }

    /// A task of this kernel that was there from the start of the run begins its life.
    fn start_task(&mut self, workload: usize, task: usize) {
        // In a guest, its tasks are those of one workload.
        let before = if self.on.is_host() { &self.scenario.workloads[..workload] } else { &[] };
        let child = TaskId::from(before.iter().map(Workload::task_count).sum::<usize>() + task);
        self.system.start_child(self.on, self.task.task, child, self.now_ns);
    }

    /// The task goes on as another program.
    fn exec(&mut self, program: u32) -> Next {
        self.system.processors.leave_caches(&mut self.system.kernels, self.pcpu);
        let kernel = &mut self.system.kernels[self.on.kernel];
        let task = &mut kernel[self.task.task];
        let before = task.group;
        let total = task.exec(program, self.vm.programs[program as usize].clone(), self.now_ns);
        kernel.usage_mut().ends(before, &total);
        kernel.usage_mut().begins(program);
        name_task(self.scenario, self.system, self.task, self.now_ns);
        match self.system.exec(self.on, self.task.task, self.now_ns) {
            true => Next::Done,
            false => Next::Step,
        }
    }

    fn wait_child(&mut self, by_signal: bool) -> Next {
        match self.task().lineage.wait_child(by_signal) {
            true => Next::Step,
            false => self.block(),
        }
    }

    /// The task ends.
    fn exit(&mut self) {
        let id = self.task.task;
        self.system.processors.leave_caches(&mut self.system.kernels, self.pcpu);
        self.system.kernels[self.on.kernel].policy_mut().exits(id);
        self.notify_parent(id);
        self.system.decide(self.on, self.now_ns, Leaving::Exit);
        if !self.on.is_host() {
            let kernel = &mut self.system.kernels[self.on.kernel];
            let task = &kernel[id];
            let (program, total) = (task.group, task.measured(self.now_ns));
            kernel.usage_mut().ends(program, &total);
            kernel.tasks_mut().release(id);
        }
    }

    /// The parent learns of the end of its child first: from a task that is about to leave its CPU or, if the
    /// parent handles the signal of that, by the signal. What a parent that waits for it goes on with is
    /// where the child has just used it, if the two still share their memory.
    fn notify_parent(&mut self, child: TaskId) {
        let kernel = &mut self.system.kernels[self.on.kernel];
        let Some(parent) = kernel[child].lineage.parent() else { return };
        if kernel[parent.task].lineage.birth != parent.number {
            return;
        }
        let left = kernel[child].lineage.shares_memory().then(|| kernel[child].footprint.clone());
        let state = &mut kernel[parent.task];
        if let Some(by_signal) = state.lineage.end_child() {
            if let Some(left) = left {
                state.footprint.inherit(&left);
            }
            self.system.wake(parent.task, self.now_ns, self.on, Waker::Task { sync: !by_signal });
        }
    }
}

/// Reports the name of a task of a guest to the observer.
pub(super) fn name_task<O: Observer>(
    scenario: &Scenario,
    system: &mut System<O>,
    task: TaskRef,
    now_ns: u64,
) {
    let kernel = &system.kernels[task.kernel];
    let state = &kernel[task.task];
    if let Some(guest) = scenario.workloads[state.vm.index()].guest()
        && !task.is_host()
    {
        let name = &guest.programs[state.group as usize].name;
        system.observer.named(now_ns, kernel.id(), task.task, name);
    }
}
