//! Xen's credit scheduler.

mod settings;

pub use settings::{CreditSettings, Era, RateControl};
