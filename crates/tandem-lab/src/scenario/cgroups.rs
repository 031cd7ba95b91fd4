//! From the cgroups of a scenario file to the engine's.

use super::amount::{Count, count_in};
use super::build::Builder;
use super::file::CgroupTable;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_file::units::Duration;
use tandem_sim::scenario::{BandwidthLimit, Cgroup};

const NS_PER_US: u64 = 1_000;
/// Largest limit: all CPUs of a large machine, many times over.
const PCT_MAX: u64 = 1_000_000;

impl Builder<'_> {
    /// Adds a cgroup with what its table says.
    pub(super) fn add_cgroup(
        &mut self,
        table: &CgroupTable,
        declared: &mut Vec<usize>,
    ) -> Result<(), FileError> {
        let weight = match &table.weight {
            None => Cgroup::DEFAULT_WEIGHT,
            Some(weight) => count_in(weight, "`weight`", Cgroup::WEIGHTS, self.source())?,
        };
        let limit = limit(table.limit.as_ref(), table.period.as_ref(), self.source())?;
        let at = self.cgroup(&table.path)?;
        if declared.contains(&at) {
            let message = format!("the cgroup `{}` is there twice; leave one out", *table.path);
            return Err(self.source().error(table.path.span(), message));
        }
        declared.push(at);
        (self.cgroups[at].weight, self.cgroups[at].limit) = (weight, limit);
        Ok(())
    }

    /// The position of the cgroup with a path. It and those above it are made if they are not there.
    pub(super) fn cgroup(&mut self, path: &Located<String>) -> Result<usize, FileError> {
        let names: Vec<&str> = path.split('/').collect();
        if names.iter().any(|name| name.is_empty() || matches!(*name, "." | "..")) {
            let message = format!(
                "`{}` is no path of a cgroup; it has names with `/` between them, as \"machine.slice/web\"",
                **path
            );
            return Err(self.source().error(path.span(), message));
        }
        if names.len() >= Cgroup::LEVELS_MAX {
            let message = format!(
                "`{}` has {} levels; at most {} are allowed",
                **path,
                names.len(),
                Cgroup::LEVELS_MAX - 1
            );
            return Err(self.source().error(path.span(), message));
        }
        let mut parent = None;
        for depth in 1..=names.len() {
            let path = names[..depth].join("/");
            let known = self.cgroups.iter().position(|cgroup| cgroup.path == path);
            parent = Some(known.unwrap_or_else(|| {
                self.cgroups.push(Cgroup { path, parent, weight: Cgroup::DEFAULT_WEIGHT, limit: None });
                self.cgroups.len() - 1
            }));
        }
        Ok(parent.expect("a path has a name"))
    }

    /// The position of the cgroup with a path, if there is one.
    pub(super) fn cgroup_of(&mut self, path: Option<&Located<String>>) -> Result<Option<usize>, FileError> {
        path.map(|path| self.cgroup(path)).transpose()
    }
}

/// A limit, in percent of one CPU, and its period.
pub(super) fn limit(
    limit: Option<&Located<String>>,
    period: Option<&Located<Duration>>,
    source: &SourceFile,
) -> Result<Option<BandwidthLimit>, FileError> {
    let Some(limit) = limit else {
        return match period {
            Some(period) => Err(source.error(period.span(), "a `period` needs a `limit` such as \"150%\"")),
            None => Ok(None),
        };
    };
    if limit.as_str() == "max" {
        return Ok(None);
    }
    let pct = limit.strip_suffix('%').and_then(|pct| pct.trim().parse::<u64>().ok());
    let Some(pct) = pct.filter(|pct| (1..=PCT_MAX).contains(pct)) else {
        let message =
            format!("`{}` is no limit; allowed are \"1%\" of one CPU and more, and \"max\"", **limit);
        return Err(source.error(limit.span(), message));
    };
    let period_us = period.map_or(BandwidthLimit::DEFAULT_PERIOD_US, |period| period.ns / NS_PER_US);
    if let Some(period) = period
        && !BandwidthLimit::PERIODS_US.contains(&period_us)
    {
        let message = format!("the period is {}; \"1ms\" to \"1s\" are allowed", **period);
        return Err(source.error(period.span(), message));
    }
    let quota_us = period_us * pct / 100;
    if quota_us < BandwidthLimit::QUOTA_MIN_US {
        let message =
            format!("{pct}% of {period_us} us is less than 1 ms, which is the least that Linux allows");
        return Err(source.error(limit.span(), message));
    }
    Ok(Some(BandwidthLimit { quota_us, period_us }))
}

/// A weight that a cgroup gets.
pub(super) fn weight(weight: &Located<Count>, source: &SourceFile) -> Result<u32, FileError> {
    count_in(weight, "`weight`", Cgroup::WEIGHTS, source)
}
