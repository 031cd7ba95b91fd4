//! What each function of the kernel does for a program.

use super::functions::Function;
use super::idle::PF_EXITING;
use super::kernel::{BOOTED_NS, CpuState, Purpose, ScxKernel, field};
use super::masks;
use super::types::{
    InsertVtimeArgs, SCX_DSQ_GLOBAL, SCX_DSQ_LOCAL, SCX_ENQ_DSQ_PRIQ, SelectCpuAndArgs, Task,
};
use tandem_ebpf::{Fault, Kernel, KernelFunction, State};
use tandem_machine::ids::CpuId;

const ENOENT: i64 = -2;
const EACCES: i64 = -13;

impl Kernel for ScxKernel {
    #[inline]
    fn cpu(&self) -> usize {
        self.cpu
    }

    #[inline]
    fn clock_ns(&self) -> u64 {
        self.now_ns + BOOTED_NS
    }

    fn call(&mut self, state: &mut State, function: KernelFunction, a: [u64; 5]) -> Result<u64, Fault> {
        use Function as F;
        let flag = |is: bool| Ok(u64::from(is));
        Ok(match Function::from_number(function) {
            F::Jiffies => self.clock_ns() / super::settings::SchedExtSettings::TICK_PERIOD_NS,
            F::CurrentNode => self.node_of(self.cpu) as u64,
            F::CurrentTask => self.current_task(),
            F::CurrentPid => self.current_pid(),
            F::Random => self.next_random(),

            F::TaskFromPid => {
                self.by_pid.get(&(a[0] as i32)).map_or(0, |task| self.tasks[task.index()].address)
            }
            F::CgroupAncestor => self.cgroup_ancestor(state, a[0], a[1] as i32)?,
            F::CgroupFromId => self.cgroup_with_id(a[0]),

            F::MaskCreate => self.new_mask(state)?,
            F::MaskAcquire => self.change_mask_users(state, a[0], 1)?,
            F::MaskRelease => self.change_mask_users(state, a[0], -1)?,
            F::MaskFirst => self.first(state, a[0], a[0])?,
            F::MaskFirstZero => {
                let all = self.possible_mask;
                let scratch = self.scratch_masks[1];
                self.combine(state, scratch, (all, a[0]), |all, set| all & !set)?;
                self.first(state, scratch, scratch)?
            }
            F::MaskFirstAnd => self.first(state, a[0], a[1])?,
            F::MaskSet | F::MaskTestAndSet | F::MaskClearCpu | F::MaskTestAndClear => {
                let is_in = matches!(Function::from_number(function), F::MaskSet | F::MaskTestAndSet);
                match self.exists(a[0]) {
                    true => {
                        return flag(masks::assign(&mut state.memory, a[1], a[0] as u32 as usize, is_in)?);
                    }
                    false => 0,
                }
            }
            F::MaskSetAll => self.set_all(state, a[0])?,
            F::MaskClear => {
                state.memory.slice_mut(a[0], self.mask_words * 8)?.fill(0);
                0
            }
            F::MaskAnd => self.combine(state, a[0], (a[1], a[2]), |a, b| a & b)?,
            F::MaskOr => self.combine(state, a[0], (a[1], a[2]), |a, b| a | b)?,
            F::MaskXor => self.combine(state, a[0], (a[1], a[2]), |a, b| a ^ b)?,
            F::MaskCopy => self.combine(state, a[0], (a[1], a[1]), |a, _| a)?,
            F::MaskEqual => self.all(state, (a[0], a[1]), |a, b| a == b)?,
            F::MaskIntersects => 1 - self.all(state, (a[0], a[1]), |a, b| a & b == 0)?,
            F::MaskSubset => self.all(state, (a[0], a[1]), |a, b| a & !b == 0)?,
            F::MaskEmpty => self.all(state, (a[0], a[0]), |a, _| a == 0)?,
            F::MaskFull => self.all(state, (a[0], self.possible_mask), |a, all| all & !a == 0)?,
            F::MaskDistribute => self.distribute(state, a[0], a[0])? as u64,
            F::MaskAndDistribute => self.distribute(state, a[0], a[1])? as u64,
            F::MaskWeight => self.weight(state, a[0])?,
            F::MaskPopulate => self.populate(state, a[0], a[1], a[2] as u32 as usize)?,

            F::CreateQueue => self.create_queue(state, a[0])?,
            F::DestroyQueue => {
                self.destroy_queue(a[0]);
                0
            }
            F::QueueLength => {
                self.queue_at(a[0]).map_or(ENOENT as u64, |queue| self.queues[queue].len() as u64)
            }
            F::QueuePeek => match self.own_queues.get(&a[0]) {
                Some(&queue) => self.queues[queue].first().map_or(0, |task| self.tasks[task.index()].address),
                None => {
                    self.complain(format!("there is no dispatch queue {:#x} to look into", a[0]));
                    0
                }
            },
            F::Insert => return flag(self.insert(state, a[0], a[1], a[2], a[3])?),
            F::InsertVtime => return flag(self.insert_vtime(state, a[0], [a[1], a[2], a[3], a[4]])?),
            F::InsertVtimeArgs => {
                let word = |(offset, bytes): (u64, usize)| state.memory.load(a[1] + offset, bytes);
                let arguments = [
                    word(field!(InsertVtimeArgs, dsq_id))?,
                    word(field!(InsertVtimeArgs, slice))?,
                    word(field!(InsertVtimeArgs, vtime))?,
                    word(field!(InsertVtimeArgs, enq_flags))?,
                ];
                return flag(self.insert_vtime(state, a[0], arguments)?);
            }
            F::InsertionsLeft => {
                self.callbacks.dispatch_max_batch.saturating_sub(self.insertions.len()) as u64
            }
            F::CancelInsertion => {
                self.insertions.pop();
                0
            }
            F::MoveToLocal => return flag(self.move_to_local(state, a[0], a[1])?),
            F::Move => return flag(self.move_from_iteration(state, a, false)?),
            F::MoveVtime => return flag(self.move_from_iteration(state, a, true)?),
            F::MoveSetSlice => self.note_for_move(state, a[0], a[1], false)?,
            F::MoveSetVtime => self.note_for_move(state, a[0], a[1], true)?,
            F::IterateNew => self.iterate(state, a[0], a[1], a[2])?,
            F::IterateNext => self.iterate_next(state, a[0])?,

            F::SelectDefault => {
                let task = self.task_at(state, a[0])?;
                let prev_cpu = self.cpu_named(a[1])?;
                let cpu = self.select_default(state, task, prev_cpu, a[2], None, 0)?;
                state.memory.store(a[3], 1, u64::from(cpu.is_some()))?;
                cpu.unwrap_or(prev_cpu) as u64
            }
            F::SelectAnd => self.select_and(state, a[0], [a[1], a[2], a[4]], a[3])?,
            F::SelectAndArgs => {
                let word = |(offset, bytes): (u64, usize)| state.memory.load(a[2] + offset, bytes);
                let arguments = [
                    word(field!(SelectCpuAndArgs, prev_cpu))?,
                    word(field!(SelectCpuAndArgs, wake_flags))?,
                    word(field!(SelectCpuAndArgs, flags))?,
                ];
                self.select_and(state, a[0], arguments, a[1])?
            }
            F::TestAndClearIdle => match self.exists(a[0]) {
                true => return flag(self.take_idle(state, a[0] as u32 as usize)?),
                false => 0,
            },
            F::PickIdle => {
                let cpu = self.pick_idle(state, a[0], a[1])?;
                Self::cpu_or_busy(cpu)
            }
            F::PickIdleNode => {
                let cpu = self.pick_idle(state, a[0], a[2])?;
                Self::cpu_or_busy(cpu)
            }
            F::PickAny => self.pick_any(state, a[0], a[1])?,
            F::PickAnyNode => self.pick_any(state, a[0], a[2])?,
            F::IdleMask => self.idle_mask,
            F::IdleCoreMask if self.has_smt => self.idle_core_mask,
            F::IdleCoreMask => self.idle_mask,
            F::PossibleMask => self.possible_mask,
            F::OnlineMask => self.online_mask,

            F::Reenqueue => {
                self.want_reenqueue(self.cpu, true);
                self.queues[self.cpu].len() as u64
            }
            F::ReenqueueQueue => {
                match self.queue_at(a[0]).filter(|_| a[0] != SCX_DSQ_GLOBAL) {
                    Some(position) => self.want_reenqueue(position, true),
                    None => self.complain(format!("dispatch queue {:#x} cannot be enqueued again", a[0])),
                }
                0
            }
            F::Kick => {
                let cpu = self.cpu_named(a[0])?;
                self.kicks.push((cpu, a[1]));
                0
            }
            F::TaskRunning => {
                let task = self.task_at(state, a[0])?;
                return flag(self.cpus[self.tasks[task.index()].cpu].curr == Some(task));
            }
            F::CpuRunQueue => self.cpus[self.cpu_named(a[0])?].rq,
            F::CpuCurrent => {
                let cpu = self.cpu_named(a[0])?;
                let other = if self.cpus[cpu].is_taken { self.intruder } else { 0 };
                self.cpus[cpu].curr.map_or(other, |task| self.tasks[task.index()].address)
            }
            F::CpuCount => self.cpu_count as u64,
            F::NodeCount => self.machine.node_count() as u64,
            F::CpuNode => self.node_of(self.cpu_named(a[0])?) as u64,
            // All CPUs are equal, and run at one speed.
            F::PerformanceCap | F::PerformanceNow => 1024,
            F::Exit => {
                let message = state.format(a[1], a[2], a[3] as usize)?;
                self.complain(format!("it asked to be unloaded (code {}): {message}", a[0] as i64));
                0
            }
            F::Error => {
                let message = state.format(a[0], a[1], a[2] as usize)?;
                self.complain(format!("it gave up: {message}"));
                0
            }
        })
    }

