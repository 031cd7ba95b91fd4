//! When ticks come: never quite at one instant.
//!
//! **Problem.** If all kernels ticked at multiples of one period since the start of the run, the ticks of
//! host and guests would coincide for ever, and so would the ends of slices that they bring. No two kernels
//! boot at one instant.
//!
//! **Approach.** Each kernel has a phase of its own, drawn from the seed, and keeps it. All CPUs of a Linux
//! kernel share it: without the boot parameter `skew_tick`, which is off by default, `tick_setup_sched_timer`
//! starts the timers of all CPUs from one origin (`kernel/time/tick-sched.c`, 3.6 to 7.3). Each pCPU of Xen
//! has its own: `csched_tick` starts the next tick a period after it has handled the last, so that it drifts,
//! and a pCPU that leaves idleness goes back to a multiple of the period since the boot
//! (`csched_tick_resume`). To that comes how late each timer interrupt is handled.
//!
//! **Limits.** The lateness of hardware is that of one machine. Clocks do not drift against each other.

/// How late timer interrupts are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Timer {
    /// As on hardware. Shares of 600,002 timer interrupts on CPU 0 of a machine of 24 CPUs at a period of 1
    /// ms: 46.1% in the first microsecond, 53.1% in the second, few after, the last in the 16th (`rtla
    /// timerlat hist`, example in Linux's `Documentation/tools/rtla/rtla-timerlat-hist.rst`).
    #[default]
    Hardware,
    /// The same, with the host's ticks at this phase of the run, ns: that of a recorded machine.
    Phased {
        /// The phase, below the period of the tick.
        phase_ns: u64,
    },
    /// Evenly up to a limit, as on emulated CPUs that take turns.
    Emulated {
        /// The latest, ns.
        late_max_ns: u64,
    },
}

impl Timer {
    /// Of 10,000 interrupts, how many are handled before the end of each microsecond.
    const HANDLED: [u64; 8] = [4_610, 9_920, 9_975, 9_991, 9_994, 9_996, 9_998, 9_999];

    /// The last microsecond in which one is handled.
    const LATEST_US: u64 = 16;

    /// The lateness of an interrupt, ns, from a random number.
    pub fn lateness_ns(self, random: u64) -> u64 {
        if let Self::Emulated { late_max_ns } = self {
            return random % (late_max_ns + 1);
        }
        let (share, within_ns) = (random % 10_000, (random / 10_000) % 1_000);
        match Self::HANDLED.iter().position(|&handled| share < handled) {
            Some(us) => us as u64 * 1_000 + within_ns,
            None => {
                let first_us = Self::HANDLED.len() as u64;
                (first_us + random / 10_000_000 % (Self::LATEST_US - first_us)) * 1_000 + within_ns
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_are_handled_within_two_microseconds_and_all_within_sixteen() {
        let random = |nth: u64| nth.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let lateness_ns: Vec<u64> =
            (0..1_000_000).map(|nth| Timer::Hardware.lateness_ns(random(nth))).collect();
        let share = |below_ns| lateness_ns.iter().filter(|&&ns| ns < below_ns).count() as f64 / 1e6;
        assert!((share(1_000) - 0.461).abs() < 0.005);
        assert!((share(2_000) - 0.992).abs() < 0.005);
        assert!((15_000..16_000).contains(lateness_ns.iter().max().unwrap()));
    }
}
