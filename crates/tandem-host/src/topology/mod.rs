//! The topology of a machine, from the kernel (`/sys`) or hwloc (`lstopo --of xml`).
//!
//! Both readers keep only what is online and usable, and neither can know everything: clock and size of the
//! L2 caches are read where they are reported; latencies and bandwidths are
//! [`Hardware::GENERIC`](tandem_machine::Hardware::GENERIC) and
//! [`NodeSpec::GENERIC_BANDWIDTH_BYTES_PER_S`](tandem_machine::NodeSpec::GENERIC_BANDWIDTH_BYTES_PER_S).

mod hwloc;
mod sysfs;

pub use hwloc::{parse_hwloc, read_hwloc};
pub use sysfs::{read_isolated, read_sysfs, read_sysfs_assuming};

use std::io;
use std::path::PathBuf;
use tandem_machine::MachineError;
use thiserror::Error;

/// Why a description of a machine cannot be used.
#[derive(Debug, Error)]
pub enum TopologyError {
    /// A required file is missing or unreadable.
    #[error("{}: cannot be read: {cause}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A file or element is malformed.
    #[error("{place}: {message}")]
    Malformed {
        /// The file, with the line if it has more than one.
        place: String,
        /// The error, and what is expected.
        message: String,
    },
    /// All parts can be read but do not form a machine.
    #[error("{place}: {cause}")]
    Inconsistent {
        /// The file or directory.
        place: String,
        /// The inconsistency.
        cause: MachineError,
    },
}
