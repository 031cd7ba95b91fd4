//! Random delays and failures.

use super::super::settings::SchedExtSettings;
use crate::engine::random::{Entity, Stream};
use crate::program::Amount;

/// Random delays and failures.
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

    /// Delay of the next timer, ns.
    pub fn timer_delay_ns(&mut self) -> u64 {
        match self.timer_delay_max_ns {
            0 => 0,
            max_ns => self.stream.draw(Amount::Uniform(0, max_ns)),
        }
    }

    /// Whether the next start of a timer fails for lack of memory.
    pub fn timer_fails(&mut self) -> bool {
        self.happens(self.timer_failure_pct)
    }

    /// Whether the next allocation of storage fails.
    pub fn storage_fails(&mut self) -> bool {
        self.happens(self.storage_failure_pct)
    }

    /// A disturbance at 0% draws no random number, so that it does not change a run.
    fn happens(&mut self, pct: u8) -> bool {
        pct > 0 && self.stream.draw(Amount::Uniform(0, 99)) < u64::from(pct)
    }
}
