//! Flattened programs: loops become jumps, so that a step needs no recursion and no allocation.

use super::{Amount, MemoryProfile, Op, Program};
use std::collections::HashMap;
use std::sync::Arc;

/// Deepest nesting of [`Op::Repeat`].
pub const LOOP_DEPTH_MAX: usize = 4;

/// An instruction; operations of [`Op`], loops resolved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Instruction {
    Compute {
        work: Amount,
        profile: ProfileId,
    },
    Sleep(Amount),
    SleepUntil(u64),
    Wait {
        channel: u32,
    },
    /// Takes the remaining tokens, after a wait for the first.
    TakeRest {
        channel: u32,
    },
    SignalAll {
        channel: u32,
    },
    Signal {
        channel: u32,
    },
    Send {
        channel: u32,
        capacity: u32,
        resume_at: Option<u32>,
        message_lines: u32,
        queue_lines: u32,
    },
    Lock {
        lock: u32,
    },
    Unlock {
        lock: u32,
    },
    FlushTlbs,
    /// Follows when all have answered.
    EndFlush,
    Fork {
        program: u32,
    },
    Exec {
        program: u32,
    },
    WaitChild,
    WaitChildSignal,
    Respond,
    Count {
        counter: u32,
        amount: u64,
    },
    StartTimer,
    StopTimer,
    /// Sets the loop's counter; jumps past the loop if it is 0.
    LoopStart {
        depth: u8,
        times: u64,
        end: u32,
    },
    /// Counts down and jumps to the body's start, unless done.
    LoopEnd {
        depth: u8,
        body: u32,
    },
    LoopForever {
        body: u32,
    },
    Yield,
    Pass {
        gate: u32,
    },
    Open {
        gate: u32,
        sync: bool,
    },
    StartTask {
        workload: u32,
        task: u32,
    },
    Exit,
}

/// A memory profile in the table of a run; 0 is the empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProfileId(pub u16);

impl ProfileId {
    /// Registers and warm caches only.
    pub const NONE: Self = Self(0);
}

/// The memory profiles of a run, each once.
#[derive(Clone, Debug)]
pub(crate) struct ProfileTable(Vec<Arc<MemoryProfile>>);

impl ProfileTable {
    pub fn new() -> Self {
        Self(vec![Arc::new(MemoryProfile { parallelism: 1.0, ..MemoryProfile::default() })])
    }

    fn intern(&mut self, profile: &Arc<MemoryProfile>) -> ProfileId {
        let at = self.0.iter().position(|known| known == profile).unwrap_or_else(|| {
            self.0.push(Arc::clone(profile));
            self.0.len() - 1
        });
        ProfileId(u16::try_from(at).expect("a scenario has few profiles"))
    }

    pub fn as_slice(&self) -> &[Arc<MemoryProfile>] {
        &self.0
    }
}

/// Flattens checked programs, each once, no matter how many tasks share it.
#[derive(Debug)]
pub(crate) struct Compiler {
    pub profiles: ProfileTable,
    known: HashMap<*const Program, Arc<[Instruction]>>,
}

impl Compiler {
    pub fn new() -> Self {
        Self { profiles: ProfileTable::new(), known: HashMap::new() }
    }

    /// The program's instructions. It must not be dropped while the compiler lives.
    pub fn compile(&mut self, program: &Arc<Program>) -> Arc<[Instruction]> {
        if let Some(code) = self.known.get(&Arc::as_ptr(program)) {
            return Arc::clone(code);
        }
        let ids: Vec<ProfileId> =
            program.profiles.iter().map(|profile| self.profiles.intern(profile)).collect();
        let mut code = Vec::new();
        flatten(&program.ops, &ids, 0, &mut code);
        code.push(Instruction::Exit);
        let code: Arc<[Instruction]> = code.into();
        self.known.insert(Arc::as_ptr(program), Arc::clone(&code));
        code
    }
}

