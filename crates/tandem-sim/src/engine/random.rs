//! Random streams, one for each source of randomness.
//!
//! A stream is keyed by (seed, entity, index), not by when it is drawn from, so that two variants of a
//! scenario see the same arrivals and the same amounts of work whatever path they take (common random
//! numbers).

use crate::program::Amount;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;

/// What a stream belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entity {
    /// The program of a task.
    Task = 1,
    /// A source of interrupts.
    Source = 2,
    /// What befell a VM before the run.
    Past = 3,
    /// When a VM starts, and how long it lives.
    Life = 4,
    /// What a kernel does late, or not at all.
    Disturbance = 5,
    /// Where in its period a kernel ticks.
    TickPhase = 6,
    /// How late a tick is.
    TickLateness = 7,
    /// Whether a CPU that has run out of work searches for some.
    NewIdle = 8,
}

/// A reproducible stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream(Pcg32);

impl Stream {
    /// The stream of the `index`-th entity of its kind under this seed.
    pub fn new(seed: u64, entity: Entity, index: u64) -> Self {
        let key = random(seed, entity, index);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&key.to_le_bytes());
        bytes[8..].copy_from_slice(&mix(key).to_le_bytes());
        Self(Pcg32::from_seed(bytes))
    }

    /// Draws an amount, ns. A fixed amount draws nothing.
    #[inline]
    pub fn draw(&mut self, amount: Amount) -> u64 {
        match amount {
            Amount::Fixed(ns) => ns,
            Amount::Uniform(low_ns, high_ns) => {
                let range = u128::from(high_ns - low_ns) + 1;
                low_ns + ((u128::from(self.0.next_u64()) * range) >> 64) as u64
            }
            Amount::Exponential(mean_ns) => (mean_ns as f64 * -libm::log(self.open_unit())).round() as u64,
        }
    }

    /// Brings the items into an order in which each is as likely as any other to come first, second, and so
    /// on.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.draw(Amount::Uniform(0, last as u64)) as usize;
            items.swap(last, other);
        }
    }

    /// A number in (0, 1].
    fn open_unit(&mut self) -> f64 {
        const STEPS: f64 = (1u64 << 53) as f64;
        ((self.0.next_u64() >> 11) + 1) as f64 / STEPS
    }
}

/// One random number for an entity of a kind under a seed.
pub fn random(seed: u64, entity: Entity, index: u64) -> u64 {
    mix(mix(seed).wrapping_add(mix((entity as u64) << 32 ^ index)))
}

/// The key of the `nth` child of a task with this key: it depends on the family alone, not on when it was
/// born.
pub fn child_key(parent: u64, nth: u32) -> u64 {
    mix(mix(parent).wrapping_add(u64::from(nth)))
}

/// Spreads the bits of a key: the finaliser of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom
/// Number Generators", OOPSLA 2014).
fn mix(key: u64) -> u64 {
    let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of these numbers changes every result ever published with this program.
    #[test]
    fn golden_draws() {
        let mut stream = Stream::new(1, Entity::Task, 0);
        let draws: Vec<u64> = [
            Amount::Fixed(7),
            Amount::Uniform(10, 20),
            Amount::Uniform(0, u64::MAX),
            Amount::Exponential(1_000_000),
            Amount::Exponential(1_000_000),
        ]
        .map(|amount| stream.draw(amount))
        .to_vec();
        assert_eq!(draws, [7, 15, 5_069_957_745_931_422_595, 171_840, 4_918_139]);
    }

    #[test]
    fn streams_differ_by_each_part_of_their_key() {
        let first = |seed, entity, index| Stream::new(seed, entity, index).draw(Amount::Uniform(0, u64::MAX));
        let base = first(1, Entity::Task, 0);
        assert_eq!(base, first(1, Entity::Task, 0));
        assert_ne!(base, first(2, Entity::Task, 0));
        assert_ne!(base, first(1, Entity::Source, 0));
        assert_ne!(base, first(1, Entity::Task, 1));
    }

    #[test]
    fn every_order_is_equally_likely() {
        let mut stream = Stream::new(5, Entity::Past, 0);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..6_000 {
            let mut items = [1, 2, 3];
            stream.shuffle(&mut items);
            *seen.entry(items).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 6);
        assert!(seen.values().all(|&times| (850..1_150).contains(&times)), "{seen:?}");
    }

    #[test]
    fn means_are_as_asked_for() {
        let mut stream = Stream::new(3, Entity::Source, 5);
        let mean = |stream: &mut Stream, amount| {
            (0..100_000).map(|_| stream.draw(amount) as f64).sum::<f64>() / 100_000.0
        };
        assert!((mean(&mut stream, Amount::Exponential(5_000)) / 5_000.0 - 1.0).abs() < 0.02);
        assert!((mean(&mut stream, Amount::Uniform(100, 300)) / 200.0 - 1.0).abs() < 0.01);
    }
}
