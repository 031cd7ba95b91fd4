//! Executes programs: what a task does when its burst of work has ended.

use super::RunError;
use super::simulation::Simulation;
use crate::ids::{CpuId, TaskId};
use crate::kernel::TimerTarget;
use crate::policy::Policy;
use crate::program::code::Instruction;
use crate::trace::Observer;

/// Instructions that may follow each other without taking time.
const STEPS_AT_ONCE_MAX: u64 = 1_000_000;

/// What becomes of the task after an instruction.
enum Next {
    /// It goes on with the next instruction.
    Step,
    /// It computes, or has left the CPU.
    Done,
}

impl<P: Policy, O: Observer> Simulation<'_, P, O> {
    /// Lets the task on the CPU go on with its program until that takes time.
    pub fn advance(&mut self, cpu: CpuId, now_ns: u64) -> Result<(), RunError> {
        let Some(task) = self.kernel.cpus[cpu.index()].current else {
            return Ok(());
        };
        for _ in 0..STEPS_AT_ONCE_MAX {
            if let Next::Done = self.step(cpu, task, now_ns) {
                return Ok(());
            }
        }
        Err(self.stuck_vm(self.kernel.tasks[task.index()].vm, now_ns, STEPS_AT_ONCE_MAX))
    }

    fn step(&mut self, cpu: CpuId, id: TaskId, now_ns: u64) -> Next {
        let task = &mut self.kernel.tasks[id.index()];
        let instruction = task.code[task.next_instruction as usize];
        task.next_instruction += 1;
        match instruction {
            Instruction::Compute { work, profile } => {
                let work_ns = task.random.draw(work);
                if work_ns == 0 {
                    return Next::Step;
                }
                self.kernel.begin_burst(cpu, id, work_ns, profile);
                return Next::Done;
            }
            Instruction::Sleep(amount) => {
                let sleep_ns = task.random.draw(amount);
                return self.sleep_until(cpu, id, now_ns + sleep_ns, now_ns);
            }
            Instruction::SleepUntil(at_ns) => return self.sleep_until(cpu, id, at_ns, now_ns),
            Instruction::Wait { channel } => {
                match self.vms[task.vm.index()].channels[channel as usize].take(id) {
                    Some(request) => task.request = request,
                    None => {
                        self.kernel.block(cpu, now_ns);
                        return Next::Done;
                    }
                }
            }
            Instruction::Signal { channel } => {
                let vm = task.vm;
                self.kernel.charge_exit(cpu);
                if let Some(woken) = self.vms[vm.index()].channels[channel as usize].put(None) {
                    self.kernel.tasks[woken.index()].request = None;
                    self.kernel.wake(woken, now_ns, cpu);
                }
            }
            Instruction::Send { .. }
            | Instruction::Lock { .. }
            | Instruction::Unlock { .. }
            | Instruction::Fork { .. }
            | Instruction::Exec { .. }
            | Instruction::WaitChild => unimplemented!("comes with the two-level engine"),
            Instruction::Respond => {
                if let Some(request) = task.request.take() {
                    self.vms[task.vm.index()].responded(now_ns - request.arrived_ns);
                    self.sources[request.source as usize].answered(now_ns);
                    self.refresh_source(request.source as usize);
                }
            }
            Instruction::Count { counter, amount } => {
                let vm = task.vm;
                self.count(vm, counter as usize, amount);
            }
            Instruction::StartTimer => task.timer_started_ns = now_ns,
            Instruction::StopTimer => {
                let elapsed_ns = now_ns - task.timer_started_ns;
                self.vms[task.vm.index()].responded(elapsed_ns);
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
                self.kernel.yield_cpu(cpu, now_ns);
                if self.kernel.cpus[cpu.index()].current == Some(id) {
                    self.kernel.rerate(cpu);
                }
                return Next::Done;
            }
            Instruction::Exit => {
                self.kernel.exit(cpu, now_ns);
                return Next::Done;
            }
        }
        Next::Step
    }

    fn sleep_until(&mut self, cpu: CpuId, task: TaskId, at_ns: u64, now_ns: u64) -> Next {
        if at_ns <= now_ns {
            return Next::Step;
        }
        self.kernel.arm(cpu, at_ns, TimerTarget::Task(task));
        self.kernel.block(cpu, now_ns);
        Next::Done
    }
}
