//! The kernel's tracepoints: their records, and the events of a recording that they become.
//!
//! Three steps, each for those who have what it needs. A [`Merge`] takes pages of the ring buffers of CPUs
//! and gives records in the order of time; [`Formats`] decodes the bytes of a record to a [`Tracepoint`] and
//! the [`Moment`] at which it was hit; a [`Translator`] keeps the tasks and makes [`Event`](crate::Event)s.
//!
//! **Limits.** Records of little-endian machines; of tracepoints only those that [`decode`] lists.
//!
//! Source: Linux 6.12, `include/linux/ring_buffer.h`, `kernel/trace/ring_buffer.c` and
//! `include/linux/trace_events.h`.

pub mod decode;
pub mod format;
pub mod merge;
pub mod page;
pub mod symbols;
pub mod tasks;
pub mod translate;

pub use decode::{Formats, Moment, Tracepoint};
pub use merge::Merge;
pub use page::PageLayout;
pub use symbols::Symbols;
pub use tasks::Tasks;
pub use translate::Translator;
