//! Distributions of times as tables.

use super::{numbers, texts};
use crate::compare::Comparison;
use tandem_recording::parquet::{Table, Words};

/// The shares at which a distribution is given, in hundredths of a percent: in the first nine by ten percent, in each
/// further one by a tenth of what is left, as delays are about their last percent.
const SHARES: [u16; 37] = [
    0, 1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 9100, 9200, 9300, 9400, 9500, 9600, 9700, 9800,
    9900, 9910, 9920, 9930, 9940, 9950, 9960, 9970, 9980, 9990, 9991, 9992, 9993, 9994, 9995, 9996, 9997,
    9998, 9999,
];
/// A share of all.
const ALL: u16 = 10_000;

/// The times of all seeds together, of each group under each policy: `time_us` is the time that `below_pct` percent of the
/// responses, or of the delays of wake-ups, do not exceed. Shares of which less than one time is beyond are left out.
pub fn distributions(comparison: &Comparison) -> Table {
    let [mut policies, mut groups, mut measures] = [(); 3].map(|()| Words::default());
    let (mut below_pct, mut time_us) = (Vec::new(), Vec::new());
    for pooled in &comparison.pooled {
        for (which, measure) in ["response", "wake-up"].into_iter().enumerate() {
            for (policy, times) in comparison.policies.iter().zip(&pooled.times) {
                let times = &times[which];
                let values_ns = times.quantiles_ns(SHARES.map(|share| f64::from(share) / f64::from(ALL)));
                for (share, value_ns) in SHARES.into_iter().zip(values_ns) {
                    if times.count() * u64::from(ALL - share) < ALL.into() {
                        break;
                    }
                    policies.push(Some(policy));
                    groups.push(Some(&pooled.group));
                    measures.push(Some(measure));
                    below_pct.push(Some(f64::from(share) / 100.0));
                    time_us.push(Some(value_ns as f64 / 1e3));
                }
            }
        }
    }
    Table::new(vec![
        texts("policy", policies),
        texts("group", groups),
        texts("measure", measures),
        numbers("below_pct", below_pct),
        numbers("time_us", time_us),
    ])
}
