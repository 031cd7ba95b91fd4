//! What comes late, or fails, by chance.

use super::super::settings::SchedExtSettings;
use crate::engine::random::{Entity, Stream};
use crate::program::Amount;

/// What comes late, or fails, by chance.
#[derive(Clone, Debug)]
pub struct Disturbances {
    stream: Stream,
    timer_delay_max_ns: u64,
    timer_failure_pct: u8,
    storage_failure_pct: u8,
}

impl Disturbances {
    pub fn new(settings: &SchedExtSettings, seed: u64) -> Self {
        Self {
            stream: Stream::new(seed, Entity::Disturbance, 0),
            timer_delay_max_ns: settings.timer_delay_max_ns,
            timer_failure_pct: settings.timer_failure_pct,
            storage_failure_pct: settings.storage_failure_pct,
        }
    }

    /// By how much the next timer expires late, ns.
    pub fn timer_delay_ns(&mut self) -> u64 {
        match self.timer_delay_max_ns {
            0 => 0,
            max_ns => self.stream.draw(Amount::Uniform(0, max_ns)),
        }
    }

    /// Whether the next start of a timer finds no memory.
    pub fn timer_fails(&mut self) -> bool {
        self.happens(self.timer_failure_pct)
    }

    /// Whether the next storage cannot be made.
    pub fn storage_fails(&mut self) -> bool {
        self.happens(self.storage_failure_pct)
    }

    /// What is off draws nothing: a run without it is the same as before there was such a thing.
    fn happens(&mut self, pct: u8) -> bool {
        pct > 0 && self.stream.draw(Amount::Uniform(0, 99)) < u64::from(pct)
    }
}
