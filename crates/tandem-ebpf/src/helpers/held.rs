//! Locks, and sections that programs begin and end. With one thread they have no effect; only their balance
//! is checked.

use super::Table;
use crate::fault::Fault;
use crate::runtime::Run;

pub(super) const TABLE: Table = &[
    ("bpf_spin_lock", lock),
    ("bpf_spin_unlock", unlock),
    ("bpf_rcu_read_lock", |run, _, _| begin(&mut run.held.rcu_sections)),
    ("bpf_rcu_read_unlock", |run, _, _| end(&mut run.held.rcu_sections, RCU)),
    ("bpf_preempt_disable", |run, _, _| begin(&mut run.held.preemption_sections)),
    ("bpf_preempt_enable", |run, _, _| end(&mut run.held.preemption_sections, PREEMPTION)),
    ("bpf_local_irq_save", save_interrupts),
    ("bpf_local_irq_restore", restore_interrupts),
];

const RCU: &str = "an RCU section";
const PREEMPTION: &str = "a section without preemption";
const INTERRUPTS: &str = "a section without interrupts";

/// The sections that a call has begun and must end.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The address of the one lock that a program may hold at a time.
    lock: Option<u64>,
    rcu_sections: u32,
    preemption_sections: u32,
    interrupt_sections: u32,
    /// References to objects that it owns.
    pub objects: u32,
}

impl Held {
    /// The address of the lock that it holds.
    pub fn lock(&self) -> Option<u64> {
        self.lock
    }

    /// Whether a call has released everything, as almost all do.
    #[inline]
    pub fn is_nothing(&self) -> bool {
        let sections = self.rcu_sections | self.preemption_sections | self.interrupt_sections;
        self.lock.is_none() && sections | self.objects == 0
    }

    /// Checks that a call of a function released everything.
    #[cold]
    pub fn check_released(&self, function: &str) -> Result<(), Fault> {
        let held = match self {
            Self { lock: Some(_), .. } => "a lock",
            Self { objects: count @ 1.., .. } => {
                return Err(Fault(format!(
                    "`{function}` returned with {count} references to objects that it neither dropped nor put away"
                )));
            }
            Self { rcu_sections: 1.., .. } => RCU,
            Self { preemption_sections: 1.., .. } => PREEMPTION,
            Self { interrupt_sections: 1.., .. } => INTERRUPTS,
            _ => return Ok(()),
        };
        Err(Fault(format!("`{function}` returned in {held} that it did not end")))
    }
}

fn lock(run: &mut Run, [lock, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    run.state.memory.slice(lock, 4)?;
    match run.held.lock.replace(lock) {
        None => Ok(0),
        Some(held) if held == lock => Err(Fault("a lock was taken that is held already".to_owned())),
        Some(_) => Err(Fault("a lock was taken while another one is held".to_owned())),
    }
}

fn unlock(run: &mut Run, [lock, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    match run.held.lock.take() {
        Some(held) if held == lock => Ok(0),
        _ => Err(Fault("a lock was released that is not held".to_owned())),
    }
}

fn save_interrupts(run: &mut Run, [flags, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    run.state.memory.store(flags, 8, 0)?;
    begin(&mut run.held.interrupt_sections)
}

fn restore_interrupts(run: &mut Run, [flags, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    run.state.memory.load(flags, 8)?;
    end(&mut run.held.interrupt_sections, INTERRUPTS)
}

fn begin(sections: &mut u32) -> Result<u64, Fault> {
    *sections += 1;
    Ok(0)
}

fn end(sections: &mut u32, what: &str) -> Result<u64, Fault> {
    *sections =
        sections.checked_sub(1).ok_or_else(|| Fault(format!("{what} was ended that had not begun")))?;
    Ok(0)
}
