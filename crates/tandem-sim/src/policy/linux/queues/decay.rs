//! Geometric averages, with which Linux tracks load (`kernel/sched/pelt.c`).
//!
//! Time is cut into periods of 1024 us of 1024 ns each. The contribution of a period is multiplied by y for
//! each period that passes, so that it is halved after 32. The sum therefore never exceeds [`SUM_MAX`], and
//! sum divided by [`Decay::divider`] is an average.

/// Length of a period in microseconds (of 1024 ns).
const PERIOD_US: u64 = 1024;
/// Periods after which the past counts half.
const HALF_LIFE: u64 = 32;
/// The limit of the sum of a signal that is always 1 (`LOAD_AVG_MAX`).
pub(super) const SUM_MAX: u64 = 47_742;

/// y, the 32nd root of one half, in 2^64ths.
const Y: u128 = 0xfa83_b2db_722a_033a;

/// y^n in 2^32ths for n below [`HALF_LIFE`]; y^0 is the largest number that fits.
const POWERS: [u32; HALF_LIFE as usize] = {
    let mut powers = [u32::MAX; HALF_LIFE as usize];
    let mut power: u128 = 1 << 64;
    let mut n = 1;
    while n < powers.len() {
        power = (power * Y) >> 64;
        powers[n] = (power >> 32) as u32;
        n += 1;
    }
    powers
};

/// A sum after this many periods in which nothing was added to it.
pub(super) fn decayed(sum: u64, periods: u64) -> u64 {
    if periods == 0 {
        return sum;
    }
    if periods / HALF_LIFE >= u64::BITS.into() {
        return 0;
    }
    let halved = sum >> (periods / HALF_LIFE);
    ((u128::from(halved) * u128::from(POWERS[(periods % HALF_LIFE) as usize])) >> 32) as u64
}

/// The time up to which sums are current.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Decay {
    /// That time, ns; a multiple of 1024 ns from its start.
    updated_ns: u64,
    /// How much of the present period is over.
    part_us: u64,
}

/// The effect of a stretch of time on sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elapsed {
    periods: u64,
    contribution: u64,
}

impl Elapsed {
    /// Whether a period has ended in it.
    pub fn ends_period(self) -> bool {
        self.periods > 0
    }

    /// The sum after the stretch, during all of which the signal had this value.
    pub fn apply(self, sum: u64, signal: u64) -> u64 {
        decayed(sum, self.periods) + signal * self.contribution
    }
}

impl Decay {
    /// Begins now.
    pub fn starting_at(now_ns: u64) -> Self {
        Self { updated_ns: now_ns, part_us: 0 }
    }

    /// Advances to now; `None` if less than a microsecond has passed.
    pub fn advance(&mut self, now_ns: u64) -> Option<Elapsed> {
        let passed_us = now_ns.saturating_sub(self.updated_ns) / 1024;
        if passed_us == 0 {
            return None;
        }
        self.updated_ns += passed_us * 1024;
        let end_us = self.part_us + passed_us;
        let periods = end_us / PERIOD_US;
        let contribution = if periods == 0 {
            passed_us
        } else {
            let rest_of_first = decayed(PERIOD_US - self.part_us, periods);
            let full_ones = SUM_MAX - decayed(SUM_MAX, periods) - PERIOD_US;
            rest_of_first + full_ones + end_us % PERIOD_US
        };
        self.part_us = end_us % PERIOD_US;
        Some(Elapsed { periods, contribution })
    }

    /// Continues from now on another clock.
    pub fn move_to(&mut self, now_ns: u64) {
        self.updated_ns = now_ns;
    }

    /// The present sum of a signal that is always 1.
    pub fn divider(&self) -> u64 {
        SUM_MAX - PERIOD_US + self.part_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_those_of_the_32nd_root_of_one_half() {
        for (n, &power) in POWERS.iter().enumerate().skip(1) {
            let expected = libm::exp2(32.0 - n as f64 / 32.0);
            assert!((f64::from(power) - expected).abs() <= 1.0, "y^{n}");
        }
    }

    #[test]
    fn halves_in_32_periods() {
        assert_eq!(decayed(1000, 0), 1000);
        assert_eq!(decayed(1000, 32), 499, "rounded down twice");
        assert_eq!(decayed(u64::MAX, 64 * 32), 0);
    }

    /// However the time is cut, a signal that is always 1 gives an average of 1, and one that is on half of
    /// the time a half.
    #[test]
    fn averages_what_happens() {
        for step_ns in [10_000, 700_000, 1_048_576, 5_000_000] {
            let (mut decay, mut always, mut half) = (Decay::starting_at(0), 0, 0);
            for at in 1..=1_000_000_000 / step_ns {
                if let Some(step) = decay.advance(at * step_ns) {
                    always = step.apply(always, 1);
                    half = step.apply(half, at & 1);
                }
            }
            let permille = |sum: u64| sum * 1000 / decay.divider();
            assert!((997..=1000).contains(&permille(always)), "{step_ns}: {}", permille(always));
            assert!((440..=560).contains(&permille(half)), "{step_ns}: {}", permille(half));
        }
    }
}
