//! The functions of the kernel, as programs call them.

use super::super::functions::Function;
use super::super::settings::SchedExtSettings;
use super::super::structures::{Field, field};
use super::super::types::{
    CidTopology, InsertVtimeArgs, RunQueue, SCX_DSQ_GLOBAL, SCX_DSQ_LOCAL_CPU_MASK, SCX_DSQ_LOCAL_ON,
    SCX_OPS_TID_TO_TASK, SelectCpuAndArgs,
};
use super::idle::Search;
use super::insertions::Purpose;
use super::iteration::Iteration;
use super::run_queues::CpuState;
use super::select::Wakeup;
use super::{BOOTED_NS, ScxKernel, sets};
use tandem_ebpf::{Fault, Kernel, KernelFunction, State};
use tandem_machine::ids::CpuId;

const ENOENT: i64 = -2;
const EBUSY: i64 = -16;
const ENODEV: i64 = -19;
const EINVAL: i64 = -22;

/// More bytes than any kernel's structure of a cid's place has.
const PLACE_BYTES_MAX: u64 = 4 * CidTopology::SIZE as u64;

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
            F::Jiffies => self.clock_ns() / SchedExtSettings::TICK_PERIOD_NS,
            F::CurrentNode => self.node_of(self.cpu) as u64,
            F::CurrentTask => self.current_task(),
            F::CurrentPid => self.current_pid(),
            F::Random => self.random.next(),

            F::TaskFromPid => self.run_queues.tasks.address_of_pid(a[0] as i32),
            F::TaskFromTid => self.task_with_tid(a[0]),
            F::CgroupFromId => self.cgroups.with_id(a[0]),

            F::MaskCreate => self.sets.create(state)?,
            F::MaskAcquire => self.sets.change_users(state, a[0], 1)?,
            F::MaskRelease => self.sets.change_users(state, a[0], -1)?,
            F::MaskFirst => self.sets.first(state, a[0], a[0])?,
            F::MaskFirstZero => {
                let (all, scratch) = (self.sets.possible(), self.sets.scratch(1));
                self.sets.combine(state, scratch, (all, a[0]), |all, set| all & !set)?;
                self.sets.first(state, scratch, scratch)?
            }
            F::MaskFirstAnd => self.sets.first(state, a[0], a[1])?,
            F::MaskSet | F::MaskTestAndSet | F::MaskClearCpu | F::MaskTestAndClear => {
                let is_in = matches!(Function::from_number(function), F::MaskSet | F::MaskTestAndSet);
                match self.exists(a[0]) {
                    true => {
                        return flag(sets::assign(&mut state.memory, a[1], a[0] as u32 as usize, is_in)?);
                    }
                    false => 0,
                }
            }
            F::MaskSetAll => self.sets.set_all(state, a[0])?,
            F::MaskClear => self.sets.clear(state, a[0])?,
            F::MaskAnd => self.sets.combine(state, a[0], (a[1], a[2]), |a, b| a & b)?,
            F::MaskOr => self.sets.combine(state, a[0], (a[1], a[2]), |a, b| a | b)?,
            F::MaskXor => self.sets.combine(state, a[0], (a[1], a[2]), |a, b| a ^ b)?,
            F::MaskCopy => self.sets.combine(state, a[0], (a[1], a[1]), |a, _| a)?,
            F::MaskEqual => self.sets.all(state, (a[0], a[1]), |a, b| a == b)?,
            F::MaskIntersects => 1 - self.sets.all(state, (a[0], a[1]), |a, b| a & b == 0)?,
            F::MaskSubset => self.sets.all(state, (a[0], a[1]), |a, b| a & !b == 0)?,
            F::MaskEmpty => self.sets.all(state, (a[0], a[0]), |a, _| a == 0)?,
            F::MaskFull => self.sets.all(state, (a[0], self.sets.possible()), |a, all| all & !a == 0)?,
            F::MaskDistribute => self.distribute(state, a[0], a[0])? as u64,
            F::MaskAndDistribute => self.distribute(state, a[0], a[1])? as u64,
            F::MaskWeight => self.sets.weight(state, a[0])?,
            F::MaskPopulate => self.sets.populate(state, a[0], a[1], a[2] as u32 as usize)?,

            F::CreateQueue => self.run_queues.queues.create(state, a[0])?,
            F::DestroyQueue => {
                if let Err(message) = self.run_queues.queues.destroy(a[0]) {
                    self.complain(message);
                }
                0
            }
            F::QueueLength => {
                self.queue(a[0]).map_or(ENOENT as u64, |queue| self.run_queues.queues[queue].len() as u64)
            }
            F::QueuePeek => match self.run_queues.queues.own(a[0]) {
                Some(queue) => {
                    let first = self.run_queues.queues[queue].first();
                    first.map_or(0, |task| self.run_queues.tasks[task].address)
                }
                None => {
                    self.complain(format!("there is no dispatch queue {:#x} to look into", a[0]));
                    0
                }
            },
            F::Insert => {
                let task = self.run_queues.tasks.at(state, a[0])?;
                let arguments = [self.queue_number(a[1]), a[2], a[3]];
                return flag(self.insertions.ask(&mut self.run_queues, state, task, arguments));
            }
            F::InsertVtime => {
                let task = self.run_queues.tasks.at(state, a[0])?;
                let arguments = [self.queue_number(a[1]), a[2], a[3], a[4]];
                return flag(self.insertions.ask_by_vtime(&mut self.run_queues, state, task, arguments));
            }
            F::InsertVtimeArgs => {
                let word = |(offset, bytes): Field| state.memory.load(a[1] + offset, bytes);
                let arguments = [
                    self.queue_number(word(field!(InsertVtimeArgs, dsq_id))?),
                    word(field!(InsertVtimeArgs, slice))?,
                    word(field!(InsertVtimeArgs, vtime))?,
                    word(field!(InsertVtimeArgs, enq_flags))?,
                ];
                let task = self.run_queues.tasks.at(state, a[0])?;
                return flag(self.insertions.ask_by_vtime(&mut self.run_queues, state, task, arguments));
            }
            F::InsertionsLeft => self.insertions.left() as u64,
            F::CancelInsertion => {
                self.insertions.cancel();
                0
            }
            F::MoveToLocal | F::MoveToLocalFlags => {
                let has_flags = Function::from_number(function) == F::MoveToLocalFlags;
                let arguments = [a[0], if has_flags { a[1] } else { 0 }];
                return flag(self.insertions.consume(&mut self.run_queues, state, self.cpu, arguments));
            }
            F::Move | F::MoveVtime => {
                let by_vtime = Function::from_number(function) == F::MoveVtime;
                let iteration = Iteration(a[0]);
                let moved = iteration.prepare_move(&self.run_queues, state, a[1], (a[3], by_vtime))?;
                let Some((task, flags)) = moved else { return flag(false) };
                let to = [self.queue_number(a[2]), flags];
                return flag(self.insertions.move_to(&mut self.run_queues, state, self.cpu, task, to));
            }
            F::MoveSetSlice => Iteration(a[0]).note(state, a[1], false)?,
            F::MoveSetVtime => Iteration(a[0]).note(state, a[1], true)?,
            F::IterateNew => Iteration(a[0]).begin(&self.run_queues.queues, state, a[1], a[2])?,
            F::IterateNext => {
                let run_queues = &mut self.run_queues;
                Iteration(a[0]).next(&mut run_queues.queues, &run_queues.tasks, state)?
            }

            F::SelectDefault => {
                let task = self.run_queues.tasks.at(state, a[0])?;
                let prev_cpu = self.cpu_named(a[1])?;
                let wakeup = Wakeup { task, prev_cpu, wake_flags: a[2], allowed: None, flags: 0 };
                let cpu = self.select_asked(state, wakeup)?;
                state.memory.store(a[3], 1, u64::from(cpu.is_some()))?;
                cpu.unwrap_or(prev_cpu) as u64
            }
            F::SelectAnd => self.select_and(state, a[0], [a[1], a[2], a[4]], a[3])?,
            F::SelectAndArgs => {
                let word = |(offset, bytes): Field| state.memory.load(a[2] + offset, bytes);
                let arguments = [
                    word(field!(SelectCpuAndArgs, prev_cpu))?,
                    word(field!(SelectCpuAndArgs, wake_flags))?,
                    word(field!(SelectCpuAndArgs, flags))?,
                ];
                self.select_and(state, a[0], arguments, a[1])?
            }
            F::TestAndClearIdle => {
                return match self.tracks_idle() && self.exists(a[0]) {
                    true => flag(self.idle.take(state, a[0] as u32 as usize)?),
                    false => flag(false),
                };
            }
            F::PickIdle => match self.knows_idle() && self.tracks_idle() {
                true => cpu_or_busy(self.pick_idle(state, Search { allowed: a[0], node: 0, flags: a[1] })?),
                false => EBUSY as u64,
            },
            F::PickAny => match self.knows_idle() {
                true => cpu_or_busy(self.pick_any(state, Search { allowed: a[0], node: 0, flags: a[1] })?),
                false => EBUSY as u64,
            },
            F::PickIdleNode | F::PickAnyNode => {
                let Some(node) = self.idle_node(a[1]) else { return Ok(ENOENT as u64) };
                let search = Search { allowed: a[0], node, flags: a[2] };
                cpu_or_busy(match Function::from_number(function) {
                    F::PickIdleNode => self.pick_idle(state, search)?,
                    _ => self.pick_any(state, search)?,
                })
            }
            F::IdleMask => match self.knows_idle() && self.tracks_idle() {
                true => self.idle.cpus(0),
                false => self.sets.none(),
            },
            F::IdleCoreMask => match self.knows_idle() && self.tracks_idle() {
                true => self.idle.cores(0),
                false => self.sets.none(),
            },
            F::IdleMaskNode => self.idle_node(a[0]).map_or(self.sets.none(), |node| self.idle.cpus(node)),
            F::IdleCoreMaskNode => {
                self.idle_node(a[0]).map_or(self.sets.none(), |node| self.idle.cores(node))
            }
            F::PossibleMask => self.sets.possible(),
            F::OnlineMask => self.sets.online(),

            F::CidOfCpu => match self.exists(a[0]) {
                true => self.cids.of(a[0] as u32 as usize) as u64,
                false => {
                    self.complain(format!("CPU {} does not exist", a[0] as i32));
                    EINVAL as u64
                }
            },
            F::CpuOfCid => self.cpu_of_cid(a[0]).map_or(EINVAL as u64, |cpu| cpu as u64),
            F::CidPlace => {
                // The structure is filled even if there is no such cid.
                self.cpu_of_cid(a[0]);
                self.cids.write_place(&mut state.memory, a[0], a[1], a[2].min(PLACE_BYTES_MAX))?;
                0
            }
            F::CidNode => self.cpu_of_cid(a[0]).map_or(EINVAL as u64, |cpu| self.node_of(cpu) as u64),
            F::CidCount => self.machine.cpu_count() as u64,
            F::CidCountOnline => self.sets.weight(state, self.sets.online())?,
            F::CidsOnline => self.cids.online(),
            F::CidsReplace => self.replace_cids(state, a)?,
            F::CidKick => {
                if let Some(cpu) = self.cpu_of_cid(a[0]) {
                    self.run_queues.pending.kick(cpu, a[1]);
                }
                0
            }
            F::CidCurrent => match self.cpu_of_cid(a[0]) {
                Some(cpu) => {
                    let (offset, bytes) = field!(RunQueue, curr);
                    state.memory.load(self.run_queues.cpus[cpu].rq + offset, bytes)?
                }
                None => 0,
            },
            F::CidOfTask => {
                let task = self.run_queues.tasks.at(state, a[0])?;
                self.cids.of(self.run_queues.tasks[task].cpu) as u64
            }
            F::CidHere => self.cids.of(self.cpu) as u64,
            F::CidPerformance => self.cpu_of_cid(a[0]).map_or(EINVAL as u64, |_| 1024),
            F::CidPerformanceSet => self.cpu_of_cid(a[0]).map_or(EINVAL as u64, |_| 0),
            // There is one scheduler, which has the whole machine, and none below it.
            F::SubDispatch => 0,
            F::SubCaps if a[0] == 0 => {
                self.cids.fill(state, a[2], a[1] != 0)?;
                0
            }
            F::SubCaps | F::SubGrant | F::SubRevoke | F::SubKill => ENODEV as u64,

            F::Reenqueue => {
                self.run_queues.pending.reenqueue(self.cpu, true);
                self.run_queues.queues[self.cpu].len() as u64
            }
            F::ReenqueueQueue => {
                match self.queue(a[0]).filter(|_| a[0] != SCX_DSQ_GLOBAL) {
                    Some(position) => self.run_queues.pending.reenqueue(position, true),
                    None => self.complain(format!("dispatch queue {:#x} cannot be enqueued again", a[0])),
                }
                0
            }
            F::Kick => {
                let cpu = self.cpu_named(a[0])?;
                self.run_queues.pending.kick(cpu, a[1]);
                0
            }
            F::TaskRunning => {
                let task = self.run_queues.tasks.at(state, a[0])?;
                return flag(self.run_queues.runs(task));
            }
            F::CpuRunQueue => self.run_queues.cpus[self.cpu_named(a[0])?].rq,
            F::CpuCurrent => {
                let (offset, bytes) = field!(RunQueue, curr);
                state.memory.load(self.run_queues.cpus[self.cpu_named(a[0])?].rq + offset, bytes)?
            }
            F::CpuCount => self.machine.cpu_count() as u64,
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
        if self.insertions.purpose != Purpose::Timer && self.disturbances.timer_fails() {
            return false;
        }
        let at_ns = match absolute {
            true => nsecs.saturating_sub(BOOTED_NS).max(self.now_ns),
            false => self.now_ns.saturating_add(nsecs),
        };
        let at_ns = at_ns.saturating_add(self.disturbances.timer_delay_ns());
        self.timers.start(timer, at_ns);
        true
    }

    fn storage_is_full(&mut self) -> bool {
        self.disturbances.storage_fails()
    }

    fn cancel_timer(&mut self, timer: u64) -> bool {
        self.timers.cancel(timer)
    }
}

