//! Per-CPU variables of the kernel.

use super::Table;
use crate::fault::Fault;
use crate::runtime::Run;

pub(super) const TABLE: Table = &[("bpf_per_cpu_ptr", on_cpu), ("bpf_this_cpu_ptr", on_this_cpu)];

fn on_cpu(run: &mut Run, [variable, cpu, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    match cpu as u32 as usize {
        cpu if cpu < run.state.cpu_count => run.state.variable_at(variable, cpu),
        _ => Ok(0),
    }
}

fn on_this_cpu(run: &mut Run, [variable, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    run.state.variable_at(variable, run.kernel.cpu())
}
