//! The figures of a distribution of times that summaries show.

use crate::summary::number;
use serde::Serialize;
use std::fmt;
use tandem_sim::times::Times;

/// A distribution of times. Mean and maximum are exact, percentiles good to 0.1%.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LatencyFigures {
    /// Number of times.
    pub count: u64,
    /// Mean, us.
    pub mean_us: f64,
    /// Median, us.
    pub p50_us: f64,
    /// 95th percentile, us.
    pub p95_us: f64,
    /// 99th percentile, us.
    pub p99_us: f64,
    /// 99.9th percentile, us.
    pub p99_9_us: f64,
    /// Largest, us.
    pub max_us: f64,
}

impl From<&Times> for LatencyFigures {
    fn from(times: &Times) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        let [p50_us, p95_us, p99_us, p99_9_us] = times.quantiles_ns([0.50, 0.95, 0.99, 0.999]).map(us);
        Self {
            count: times.count(),
            mean_us: times.mean_ns() / 1e3,
            p50_us,
            p95_us,
            p99_us,
            p99_9_us,
            max_us: us(times.max_ns()),
        }
    }
}

/// Names of the columns that [`LatencyFigures`] prints; with `#`, the 99.9th percentile is one of them.
pub struct LatencyColumns;

impl fmt::Display for LatencyColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in ["mean us", "p50 us", "p95 us", "p99 us"] {
            write!(f, "{name:>9} ")?;
        }
        if f.alternate() {
            write!(f, "{:>9} ", "p99.9 us")?;
        }
        write!(f, "{:>9}", "max us")
    }
}

/// The times in columns, as [`LatencyColumns`] names them; dashes if there were none.
impl fmt::Display for LatencyFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |us| number((self.count > 0).then_some(us));
        for us in [self.mean_us, self.p50_us, self.p95_us, self.p99_us] {
            write!(f, "{:>9} ", shown(us))?;
        }
        if f.alternate() {
            write!(f, "{:>9} ", shown(self.p99_9_us))?;
        }
        write!(f, "{:>9}", shown(self.max_us))
    }
}