impl ScxKernel {
    fn exists(&self, cpu: u64) -> bool {
        (cpu as u32 as usize) < self.machine.cpu_count()
    }

    fn node_of(&self, cpu: usize) -> usize {
        self.machine.cpu(CpuId::from(cpu)).node.index()
    }

    /// The running task of this CPU; the address of a task of the kernel's own if it idles.
    fn current_task(&self) -> u64 {
        match self.run_queues.cpus[self.cpu] {
            _ if self.from_outside => self.run_queues.idle_task,
            CpuState { curr: Some(task), .. } => self.run_queues.tasks[task].address,
            CpuState { is_taken: true, .. } => self.intruder,
            CpuState { .. } => self.run_queues.idle_task,
        }
    }

    fn current_pid(&self) -> u64 {
        let current = self.run_queues.cpus[self.cpu].curr;
        let pid = current.map_or(0, |task| self.run_queues.tasks[task].pid as u64);
        pid << 32 | pid
    }

    /// The position of a queue that a program names.
    fn queue(&mut self, id: u64) -> Option<usize> {
        let id = self.queue_number(id);
        self.run_queues.queues.named(id, self.cpu, self.cpu).ok()
    }

    /// The number of a queue, with the CPU of a local queue instead of its cid.
    fn queue_number(&mut self, id: u64) -> u64 {
        if !self.cids.replace_cpus() || id & SCX_DSQ_LOCAL_ON != SCX_DSQ_LOCAL_ON {
            return id;
        }
        // A cid beyond all stays, as a CPU beyond all.
        self.cpu_of_cid(id & SCX_DSQ_LOCAL_CPU_MASK).map_or(id, |cpu| SCX_DSQ_LOCAL_ON | cpu as u64)
    }

