//! Traces of the real Xen, recorded with `xentrace`.
//!
//! **Problem.** A model of Xen's scheduler must be compared with Xen itself. Xen records its scheduler's
//! events: a trace has the times at which each vCPU woke, ran and blocked, and so both the demand of the
//! guests and the decisions of the scheduler.
//!
//! **Approach.** In three steps, each a file:
//!
//! ```text
//! raw bytes ── record ──> Trace: the scheduler's events, in time order
//!           ── history ─> History: runs (what the scheduler decided) and bursts (what the guest asked for)
//!           ── summary ─> Summary: the figures that a model is compared with
//!           ── bursts ──> Bursts: what was asked for alone, as CSV and as programs to replay
//! ```
//!
//! **Limits.** Stamps are counts of a clock that must run at 1 GHz (as under QEMU's `-icount`) and be the
//! same on all pCPUs. Only the events about which vCPU runs are read; all others are skipped.

mod bursts;
mod history;
mod record;
mod summary;

pub use bursts::{Bursts, read_bursts, replay_programs, write_bursts};
pub use history::{Burst, History, Run, RunEnd, VcpuHistory};
pub use record::{Event, EventKind, Trace, VcpuKey, read_trace};
pub use summary::{PcpuSummary, Summary, VcpuSummary};

#[cfg(test)]
mod tests;
