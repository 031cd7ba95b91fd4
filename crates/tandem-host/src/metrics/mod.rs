//! Metrics for Prometheus: what the scheduler has counted, what the machine's CPUs and nodes have, and the
//! VMs.
//!
//! ```text
//! scheduler's counters, /proc/stat, meminfo, the agent's reports ──> Exporter ──page──> Service ──HTTP──> 127.0.0.1
//! ```
//!
//! **Problem.** Operators watch hosts with Prometheus, which fetches a page of figures every few seconds.
//! Every user of the machine can connect to a port of it, so the page has to be cheap and the service hard to
//! keep busy.
//!
//! **Approach.** A page is generated on request, at most once per second ([`Exporter`]). Names follow
//! Prometheus' conventions: base units, counters that only increase, few labels. Unknown values are left out,
//! and are never 0. One thread serves all connections, which are few, with deadlines ([`Service`]).
//!
//! **Limits.** Times of CPUs begin at 0 with the agent, and so do times of VMs at home, because they could
//! fall below earlier values when a CPU or a thread goes. The other times of a VM fall if one of its vCPUs
//! has been unplugged and the agent restarts later.

mod classic;
mod collector;
mod cpu_counters;
mod exporter;
mod http;
mod service;

pub use exporter::{Exporter, Format};
pub use http::{Page, Wanted, parse as parse_request};
pub use service::Service;