    /// The CPU of a cid; without it, with a complaint (`cid_valid()`).
    fn cpu_of_cid(&mut self, cid: u64) -> Option<usize> {
        let cpu = self.cids.cpu(cid);
        if cpu.is_none() {
            let count = self.machine.cpu_count();
            self.complain(format!("cid {} does not exist: cids are below {count}", cid as i32));
        }
        cpu
    }

    /// The numbers that a scheduler gives its CPUs, from two arrays.
    fn replace_cids(
        &mut self,
        state: &State,
        [cids, cid_count, starts, start_count, _]: [u64; 5],
    ) -> Result<u64, Fault> {
        if self.insertions.purpose != Purpose::NumberCids {
            self.complain("`scx_bpf_cid_override()` was called outside of `init_cids`");
            return Ok(0);
        }
        let numbers = |from, count: u64| -> Result<Vec<i32>, Fault> {
            // More than there are CPUs is an error, whatever else they are.
            let count = (count as u32 as usize).min(self.machine.cpu_count() + 1);
            let bytes = state.memory.slice(from, count * 4)?.as_chunks::<4>().0;
            Ok(bytes.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect())
        };
        let (cids, starts) = (numbers(cids, cid_count)?, numbers(starts, start_count)?);
        if let Err(message) = self.cids.replace(&cids, &starts) {
            self.complain(message);
        }
        Ok(0)
    }

