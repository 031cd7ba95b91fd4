//! Computes fair shares: how much of the CPUs each task should get.
//!
//! Problem: tasks have weights, may run on some CPUs only, and none can use more than one CPU at a time. How
//! much does each get?
//!
//! Approach: weighted max-min fairness. The rate of every task grows with its weight, up to what it can use,
//! until some set of tasks fills all CPUs that they may use; the rates of these stay, those of the others
//! keep growing. Rates fit if the maximum flow from affinities to CPUs carries them; where they do not fit,
//! the smallest cut is the set that is full, and gives the level at which it fills (Newton's method on cuts,
//! as for parametric flows: it ends at the exact level after a few cuts). Rates that fit can be scheduled:
//! with preemption, tasks that use at most one CPU each and CPUs that are used at most wholly suffice.
//!
//! Limits: this is a fluid model. Real schedulers give CPU time in slices, and come close to it only over
//! many slices.

use std::collections::BTreeMap;
use tandem_machine::cpumask::CpuMask;

/// Rounding error of sums of rates.
const EPSILON: f64 = 1e-9;

/// Tasks that are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Where they may run: position among the masks.
    pub mask: usize,
    /// Weight of each.
    pub weight: f64,
    /// The most that each can use, CPUs: at most 1.
    pub at_most: f64,
    /// Number of tasks.
    pub count: usize,
}

/// The fair rate of each task of each claim, in CPUs, when tasks whose use is known already have `used[mask]`
/// of the CPUs.
pub fn fair_rates(masks: &[CpuMask], used: &[f64], claims: &[Claim]) -> Vec<f64> {
    let network = Network::new(masks);
    let mut rates: Vec<Option<f64>> = vec![None; claims.len()];
    loop {
        let open: Vec<usize> = (0..claims.len()).filter(|&at| rates[at].is_none()).collect();
        if open.is_empty() {
            return rates.into_iter().map(Option::unwrap_or_default).collect();
        }
        let mut fixed = used.to_vec();
        for (claim, rate) in claims.iter().zip(&rates) {
            fixed[claim.mask] += rate.unwrap_or(0.0) * claim.count as f64;
        }
        let open_claims: Vec<Claim> = open.iter().map(|&at| claims[at]).collect();
        let (level, full) = network.level(&fixed, &open_claims);
        for &at in &open {
            let claim = &claims[at];
            if full.as_ref().is_none_or(|full| full[claim.mask]) {
                rates[at] = Some((claim.weight * level).min(claim.at_most));
            }
        }
    }
}

/// Affinities and the CPUs that they lead to. CPUs that are in exactly the same affinities form one place.
struct Network {
    /// Places of each mask.
    places_of: Vec<Vec<usize>>,
    /// CPUs in each place.
    capacity: Vec<f64>,
}

impl Network {
    fn new(masks: &[CpuMask]) -> Self {
        let mut users: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (mask, cpus) in masks.iter().enumerate() {
            cpus.iter().for_each(|cpu| users.entry(cpu.0).or_default().push(mask));
        }
        let mut places: BTreeMap<Vec<usize>, f64> = BTreeMap::new();
        for users in users.into_values() {
            *places.entry(users).or_default() += 1.0;
        }
        let mut places_of = vec![Vec::new(); masks.len()];
        for (place, users) in places.keys().enumerate() {
            users.iter().for_each(|&mask| places_of[mask].push(place));
        }
        Self { places_of, capacity: places.into_values().collect() }
    }

    /// The highest level at which everything fits, and which masks are full there; none if each claim has all
    /// that it can use.
    fn level(&self, fixed: &[f64], open: &[Claim]) -> (f64, Option<Vec<bool>>) {
        let mut level = open.iter().map(|claim| claim.at_most / claim.weight).fold(0.0, f64::max);
        let mut full = None;
        // Each cut lowers the level, and there are finitely many cuts; the bound of the loop covers rounding
        // errors.
        for _ in 0..=2 * self.places_of.len() + open.len() {
            let mut demand = fixed.to_vec();
            for claim in open {
                demand[claim.mask] += (claim.weight * level).min(claim.at_most) * claim.count as f64;
            }
            let Some(cut) = self.cut(&demand) else { break };
            let within: Vec<Claim> = open.iter().copied().filter(|claim| cut[claim.mask]).collect();
            if within.is_empty() {
                break; // the CPUs in use already do not fit, by a rounding error
            }
            let taken: f64 = fixed.iter().zip(&cut).filter(|(_, cut)| **cut).map(|(taken, _)| taken).sum();
            level = level_that_uses(&within, (self.capacity_of(&cut) - taken).max(0.0));
            full = Some(cut);
        }
        (level, full)
    }