    fn start_timer(&mut self, timer: u64, nsecs: u64, absolute: bool) -> bool {
        if !self.in_timer && self.disturbances.timer_fails() {
            return false;
        }
        let at_ns = match absolute {
            true => nsecs.saturating_sub(BOOTED_NS).max(self.now_ns),
            false => self.now_ns.saturating_add(nsecs),
        };
        let at_ns = at_ns.saturating_add(self.disturbances.timer_delay_ns());
        self.cancel_timer(timer);
        let token = self.next_token;
        self.next_token = token.wrapping_add(1);
        self.timers.insert(timer, token);
        self.armed.insert(token, timer);
        self.alarms.push((at_ns, token));
        true
    }

    fn storage_is_full(&mut self) -> bool {
        self.disturbances.storage_fails()
    }

    fn cancel_timer(&mut self, timer: u64) -> bool {
        let token = self.timers.remove(&timer);
        token.is_some_and(|token| self.armed.remove(&token).is_some())
    }
}

impl ScxKernel {
    fn exists(&self, cpu: u64) -> bool {
        (cpu as u32 as usize) < self.cpu_count
    }

    fn node_of(&self, cpu: usize) -> usize {
        self.machine.cpu(CpuId::from(cpu)).node.index()
    }

    /// The running task of this CPU; the address of a task of the kernel's own if it idles.
    fn current_task(&self) -> u64 {
        match self.cpus[self.cpu] {
            _ if self.from_outside => self.idle_task,
            CpuState { curr: Some(task), .. } => self.tasks[task.index()].address,
            CpuState { is_taken: true, .. } => self.intruder,
            CpuState { .. } => self.idle_task,
        }
    }

