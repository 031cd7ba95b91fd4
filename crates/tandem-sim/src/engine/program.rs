//! Executes programs: what a task does when its burst of work has ended.

use super::measure::finished;
use super::random::child_key;
use super::simulation::Simulation;
use super::{RunError, TASKS_MAX};
use crate::cost::{Coherence, Residue};
use crate::kernel::{CpuRef, Task, TaskRef, TimerTarget};
use crate::metrics::TaskMetrics;
use crate::policy::Policy;
use crate::program::channel::{Message, Token};
use crate::program::code::{Instruction, ProfileId};
use crate::trace::Observer;
use tandem_machine::ids::{CpuId, TaskId, VmId};

/// Instructions that may follow each other without taking time.
const STEPS_AT_ONCE_MAX: u64 = 1_000_000;

/// What becomes of the task after an instruction.
enum Next {
    /// It goes on with the next instruction.
    Step,
    /// It computes, or has left the CPU.
    Done,
}

/// A task where it runs.
#[derive(Clone, Copy)]
struct Place {
    /// The CPU of its kernel.
    on: CpuRef,
    pcpu: CpuId,
    task: TaskId,
}

impl<O: Observer> Simulation<'_, O> {
    /// Lets what the processor executes go on with its program until that takes time.
    pub fn advance(&mut self, pcpu: CpuId, now_ns: u64) -> Result<(), RunError> {
        let Some((on, TaskRef { task, .. })) = self.system.processors.executing(pcpu) else {
            return Ok(());
        };
        for _ in 0..STEPS_AT_ONCE_MAX {
            if let Next::Done = self.step(Place { on, pcpu, task }, now_ns)? {
                return Ok(());
            }
        }
        let vm = self.system.kernels[on.kernel][task].vm;
        Err(self.stuck_vm(vm, now_ns, STEPS_AT_ONCE_MAX))
    }

    fn step(&mut self, place: Place, now_ns: u64) -> Result<Next, RunError> {
        let Place { on, pcpu, task: id } = place;
        let task = &mut self.system.kernels[on.kernel][id];
        let vm = task.vm;
        let instruction = task.code[task.next_instruction as usize];
        task.next_instruction += 1;
        match instruction {
            Instruction::Compute { work, profile } => {
                let work_ns = task.random.draw(work);
                if work_ns == 0 {
                    return Ok(Next::Step);
                }
                self.system.processors.begin_burst(
                    &mut self.system.kernels,
                    pcpu,
                    TaskRef { kernel: on.kernel, task: id },
                    work_ns,
                    profile,
                );
                return Ok(Next::Done);
            }
            Instruction::Sleep(amount) => {
                let sleep_ns = task.random.draw(amount);
                return Ok(self.sleep_until(place, now_ns + sleep_ns, now_ns));
            }
            Instruction::SleepUntil(at_ns) => return Ok(self.sleep_until(place, at_ns, now_ns)),
            Instruction::Wait { channel } => return Ok(self.wait(place, channel, now_ns)),
            Instruction::TakeRest { channel } => self.take_rest(place, channel, now_ns),
            Instruction::SignalAll { channel } => {
                for _ in 0..std::mem::take(&mut task.tokens_taken) {
                    self.signal(place, channel, now_ns);
                }
            }
            Instruction::Signal { channel } => self.signal(place, channel, now_ns),
            Instruction::Send { channel, capacity, resume_at, message_lines, queue_lines } => {
                let at = self.channel(place, channel);
                self.vms[vm.index()].channels[at].queue_lines = queue_lines;
                self.fetch_queue(place, vm, at);
                if !self.vms[vm.index()].channels[at].has_room(capacity, resume_at, id) {
                    // It tries again when it is woken.
                    self.system.kernels[on.kernel][id].next_instruction -= 1;
                    self.system.block(on, now_ns);
                    return Ok(Next::Done);
                }
                let token = match message_lines {
                    0 => Token::Signal,
                    lines => Token::Message(Message { sent_on: pcpu, lines }),
                };
                self.put(place, channel, token, true, now_ns);
            }
            Instruction::Lock { lock } => {
                if !self.take_lock(vm, lock as usize, id) {
                    self.system.processors.rerate(&self.system.kernels, pcpu);
                    return Ok(Next::Done);
                }
            }
            Instruction::Unlock { lock } => {
                self.release_lock(vm, lock as usize, id, pcpu, now_ns);
                if self.preempted_at_last(place, now_ns) {
                    return Ok(Next::Done);
                }
            }
            Instruction::FlushTlbs => {
                if self.flush_tlbs(on, id, now_ns) {
                    self.system.processors.rerate(&self.system.kernels, pcpu);
                    return Ok(Next::Done);
                }
            }
            Instruction::EndFlush => {
                if self.preempted_at_last(place, now_ns) {
                    return Ok(Next::Done);
                }
            }
            Instruction::Fork { program } => self.fork(place, program, now_ns)?,
            Instruction::Exec { program } => return Ok(self.exec(place, program, now_ns)),
            Instruction::WaitChild | Instruction::WaitChildSignal => {
                if task.ended_children == 0 {
                    task.waits_for_child = true;
                    task.is_signalled = instruction == Instruction::WaitChildSignal;
                    self.system.block(on, now_ns);
                    return Ok(Next::Done);
                }
                task.ended_children -= 1;
            }
            Instruction::Respond => {
                if let Some(request) = task.request.take() {
                    self.vms[vm.index()].responded(now_ns - request.arrived_ns);
                    self.sources[request.source as usize].answered(now_ns);
                    self.refresh_source(request.source as usize);
                }
            }
            Instruction::Count { counter, amount } => self.count(vm, counter as usize, amount),
            Instruction::StartTimer => task.timer_started_ns = now_ns,
            Instruction::StopTimer => {
                let elapsed_ns = now_ns - task.timer_started_ns;
                self.vms[vm.index()].responded(elapsed_ns);
            }
            Instruction::LoopStart { depth, times, end } => {
                task.loops[depth as usize] = times;
                if times == 0 {
                    task.next_instruction = end;
                }
            }
            Instruction::LoopEnd { depth, body } => {
                let left = &mut task.loops[depth as usize];
                *left -= 1;
                if *left > 0 {
                    task.next_instruction = body;
                }
            }
            Instruction::LoopForever { body } => task.next_instruction = body,
            Instruction::Yield => {
                self.system.yield_cpu(on, now_ns);
                self.rerate_if_still_there(place);
                return Ok(Next::Done);
            }
            Instruction::Exit => {
                self.exit(place, now_ns);
                return Ok(Next::Done);
            }
        }
        Ok(Next::Step)
    }

    /// Lets a decision be made that had to wait for the end of a spin lock; whether there was one.
    fn preempted_at_last(&mut self, place: Place, now_ns: u64) -> bool {
        let was_due = self.system.kernels[place.on.kernel].ends_deferral(place.on.cpu);
        if was_due {
            self.system.reschedule(place.on, now_ns);
            self.rerate_if_still_there(place);
        }
        was_due
    }

    /// After a decision that may have let the task go on.
    fn rerate_if_still_there(&mut self, Place { on, pcpu, task }: Place) {
        if self
            .system
            .processors
            .executing(pcpu)
            .is_some_and(|(_, now)| now.task == task && now.kernel == on.kernel)
        {
            self.system.processors.rerate(&self.system.kernels, pcpu);
        }
    }

    fn sleep_until(&mut self, Place { on, task, .. }: Place, at_ns: u64, now_ns: u64) -> Next {
        if at_ns <= now_ns {
            return Next::Step;
        }
        self.system.arm(on, at_ns, TimerTarget::Task(task));
        self.system.block(on, now_ns);
        Next::Done
    }

    /// Where a channel of the task's program is among those of its VM.
    fn channel(&self, Place { on, task, .. }: Place, channel: u32) -> usize {
        let task = &self.system.kernels[on.kernel][task];
        let is_shared = channel < self.vms[task.vm.index()].shared_channels;
        (channel + if is_shared { 0 } else { task.family_channels }) as usize
    }

    /// Takes all tokens of a channel of which one has been taken.
    fn take_rest(&mut self, place: Place, channel: u32, now_ns: u64) {
        let at = self.channel(place, channel);
        let Place { on, task, .. } = place;
        let vm = self.system.kernels[on.kernel][task].vm;
        let mut taken = 1;
        while let Some(token) = self.vms[vm.index()].channels[at].take_present(task) {
            taken += 1;
            if let Token::Message(message) = token {
                self.read(place, vm, message);
            }
            self.wake_senders(place, vm, at, now_ns);
        }
        self.system.kernels[on.kernel][task].tokens_taken = taken;
    }

    /// Wakes those who want to send into a channel from which a token was taken.
    fn wake_senders(&mut self, place: Place, vm: VmId, channel: usize, now_ns: u64) {
        for _ in 0..self.vms[vm.index()].channels[channel].senders_to_wake() {
            if let Some(sender) = self.vms[vm.index()].channels[channel].next_sender() {
                self.system.wake(sender, now_ns, place.on, true);
            }
        }
    }

    fn wait(&mut self, place: Place, channel: u32, now_ns: u64) -> Next {
        let at = self.channel(place, channel);
        let Place { on, task, .. } = place;
        let state = &mut self.system.kernels[on.kernel][task];
        let vm = state.vm;
        if let Some(message) = state.unread.take() {
            self.read(place, vm, message);
            return Next::Step;
        }
        self.fetch_queue(place, vm, at);
        let state = &mut self.system.kernels[on.kernel][task];
        match self.vms[vm.index()].channels[at].take(task) {
            Some(token) => {
                state.request = None;
                match token {
                    Token::Signal => {}
                    Token::Request(request) => state.request = Some(request),
                    Token::Message(message) => self.read(place, vm, message),
                }
                self.wake_senders(place, vm, at, now_ns);
                Next::Step
            }
            None => {
                self.system.block(on, now_ns);
                Next::Done
            }
        }
    }

    /// The task fetches the cache lines of a channel itself.
    fn fetch_queue(&mut self, place: Place, vm: VmId, channel: usize) {
        let channel = &mut self.vms[vm.index()].channels[channel];
        if let Some(from) = channel.move_queue(place.pcpu) {
            let lines = channel.queue_lines;
            self.fetch(place, vm, from, lines);
        }
    }

    /// The task fetches the cache lines of a message.
    fn read(&mut self, place: Place, vm: VmId, message: Message) {
        self.fetch(place, vm, message.sent_on, message.lines);
    }

    fn fetch(&mut self, Place { on, pcpu, .. }: Place, vm: VmId, from: CpuId, lines: u32) {
        if lines > 0 && self.system.processors.costs().coherence.is_some() {
            let fetch_ns = Coherence::fetch_ns(&self.system.machine, from, pcpu, lines);
            self.system.processors.charge(&mut self.system.kernels, on, fetch_ns);
            self.vms[vm.index()].coherence_ns += fetch_ns;
        }
    }

    fn signal(&mut self, place: Place, channel: u32, now_ns: u64) {
        if place.on.is_host() {
            self.system.processors.charge_exit(&mut self.system.kernels, place.pcpu);
        }
        self.put(place, channel, Token::Signal, false, now_ns);
    }

    fn put(&mut self, place: Place, channel: u32, token: Token, sync: bool, now_ns: u64) {
        let at = self.channel(place, channel);
        let kernel = &mut self.system.kernels[place.on.kernel];
        let vm = kernel[place.task].vm;
        if let Some(woken) = self.vms[vm.index()].channels[at].put(token) {
            kernel[woken].receive(token);
            self.system.wake(woken, now_ns, place.on, sync);
        }
    }

    /// The child shares what its parent has in the caches: their memory is the same until one of them writes.
    fn fork(
        &mut self,
        Place { on, pcpu, task: id }: Place,
        program: u32,
        now_ns: u64,
    ) -> Result<(), RunError> {
        self.system.processors.leave_caches(&mut self.system.kernels, pcpu);
        let kernel = &mut self.system.kernels[on.kernel];
        if kernel.tasks().live() >= TASKS_MAX {
            let vm = self.scenario.workloads[kernel[id].vm.index()].name.clone();
            return Err(RunError::TooManyTasks { vm, at_ns: now_ns });
        }
        let birth = kernel.tasks().birth(id);
        let parent = &mut kernel[id];
        parent.children = parent.children.wrapping_add(1);
        let key = child_key(parent.random_key, parent.children);
        let code = self.vms[parent.vm.index()].programs[program as usize].clone();
        let mut child = Task::new(parent.vm, program as usize, code, self.seed, key);
        child.parent = Some(birth);
        child.family = parent.family;
        child.family_channels = parent.family_channels;
        child.residues = parent.residues;
        child.shares_memory = true;
        child.measured_since_ns = now_ns;
        child.blocked_since_ns = now_ns;
        let facts = kernel.tasks().facts()[id.index()].clone();
        let child = kernel.add(child, facts);
        self.name_task(TaskRef { kernel: on.kernel, task: child }, now_ns);
        self.system.start_child(on, id, child, now_ns);
        Ok(())
    }

    /// The task goes on as another program, with memory that is in no cache yet.
    fn exec(&mut self, Place { on, pcpu, task: id }: Place, program: u32, now_ns: u64) -> Next {
        self.system.processors.leave_caches(&mut self.system.kernels, pcpu);
        let kernel = &mut self.system.kernels[on.kernel];
        let task = &mut kernel[id];
        let (before, total) = (task.group, finished(task, now_ns));
        task.metrics = TaskMetrics::default();
        task.measured_since_ns = now_ns;
        task.code = self.vms[task.vm.index()].programs[program as usize].clone();
        task.group = program;
        task.next_instruction = 0;
        task.profile = ProfileId::NONE;
        task.residues = [Residue::default(); 2];
        task.shares_memory = false;
        kernel.usage_mut().ends(before, &total);
        kernel.usage_mut().begins(program);
        self.name_task(TaskRef { kernel: on.kernel, task: id }, now_ns);
        match self.system.exec(on, id, now_ns) {
            true => Next::Done,
            false => Next::Step,
        }
    }

    /// The task ends. Its parent is told first: by a task that says that it is about to leave its CPU, or, if the parent
    /// handles the signal of that, by the signal. What a parent that waits for it goes on with is where the child has
    /// just used it, if the two still share their memory.
    fn exit(&mut self, Place { on, pcpu, task: id }: Place, now_ns: u64) {
        self.system.processors.leave_caches(&mut self.system.kernels, pcpu);
        self.system.kernels[on.kernel].policy_mut().exits(id);
        let kernel = &mut self.system.kernels[on.kernel];
        let child = &kernel[id];
        let left = child.shares_memory.then_some(child.residues);
        if let Some(parent) = child.parent
            && kernel[parent.task].birth == parent.number
        {
            let parent_state = &mut kernel[parent.task];
            if std::mem::take(&mut parent_state.waits_for_child) {
                parent_state.residues = left.unwrap_or(parent_state.residues);
                let sync = !parent_state.is_signalled;
                self.system.wake(parent.task, now_ns, on, sync);
            } else {
                parent_state.ended_children += 1;
            }
        }
        self.system.exit(on, now_ns);
        if !on.is_host() {
            let kernel = &mut self.system.kernels[on.kernel];
            let task = &kernel[id];
            let (program, total) = (task.group, finished(task, now_ns));
            kernel.usage_mut().ends(program, &total);
            kernel.tasks_mut().release(id);
        }
    }
}
