//! The recorded cgroups that a replay has.

use std::collections::BTreeMap;
use tandem_recording::Recording;
use tandem_sim::scenario::{BandwidthLimit, Cgroup};

/// The recorded cgroups that matter.
pub(super) struct Cgroups {
    pub(super) cgroups: Vec<Cgroup>,
    /// For each: it has the changed weight of a group.
    pub(super) is_weighed: Vec<bool>,
    /// The position among them of each recorded one.
    pub(super) of_recorded: Vec<Option<usize>>,
    /// Those that are there for the limit of a group, by the group and the cgroup above.
    limits: BTreeMap<(usize, Option<usize>), usize>,
}

impl Cgroups {
    pub(super) fn of(recording: &Recording) -> Self {
        let recorded = &recording.about.cgroups;
        let mut made = Self {
            cgroups: Vec::new(),
            is_weighed: Vec::new(),
            of_recorded: Vec::new(),
            limits: BTreeMap::new(),
        };
        let has_controller = recorded.iter().any(|cgroup| cgroup.weight.is_some());
        for cgroup in recorded {
            let path = cgroup.path.trim_matches('/');
            let is_deep = path.split('/').count() > Cgroup::LEVELS_MAX;
            let at = (has_controller && !path.is_empty() && !is_deep).then(|| made.declare(recording, path));
            made.of_recorded.push(at.flatten());
        }
        made.is_weighed = vec![false; made.cgroups.len()];
        made
    }

    /// The cgroup with the limit of a group, below that one.
    pub(super) fn limited(
        &mut self,
        (number, group): (usize, &str),
        parent: Option<usize>,
        limit: BandwidthLimit,
    ) -> usize {
        if let Some(&known) = self.limits.get(&(number, parent)) {
            return known;
        }
        let above = parent.map_or(String::new(), |parent| format!("{}/", self.cgroups[parent].path));
        let mut path = format!("{above}limit of {}", group.replace('/', "-"));
        // Strangers may have chosen the same.
        while self.cgroups.iter().any(|known| known.path == path) {
            path.push('\'');
        }
        self.is_weighed.push(false);
        let weight = Cgroup::DEFAULT_WEIGHT;
        self.cgroups.push(Cgroup { path, parent, weight, limit: Some(limit) });
        let at = self.cgroups.len() - 1;
        self.limits.insert((number, parent), at);
        at
    }

    /// The nearest cgroup that all of these are in, or below.
    pub(super) fn common(&self, mut all: impl Iterator<Item = Option<usize>>) -> Option<usize> {
        let above = |cgroup: Option<usize>| std::iter::successors(cgroup, |at| self.cgroups[*at].parent);
        let first = all.next().flatten();
        all.fold(first, |common, other| above(common).find(|at| above(other).any(|it| it == *at)))
    }

    /// The cgroup of this path, after those above it.
    fn declare(&mut self, recording: &Recording, path: &str) -> Option<usize> {
        if let Some(at) = self.cgroups.iter().position(|known| known.path == path) {
            return Some(at);
        }
        let parent = path.rsplit_once('/').map(|(above, _)| above);
        let parent = parent.and_then(|above| self.declare(recording, above));
        let facts = recording.about.cgroups.iter().find(|cgroup| cgroup.path.trim_matches('/') == path);
        let known = facts.and_then(|facts| facts.weight);
        // Without the controller it is no group of its own.
        let Some(weight) = known else { return parent };
        let limit = facts.and_then(|facts| facts.quota_us).map(|quota_us| BandwidthLimit {
            quota_us,
            period_us: facts.and_then(|facts| facts.period_us).unwrap_or(BandwidthLimit::DEFAULT_PERIOD_US),
        });
        let weight = (weight as u32).clamp(*Cgroup::WEIGHTS.start(), *Cgroup::WEIGHTS.end());
        self.cgroups.push(Cgroup { path: path.into(), parent, weight, limit });
        Some(self.cgroups.len() - 1)
    }
}
