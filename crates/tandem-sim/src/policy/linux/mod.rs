//! Linux's fair scheduler: CFS of the 3.6 and 4.2 eras, and EEVDF of 6.12.

mod settings;

pub use settings::{Domains, LinuxEra, LinuxSettings};
