//! The scheduler's counters. `bpf/counters.h` declares and describes each of them.

use serde::{Deserialize, Serialize};
use std::sync::LazyLock;
use tandem_bpf::{COUNTERS_H, types};
use thiserror::Error;

/// The number of counters.
const COUNT: usize = size_of::<types::counters>() / size_of::<u64>();

/// Names and descriptions, in the order of the declarations.
static DECLARED: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| declarations(COUNTERS_H).collect());

/// The declarations in a text: one per line, `COUNTER(name, "description")`.
fn declarations(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let (name, description) = line.strip_prefix("COUNTER(")?.split_once(',')?;
        Some((name.trim(), description.trim().strip_prefix('"')?.strip_suffix("\")")?))
    })
}

/// The values of all counters at one time, summed over the CPUs. Serialised as pairs of name and value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<(String, u64)>", try_from = "Vec<(String, u64)>")]
pub struct Counters([u64; COUNT]);

/// Counters that another process sent are not this version's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "the loaded scheduler is of another version of tandem (the counters differ); use the command that loaded it"
)]
pub struct OtherCounters;

/// A counter with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The name, as in `bpf/counters.h`.
    pub name: &'static str,
    /// What the counter counts.
    pub description: &'static str,
    /// Events since the scheduler was loaded, or since an earlier reading.
    pub value: u64,
}

impl Counters {
    /// Size of one CPU's counters in the scheduler's map, in bytes.
    pub const SIZE: usize = size_of::<types::counters>();

    /// Adds up the counters of all CPUs, each [`Counters::SIZE`] bytes.
    pub fn sum<'a>(of_cpus: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut sums = [0; COUNT];
        for values in of_cpus {
            let (values, _) = values.as_chunks();
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += u64::from_ne_bytes(*value));
        }
        Self(sums)
    }

    /// All counters, in the order of their declarations.
    pub fn iter(&self) -> impl Iterator<Item = Counter> {
        DECLARED.iter().zip(self.0).map(|(&(name, description), value)| Counter { name, description, value })
    }

    /// The names, in the order of their declarations.
    pub fn names() -> impl Iterator<Item = &'static str> {
        DECLARED.iter().map(|(name, _)| *name)
    }

    /// The increase since an earlier reading.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut more = self.clone();
        more.0.iter_mut().zip(earlier.0).for_each(|(value, earlier)| *value = value.saturating_sub(earlier));
        more
    }
}

impl From<Counters> for Vec<(String, u64)> {
    fn from(counters: Counters) -> Self {
        counters.iter().map(|counter| (counter.name.to_owned(), counter.value)).collect()
    }
}

/// Accepts the counters of another process only if they are this version's, in order.
impl TryFrom<Vec<(String, u64)>> for Counters {
    type Error = OtherCounters;

    fn try_from(named: Vec<(String, u64)>) -> Result<Self, OtherCounters> {
        let in_order = named.iter().map(|(name, _)| name.as_str()).eq(Self::names());
        let values: Vec<u64> = named.iter().map(|(_, value)| *value).collect();
        if in_order { values.try_into().map(Self).map_err(|_| OtherCounters) } else { Err(OtherCounters) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_of_the_object_is_described() {
        assert_eq!(DECLARED.len(), COUNT);
        assert_eq!(COUNTERS_H.matches("COUNTER(").count(), COUNT + 1, "and once in the comment");
        for (name, description) in DECLARED.iter() {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert!(!description.is_empty() && !description.contains('"'), "{name}: {description}");
        }
    }

    #[test]
    fn values_are_those_of_all_cpus_in_the_order_of_the_declarations() {
        let of_cpu = |first: u64| -> Vec<u8> {
            (0..COUNT as u64).flat_map(|index| (first + index).to_ne_bytes()).collect()
        };
        let cpus = [of_cpu(10), of_cpu(100)];
        let counters = Counters::sum(cpus.iter().map(Vec::as_slice));
        let second = counters.iter().nth(1).unwrap();
        assert_eq!((second.name, second.value), (DECLARED[1].0, 11 + 101));

        let named = Vec::from(counters.clone());
        assert_eq!(Counters::try_from(named.clone()).unwrap(), counters);
        assert!(Counters::try_from(named[1..].to_vec()).is_err(), "those of another version");

        let later = Counters::sum([of_cpu(200)].iter().map(Vec::as_slice));
        assert_eq!(later.since(&counters).iter().next().unwrap().value, 200 - 110);
    }
}