    /// The task with a number that no other task ever has; 0 if there is none.
    fn task_with_tid(&mut self, tid: u64) -> u64 {
        if !self.callbacks.has(SCX_OPS_TID_TO_TASK) {
            self.complain("`scx_bpf_tid_to_task()` was called without SCX_OPS_TID_TO_TASK");
            return 0;
        }
        self.run_queues.tasks.address_of_tid(tid)
    }

    /// The CPU that a program names by number; a fault if it does not exist.
    fn cpu_named(&self, cpu: u64) -> Result<usize, Fault> {
        match cpu as u32 as usize {
            named if self.exists(cpu) => Ok(named),
            _ => Err(Fault(format!(
                "CPU {} does not exist: CPUs have numbers below {}",
                cpu as i32,
                self.machine.cpu_count()
            ))),
        }
    }

    pub(super) fn complain(&mut self, message: impl Into<String>) {
        self.run_queues.pending.complain(message);
    }

    fn select_and(
        &mut self,
        state: &mut State,
        task: u64,
        [prev_cpu, wake_flags, flags]: [u64; 3],
        allowed: u64,
    ) -> Result<u64, Fault> {
        let task = self.run_queues.tasks.at(state, task)?;
        let prev_cpu = self.cpu_named(prev_cpu)?;
        let wakeup = Wakeup { task, prev_cpu, wake_flags, allowed: Some(allowed), flags };
        Ok(cpu_or_busy(self.select_asked(state, wakeup)?))
    }
}

/// The CPU, or `-EBUSY` if there is no idle one.
fn cpu_or_busy(cpu: Option<usize>) -> u64 {
    cpu.map_or(EBUSY as u64, |cpu| cpu as u64)
}
