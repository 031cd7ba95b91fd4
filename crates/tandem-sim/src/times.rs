//! Distributions of times that a run measures, such as delays of wake-ups and response times.
//!
//! Millions of times would not fit as they are. A histogram keeps their distribution, whose percentiles are
//! good to 0.1%; the number, the sum and the largest of the times are kept beside it and are exact. So two
//! runs whose mean or maximum differ by a nanosecond differ in what they report. Distributions can be added
//! up: the percentile of a group is that of all its times.
//!
//! A histogram takes more than 100 KiB, and neighbouring times of a VM hit lines of it that other VMs have driven
//! out of the caches since. So the last times are kept as they are and enter the histogram many at once; a VM
//! with few times has no histogram.

use hdrhistogram::Histogram;
use std::borrow::Cow;

/// Digits of a time in a histogram that are kept: percentiles are good to 0.1%.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Times that enter the histogram at once.
const RECENT_TIMES: usize = 256;

/// A distribution of times, ns.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// Those that are not in the histogram yet, fewer than [`RECENT_TIMES`].
    recent_ns: Vec<u64>,
    histogram: Option<Box<Histogram<u64>>>,
    sum_ns: u128,
    max_ns: u64,
}

impl Times {
    /// Adds a time, ns.
    #[inline]
    pub fn record(&mut self, time_ns: u64) {
        self.recent_ns.push(time_ns);
        self.sum_ns += u128::from(time_ns);
        self.max_ns = self.max_ns.max(time_ns);
        if self.recent_ns.len() == RECENT_TIMES {
            self.enter_recent();
        }
    }

    /// Adds the times of another distribution.
    pub fn add(&mut self, other: &Self) {
        if let Some(histogram) = &other.histogram {
            self.histogram_mut().add(&**histogram).expect("it resizes to any value");
        }
        self.recent_ns.extend_from_slice(&other.recent_ns);
        if self.recent_ns.len() >= RECENT_TIMES {
            self.enter_recent();
        }
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The times of all these distributions.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        all.into_iter().fold(Self::default(), |mut sum, times| {
            sum.add(times);
            sum
        })
    }

    /// How many times there are.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, |histogram| histogram.len()) + self.recent_ns.len() as u64
    }

    /// The mean, ns, exact; 0 if there are none.
    pub fn mean_ns(&self) -> f64 {
        match self.count() {
            0 => 0.0,
            count => self.sum_ns as f64 / count as f64,
        }
    }

    /// The smallest time that this part of the times (0 to 1) does not exceed, ns, to 0.1%; 0 if there are
    /// none.
    pub fn quantile_ns(&self, part: f64) -> u64 {
        let [time_ns] = self.quantiles_ns([part]);
        time_ns
    }

    /// The same for several parts.
    pub fn quantiles_ns<const PARTS: usize>(&self, parts: [f64; PARTS]) -> [u64; PARTS] {
        let all = self.entered();
        parts.map(|part| all.as_ref().map_or(0, |all| all.value_at_quantile(part).min(self.max_ns)))
    }

    /// The largest time, ns, exact; 0 if there are none.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    #[cold]
    fn enter_recent(&mut self) {
        let mut recent_ns = std::mem::take(&mut self.recent_ns);
        let histogram = self.histogram_mut();
        for time_ns in recent_ns.drain(..) {
            histogram.record(time_ns).expect("it resizes to any value");
        }
        self.recent_ns = recent_ns;
    }

    /// A histogram of all times; `None` if there are none.
    fn entered(&self) -> Option<Cow<'_, Histogram<u64>>> {
        if self.recent_ns.is_empty() {
            return self.histogram.as_deref().map(Cow::Borrowed);
        }
        let mut all = self.clone();
        all.enter_recent();
        all.histogram.map(|histogram| Cow::Owned(*histogram))
    }

    fn histogram_mut(&mut self) -> &mut Histogram<u64> {
        self.histogram.get_or_insert_with(|| {
            let mut histogram = Histogram::new(SIGNIFICANT_DIGITS).expect("between 0 and 5 digits");
            histogram.auto(true);
            Box::new(histogram)
        })
    }
}

/// Equal are those of the same times to 0.1%, whatever has entered a histogram.
impl PartialEq for Times {
    fn eq(&self, other: &Self) -> bool {
        self.sum_ns == other.sum_ns && self.max_ns == other.max_ns && self.entered() == other.entered()
    }
}

impl FromIterator<u64> for Times {
    fn from_iter<I: IntoIterator<Item = u64>>(times_ns: I) -> Self {
        times_ns.into_iter().fold(Self::default(), |mut times, time_ns| {
            times.record(time_ns);
            times
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn sorted_quantile_ns(times_ns: &[u64], part: f64) -> u64 {
        let mut sorted = times_ns.to_vec();
        sorted.sort_unstable();
        sorted[((part * sorted.len() as f64).ceil() as usize).max(1) - 1]
    }

    proptest! {
        /// However the times are spread over distributions that are added up.
        #[test]
        fn sums_are_exact_and_percentiles_good_to_a_thousandth(
            times_ns in vec(vec(prop_oneof![0..5_000u64, 0..10_000_000_000u64, any::<u64>()], 0..400), 1..5),
        ) {
            let parts: Vec<Times> = times_ns.iter().map(|times| times.iter().copied().collect()).collect();
            let times = Times::sum(&parts);
            let all: Vec<u64> = times_ns.concat();
            prop_assert_eq!(times.count(), all.len() as u64);
            prop_assert_eq!(times.max_ns(), all.iter().copied().max().unwrap_or(0));
            if all.is_empty() {
                prop_assert_eq!((times.mean_ns(), times.quantile_ns(0.5)), (0.0, 0));
                return Ok(());
            }
            let sum: u128 = all.iter().map(|&time| u128::from(time)).sum();
            prop_assert_eq!(times.mean_ns(), sum as f64 / all.len() as f64);
            for part in [0.5, 0.95, 0.99] {
                let (found, exact) = (times.quantile_ns(part) as f64, sorted_quantile_ns(&all, part) as f64);
                prop_assert!((exact..=1.001 * exact + 1.0).contains(&found), "{part}: {found}, {exact}");
            }
        }
    }
}