fn flatten(ops: &[Op], profiles: &[ProfileId], depth: u8, code: &mut Vec<Instruction>) {
    for op in ops {
        let instruction = match *op {
            Op::Compute { work, profile } => {
                Instruction::Compute { work, profile: profile.map_or(ProfileId::NONE, |at| profiles[at]) }
            }
            Op::Sleep(amount) => Instruction::Sleep(amount),
            Op::SleepUntil(at_ns) => Instruction::SleepUntil(at_ns),
            Op::Wait { channel } => Instruction::Wait { channel: channel as u32 },
            Op::WaitAll { channel } => {
                code.push(Instruction::Wait { channel: channel as u32 });
                Instruction::TakeRest { channel: channel as u32 }
            }
            Op::SignalAll { channel } => Instruction::SignalAll { channel: channel as u32 },
            Op::Signal { channel } => Instruction::Signal { channel: channel as u32 },
            Op::Send { channel, capacity, resume_at, message_lines, queue_lines } => {
                Instruction::Send { channel: channel as u32, capacity, resume_at, message_lines, queue_lines }
            }
            Op::Lock { lock } => Instruction::Lock { lock: lock as u32 },
            Op::Unlock { lock } => Instruction::Unlock { lock: lock as u32 },
            Op::FlushTlbs => {
                code.push(Instruction::FlushTlbs);
                Instruction::EndFlush
            }
            Op::Fork { program } => Instruction::Fork { program: program as u32 },
            Op::Exec { program } => Instruction::Exec { program: program as u32 },
            Op::WaitChild => Instruction::WaitChild,
            Op::WaitChildSignal => Instruction::WaitChildSignal,
            Op::Respond => Instruction::Respond,
            Op::Count { counter, amount } => Instruction::Count { counter: counter as u32, amount },
            Op::StartTimer => Instruction::StartTimer,
            Op::StopTimer => Instruction::StopTimer,
            Op::Yield => Instruction::Yield,
            Op::Pass { gate } => Instruction::Pass { gate: gate as u32 },
            Op::Open { gate, sync } => Instruction::Open { gate: gate as u32, sync },
            Op::StartTask { workload, task } => {
                Instruction::StartTask { workload: workload as u32, task: task as u32 }
            }
            Op::Repeat { times: None, ref body } => {
                let start = code.len() as u32;
                flatten(body, profiles, depth, code);
                Instruction::LoopForever { body: start }
            }
            Op::Repeat { times: Some(times), ref body } => {
                let start = code.len();
                code.push(Instruction::Exit);
                flatten(body, profiles, depth + 1, code);
                let end = code.len() as u32 + 1;
                code[start] = Instruction::LoopStart { depth, times, end };
                Instruction::LoopEnd { depth, body: start as u32 + 1 }
            }
        };
        code.push(instruction);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_become_jumps() {
        let program = Arc::new(Program {
            ops: vec![
                Op::Repeat {
                    times: Some(3),
                    body: vec![Op::Yield, Op::Repeat { times: Some(2), body: vec![Op::Respond] }],
                },
                Op::StartTimer,
            ],
            profiles: vec![],
        });
        let mut compiler = Compiler::new();
        let code = compiler.compile(&program);
        assert!(Arc::ptr_eq(&code, &compiler.compile(&program)), "once is enough");
        assert_eq!(
            *code,
            [
                Instruction::LoopStart { depth: 0, times: 3, end: 6 },
                Instruction::Yield,
                Instruction::LoopStart { depth: 1, times: 2, end: 5 },
                Instruction::Respond,
                Instruction::LoopEnd { depth: 1, body: 3 },
                Instruction::LoopEnd { depth: 0, body: 1 },
                Instruction::StartTimer,
                Instruction::Exit,
            ]
        );
    }

    #[test]
    fn equal_profiles_are_kept_once() {
        let profile = Arc::new(MemoryProfile { footprint_bytes: 5, parallelism: 1.0, ..Default::default() });
        let mut compiler = Compiler::new();
        let mut kept = Vec::new();
        let ops = vec![Op::Compute { work: Amount::Fixed(1), profile: Some(0) }];
        for _ in 0..2 {
            let profiles = vec![Arc::new((*profile).clone())];
            kept.push(Arc::new(Program { ops: ops.clone(), profiles }));
            let code = compiler.compile(&kept[kept.len() - 1]);
            assert_eq!(code[0], Instruction::Compute { work: Amount::Fixed(1), profile: ProfileId(1) });
        }
        assert_eq!(compiler.profiles.as_slice().len(), 2);
    }
}