    /// CPUs that some of these masks lead to.
    fn capacity_of(&self, masks: &[bool]) -> f64 {
        let mut reached = vec![false; self.capacity.len()];
        for (_, places) in masks.iter().zip(&self.places_of).filter(|(is_in, _)| **is_in) {
            places.iter().for_each(|&place| reached[place] = true);
        }
        reached.iter().zip(&self.capacity).filter(|(reached, _)| **reached).map(|(_, cpus)| cpus).sum()
    }

    /// The masks of a smallest cut, whose demand together exceeds their CPUs; `None` if everything fits.
    fn cut(&self, demand: &[f64]) -> Option<Vec<bool>> {
        let masks = self.places_of.len();
        let mut left = demand.to_vec();
        let mut room = self.capacity.clone();
        let mut flow: Vec<BTreeMap<usize, f64>> = vec![BTreeMap::new(); self.capacity.len()];
        loop {
            // Breadth first from all masks with unmet demand; `None` marks a mask that is not reached.
            let mut from_place: Vec<Option<usize>> = vec![None; masks];
            let mut is_reached: Vec<bool> = left.iter().map(|&left| left > EPSILON).collect();
            let mut place_from: Vec<Option<usize>> = vec![None; self.capacity.len()];
            let mut queue: Vec<usize> = (0..masks).filter(|&mask| is_reached[mask]).collect();
            if queue.is_empty() {
                return None;
            }
            let mut found = None;
            let mut next = 0;
            'search: while next < queue.len() {
                let mask = queue[next];
                next += 1;
                for &place in &self.places_of[mask] {
                    if place_from[place].is_some() {
                        continue;
                    }
                    place_from[place] = Some(mask);
                    if room[place] > EPSILON {
                        found = Some(place);
                        break 'search;
                    }
                    for (&other, &moved) in &flow[place] {
                        if moved > EPSILON && !is_reached[other] {
                            is_reached[other] = true;
                            from_place[other] = Some(place);
                            queue.push(other);
                        }
                    }
                }
            }
            let Some(end) = found else { return Some(is_reached) };
            self.push(end, &place_from, &from_place, &mut left, &mut room, &mut flow);
        }
    }

    /// Sends as much as fits along the path that ends in the place.
    fn push(
        &self,
        end: usize,
        place_from: &[Option<usize>],
        from_place: &[Option<usize>],
        left: &mut [f64],
        room: &mut [f64],
        flow: &mut [BTreeMap<usize, f64>],
    ) {
        let mut path = Vec::new();
        let (mut place, mut most) = (end, room[end]);
        let first = loop {
            let mask = place_from[place].expect("the path was searched");
            path.push((mask, place));
            match from_place[mask] {
                None => break mask,
                Some(before) => {
                    most = most.min(flow[before][&mask]);
                    place = before;
                }
            }
        };
        most = most.min(left[first]);
        left[first] -= most;
        room[end] -= most;
        for (mask, place) in path {
            *flow[place].entry(mask).or_default() += most;
            if let Some(before) = from_place[mask] {
                *flow[before].entry(mask).or_default() -= most;
            }
        }
    }
}