    fn current_pid(&self) -> u64 {
        let pid = self.cpus[self.cpu].curr.map_or(0, |task| self.tasks[task.index()].pid as u64);
        pid << 32 | pid
    }

    /// xorshift64*.
    pub fn next_random(&mut self) -> u64 {
        let mut x = self.random;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random = x;
        x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    fn populate(&mut self, state: &mut State, mask: u64, from: u64, size: usize) -> Result<u64, Fault> {
        if !size.is_multiple_of(8) || size < self.mask_words * 8 {
            return Ok(EACCES as u64);
        }
        let scratch = self.scratch_masks[1];
        for offset in (0..self.mask_words as u64).map(|word| word * 8) {
            let word = state.memory.load(from + offset, 8)?;
            state.memory.store(scratch + offset, 8, word)?;
        }
        let all = self.possible_mask;
        self.combine(state, mask, (scratch, all), |set, all| set & all)?;
        Ok(0)
    }

    fn insert_vtime(
        &mut self,
        state: &mut State,
        task: u64,
        [queue, slice, vtime, flags]: [u64; 4],
    ) -> Result<bool, Fault> {
        let inserted = self.insert(state, task, queue, slice, flags | SCX_ENQ_DSQ_PRIQ)?;
        if inserted {
            let task = self.task_at(state, task)?;
            self.set(state, task, field!(Task, scx.dsq_vtime), vtime);
        }
        Ok(inserted)
    }

    fn move_to_local(&mut self, state: &mut State, queue: u64, flags: u64) -> Result<bool, Fault> {
        if self.purpose != Purpose::Dispatch {
            self.complain("a queue was consumed outside of `dispatch`");
            return Ok(false);
        }
        self.flush_insertions(state);
        let Some(flags) = self.vetted(SCX_DSQ_LOCAL, flags) else { return Ok(false) };
        match self.own_queues.get(&queue) {
            Some(&position) => Ok(self.move_first(state, position, self.cpu, flags)),
            None => {
                self.complain(format!("there is no dispatch queue {queue:#x} to consume"));
                Ok(false)
            }
        }
    }

    fn pick_any(&mut self, state: &mut State, allowed: u64, flags: u64) -> Result<u64, Fault> {
        let idle = if self.callbacks.builtin_idle() { self.pick_idle(state, allowed, flags)? } else { None };
        let cpu = match idle {
            Some(cpu) => cpu,
            None => self.distribute(state, allowed, allowed)?,
        };
        Ok(Self::cpu_or_busy(Some(cpu).filter(|&cpu| cpu < self.cpu_count)))
    }

    fn select_and(
        &mut self,
        state: &mut State,
        task: u64,
        [prev_cpu, wake_flags, flags]: [u64; 3],
        allowed: u64,
    ) -> Result<u64, Fault> {
        let task = self.task_at(state, task)?;
        let prev_cpu = self.cpu_named(prev_cpu)?;
        let cpu = self.select_default(state, task, prev_cpu, wake_flags, Some(allowed), flags)?;
        Ok(Self::cpu_or_busy(cpu))
    }

    /// Whether the running task of a CPU exits.
    pub fn exits(&self, state: &State, cpu: usize) -> bool {
        self.cpus[cpu].curr.is_some_and(|curr| self.get(state, curr, field!(Task, flags)) & PF_EXITING != 0)
    }
}
