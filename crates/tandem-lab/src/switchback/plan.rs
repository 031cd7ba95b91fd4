//! Which arm runs in which block.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use serde::{Deserialize, Serialize};

/// The order of the blocks. The same plan gives the same order, and a plan with more rounds begins with the
/// order of one with fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// How many arms take turns.
    pub arms: usize,
    /// How many rounds; in each, every arm has two blocks.
    pub rounds: usize,
    /// What chance is drawn from.
    pub seed: u64,
}

impl Plan {
    /// The plan with at least so many blocks, in whole rounds.
    pub fn with_blocks(arms: usize, blocks: usize, seed: u64) -> Self {
        Self { arms, rounds: blocks.div_ceil(2 * arms.max(1)), seed }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.rounds * self.blocks_per_round()
    }

    /// How many blocks a round has.
    pub fn blocks_per_round(&self) -> usize {
        2 * self.arms
    }

    /// The arm of each block: in every round a random order, and then the same order backwards.
    pub fn order(&self) -> Vec<usize> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.seed.to_le_bytes());
        bytes[8..].copy_from_slice(&self.seed.rotate_left(32).to_le_bytes());
        let mut random = Pcg32::from_seed(bytes);
        // Seeds that differ in few bits differ in all after some steps.
        for _ in 0..8 {
            random.next_u32();
        }
        let mut order = Vec::with_capacity(self.blocks());
        for _ in 0..self.rounds {
            let mut arms: Vec<usize> = (0..self.arms).collect();
            for last in (1..self.arms).rev() {
                let chosen = (u128::from(random.next_u64()) * (last as u128 + 1)) >> 64;
                arms.swap(last, chosen as usize);
            }
            order.extend(arms.iter());
            order.extend(arms.iter().rev());
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_arm_has_the_same_place_on_average_in_every_round(arms in 2usize..6, rounds in 1usize..20, seed: u64) {
            let plan = Plan { arms, rounds, seed };
            let order = plan.order();
            prop_assert_eq!(order.len(), plan.blocks());
            for round in order.chunks(plan.blocks_per_round()) {
                for arm in 0..arms {
                    let places: Vec<_> = (0..round.len()).filter(|&at| round[at] == arm).collect();
                    prop_assert_eq!(places.len(), 2);
                    prop_assert_eq!(places.iter().sum::<usize>(), round.len() - 1);
                }
            }
        }

        #[test]
        fn a_longer_plan_begins_like_a_shorter_one(arms in 2usize..6, rounds in 1usize..20, seed: u64) {
            let plan = Plan { arms, rounds, seed };
            prop_assert_eq!(plan.order(), plan.order());
            let longer = Plan { rounds: rounds + 3, ..plan }.order();
            prop_assert_eq!(&longer[..plan.blocks()], &plan.order()[..]);
        }

        #[test]
        fn there_are_as_many_blocks_as_asked_for_and_no_round_too_many(arms in 2usize..6, blocks in 1usize..100) {
            let plan = Plan::with_blocks(arms, blocks, 1);
            prop_assert!(plan.blocks() >= blocks && plan.blocks() < blocks + plan.blocks_per_round());
        }
    }

    #[test]
    fn every_order_comes_equally_often_and_rounds_do_not_follow_each_other() {
        let plan = Plan { arms: 3, rounds: 1, seed: 0 };
        let mut counts = std::collections::BTreeMap::new();
        for seed in 0..6_000 {
            *counts.entry(Plan { seed, ..plan }.order()[..3].to_vec()).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        // Five standard deviations of a binomial number.
        assert!(counts.values().all(|count: &i32| (count - 1_000).abs() < 145), "{counts:?}");

        let order = Plan { arms: 2, rounds: 10_000, seed: 7 }.order();
        let firsts: Vec<_> = order.chunks(4).map(|round| round[0]).collect();
        let same = firsts.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!((4_750..5_250).contains(&same), "{same}");
    }
}