/// The level at which the claims together use so many CPUs, or at which they use all that they can.
fn level_that_uses(claims: &[Claim], cpus: f64) -> f64 {
    let mut by_end: Vec<&Claim> = claims.iter().collect();
    by_end.sort_by(|a, b| (a.at_most / a.weight).total_cmp(&(b.at_most / b.weight)));
    let mut weight: f64 = claims.iter().map(|claim| claim.weight * claim.count as f64).sum();
    let mut sated = 0.0;
    for claim in by_end {
        let end = claim.at_most / claim.weight;
        if sated + weight * end >= cpus {
            return ((cpus - sated) / weight).max(0.0);
        }
        sated += claim.at_most * claim.count as f64;
        weight -= claim.weight * claim.count as f64;
        if weight <= EPSILON * claim.weight {
            return end;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tandem_machine::ids::CpuId;

    fn mask(bits: u32, cpus: usize) -> CpuMask {
        CpuMask::from_cpus(cpus, (0..cpus).map(CpuId::from).filter(|cpu| bits >> cpu.0 & 1 == 1))
    }

    fn task(mask: usize, weight: f64) -> Claim {
        Claim { mask, weight, at_most: 1.0, count: 1 }
    }

    fn close(rates: &[f64], expected: &[f64]) {
        assert_eq!(rates.len(), expected.len());
        for (rate, expected) in rates.iter().zip(expected) {
            assert!((rate - expected).abs() < 1e-6, "{rates:?}, not {expected:?}");
        }
    }

    #[test]
    fn weights_count_until_a_task_has_a_cpu_of_its_own() {
        let all = [mask(0b11, 2)];
        close(&fair_rates(&all, &[0.0], &[task(0, 3.0), task(0, 1.0), task(0, 1.0)]), &[1.0, 0.5, 0.5]);
        close(&fair_rates(&all, &[0.0], &[task(0, 1.0)]), &[1.0]);
        close(&fair_rates(&all, &[0.8], &[task(0, 2.0), task(0, 1.0)]), &[0.8, 0.4]);
    }

    #[test]
    fn affinities_split_the_machine() {
        let masks = [mask(0b001, 3), mask(0b011, 3), mask(0b111, 3)];
        let pinned = Claim { count: 3, ..task(0, 1.0) };
        // The one that may use two CPUs leaves the first to the three; the free one has the third.
        close(&fair_rates(&masks, &[0.0; 3], &[pinned, task(1, 1.0), task(2, 1.0)]), &[1.0 / 3.0, 1.0, 1.0]);
        let two = Claim { count: 2, ..task(1, 1.0) };
        close(&fair_rates(&masks[..2], &[0.0; 2], &[pinned, two]), &[1.0 / 3.0, 0.5]);
    }

    /// By brute force: raises the level in small steps, and checks every set of masks for whether the rates
    /// fit (Hall).
    fn by_brute_force(masks: &[u32], claims: &[Claim]) -> Vec<f64> {
        const STEP: f64 = 1e-4;
        let fits = |rates: &[f64]| {
            (1u32..1 << masks.len()).all(|set| {
                let chosen = |at: usize| set >> at & 1 == 1;
                let cpus = (0..masks.len()).filter(|&at| chosen(at)).fold(0, |all, at| all | masks[at]);
                let sum: f64 = claims
                    .iter()
                    .zip(rates)
                    .filter(|(claim, _)| chosen(claim.mask))
                    .map(|(_, rate)| rate)
                    .sum();
                sum <= f64::from(cpus.count_ones()) + 1e-9
            })
        };
        let mut rates = vec![0.0; claims.len()];
        let mut grows = vec![true; claims.len()];
        while grows.contains(&true) {
            for at in 0..claims.len() {
                if grows[at] {
                    let next = rates[at] + STEP * claims[at].weight;
                    let old = std::mem::replace(&mut rates[at], next);
                    if next > 1.0 + 1e-9 || !fits(&rates) {
                        rates[at] = old;
                        grows[at] = false;
                    }
                }
            }
        }
        rates
    }

    proptest! {
        #[test]
        fn rates_are_those_of_brute_force(
            masks in vec(1u32..16, 1..4),
            tasks in vec((0usize..4, prop::sample::select(vec![0.5, 1.0, 2.0, 3.0])), 1..7),
        ) {
            let claims: Vec<Claim> = tasks.iter().map(|&(at, weight)| task(at % masks.len(), weight)).collect();
            let sets: Vec<CpuMask> = masks.iter().map(|&bits| mask(bits, 4)).collect();
            let rates = fair_rates(&sets, &vec![0.0; sets.len()], &claims);
            for (rate, expected) in rates.iter().zip(by_brute_force(&masks, &claims)) {
                prop_assert!((rate - expected).abs() < 5e-3, "{rates:?} {claims:?} {masks:?}: {expected}");
            }
        }
    }
}
