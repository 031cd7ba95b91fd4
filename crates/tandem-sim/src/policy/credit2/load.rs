//! Averages of load: how many vCPUs of a run queue, and how much of the time each vCPU, wanted to run.
//!
//! An average moves towards the present load by the part of a window of about a second that has passed since
//! it was last brought up to date; after a whole window it is the present load. (`update_runq_load()`,
//! `update_svc_load()`)

/// Binary digits of an average behind the point (`LOADAVG_PRECISION_SHIFT`).
pub(super) const PRECISION: u32 = 18;
/// The window is 2 to the power of this, in units of 2 to the power of [`GRANULARITY`] ns
/// (`LOADAVG_WINDOW_SHIFT`).
const WINDOW: u32 = 30 - GRANULARITY;
/// `LOADAVG_GRANULARITY_SHIFT`.
const GRANULARITY: u32 = 10;

/// The instant of a load's update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamp(i64);

impl Stamp {
    pub fn of(now_ns: u64) -> Self {
        Self((now_ns >> GRANULARITY) as i64)
    }

    /// Brings an average up to date from this instant to another one, during which the load was `load`.
    pub fn advance(self, to: Self, average: i64, load: i64) -> i64 {
        if self.0 + (1 << WINDOW) < to.0 {
            return load << PRECISION;
        }
        let passed = (to.0 - self.0).max(0);
        average + ((passed * (load << PRECISION)) >> WINDOW) - ((passed * average) >> WINDOW)
    }
}

/// The load of one vCPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct VcpuLoad {
    pub average: i64,
    stamp: Stamp,
}

impl VcpuLoad {
    /// That of a new vCPU: half of a CPU (`csched2_alloc_udata()`).
    pub fn new(now_ns: u64) -> Self {
        Self { average: 1 << (PRECISION - 1), stamp: Stamp::of(now_ns) }
    }

    /// Brings it up to date; `wanted_to_run` since the last update.
    pub fn update(&mut self, now_ns: u64, wanted_to_run: bool) {
        let now = Stamp::of(now_ns);
        self.average = self.stamp.advance(now, self.average, i64::from(wanted_to_run));
        self.stamp = now;
    }
}

/// The load of a run queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueLoad {
    /// vCPUs that run or want to.
    pub present: i64,
    /// The average that decides about balancing: with the vCPUs that were moved here in the past already
    /// counted in, and those that were moved away no longer.
    pub balanced: i64,
    stamp: Stamp,
}

impl QueueLoad {
    /// Brings it up to date, and then adds a change of the present load.
    pub fn update(&mut self, now_ns: u64, change: i64) {
        let now = Stamp::of(now_ns);
        self.balanced = self.stamp.advance(now, self.balanced, self.present);
        self.present += change;
        self.stamp = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1 << 30;

    #[test]
    fn update_runq_load_forgets_after_a_window() {
        let mut load = QueueLoad { present: 3, ..QueueLoad::default() };
        load.update(SECOND / 2, 0);
        assert_eq!(load.balanced, 3 << (PRECISION - 1), "half of the window");
        load.update(SECOND / 2 + SECOND, -1);
        assert_eq!((load.balanced, load.present), (3 << PRECISION, 2), "the whole");
        load.update(4 * SECOND, 0);
        assert_eq!(load.balanced, 2 << PRECISION, "more than that");
    }

    proptest! {
        /// An average stays between the least and the greatest load that there was.
        #[test]
        fn update_svc_load_stays_in_range(steps in prop::collection::vec((0..2 * SECOND, any::<bool>()), 1..50)) {
            let mut load = VcpuLoad::new(0);
            let mut now_ns = 0;
            for (passed_ns, wanted) in steps {
                now_ns += passed_ns;
                let before = load.average;
                load.update(now_ns, wanted);
                prop_assert!((0..=1 << PRECISION).contains(&load.average));
                // Rounding down both terms may cost one.
                let towards_it = if wanted { load.average + 1 >= before } else { load.average <= before + 1 };
                prop_assert!(towards_it, "from {} to {}", before, load.average);
            }
        }
    }
}
