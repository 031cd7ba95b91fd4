//! From the events of a scenario file to the engine's.

use super::affinity::which;
use super::amount::check_time;
use super::build::Builder;
use super::cgroups::{limit, weight};
use super::file::EventTable;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile, quoted_list};
use tandem_file::units::Duration;
use tandem_machine::ids::VmId;
use tandem_sim::scenario::{HostAction, HostEvent, Process, Scenario};

/// What can happen, for errors.
const ACTIONS: &str =
    "`set_weight`, `set_limit`, `set_nice`, `set_affinity`, `offline`, `online`, `intrude` and `reload`";

/// Most times that something happens in a run. A million are far more than a run needs, take a minute or so
/// with each kind of event, and 50 MB where each is kept.
const TIMES_MAX: u64 = 1_000_000;

/// The events, in the order of time. The scenario is whole but for them.
pub(super) fn events(
    tables: &[EventTable],
    builder: &Builder<'_>,
    scenario: &Scenario,
) -> Result<Vec<HostEvent>, FileError> {
    let events = tables.iter().map(|table| event(table, builder, scenario));
    let mut events = events.collect::<Result<Vec<_>, _>>()?;
    let mut times: u64 = 0;
    for (table, event) in tables.iter().zip(&events) {
        times = times.saturating_add(times_of(event, scenario.warmup_ns + scenario.length_ns));
        if times > TIMES_MAX {
            let span = table.every.as_ref().map_or_else(|| table.at.span(), Located::span);
            let message = format!(
                "with this event, {times} things happen in the run; at most {TIMES_MAX} are allowed, where each CPU counts that \
                 `intrude` takes"
            );
            return Err(builder.source().error(span, message));
        }
    }
    events.sort_by_key(|event| event.at_ns);
    Ok(events)
}

/// How often it happens before the end.
fn times_of(event: &HostEvent, end_ns: u64) -> u64 {
    let again = event.every_ns.map_or(0, |every_ns| (end_ns - 1 - event.at_ns) / every_ns);
    let cpus = match &event.action {
        HostAction::Intrude { cpus, .. } => cpus.count() as u64,
        _ => 1,
    };
    (1 + again).saturating_mul(cpus)
}

fn event(table: &EventTable, builder: &Builder<'_>, scenario: &Scenario) -> Result<HostEvent, FileError> {
    let source = builder.source();
    let end = Duration { ns: scenario.warmup_ns + scenario.length_ns };
    if *table.at >= end {
        let message =
            format!("the event comes at {}; allowed are times before {end}, the end of the run", *table.at);
        return Err(source.error(table.at.span(), message));
    }
    if let Some(every) = &table.every
        && (every.ns == 0 || check_time(**every).is_err())
    {
        let message = format!("it happens every {}; more than nothing and at most a day is allowed", **every);
        return Err(source.error(every.span(), message));
    }
    let mut actions = actions(table, builder, scenario)?;
    let action = match (actions.pop(), actions.is_empty()) {
        (Some(action), true) => action,
        (None, _) => {
            return Err(source.error(table.at.span(), format!("nothing happens then; there are {ACTIONS}")));
        }
        (Some(_), false) => {
            let message = format!("an event is one of {ACTIONS}; write one [[event]] for each");
            return Err(source.error(table.at.span(), message));
        }
    };
    if table.every.is_some() && matches!(action, HostAction::Offline(_) | HostAction::Online(_)) {
        let message = "`every` is not allowed with `offline` and `online`; write one [[event]] for each time";
        return Err(source.error(table.at.span(), message));
    }
    Ok(HostEvent { at_ns: table.at.ns, every_ns: table.every.as_ref().map(|every| every.ns), action })
}

/// What the table says that happens: one thing, if nothing is wrong.
fn actions(
    table: &EventTable,
    builder: &Builder<'_>,
    scenario: &Scenario,
) -> Result<Vec<HostAction>, FileError> {
    let source = builder.source();
    let cgroup = |path: &Located<String>| {
        scenario.cgroup_named(path).ok_or_else(|| {
            let known: Vec<_> = scenario.cgroup_names().map(|name| scenario.cgroup_path(name)).collect();
            let known = quoted_list(known.iter().map(String::as_str));
            source.error(path.span(), format!("there is no cgroup `{}`; cgroups: {known}", **path))
        })
    };
    let mut actions = Vec::new();
    if let Some(set) = &table.set_weight {
        let (cgroup, weight) = (cgroup(&set.cgroup)?, weight(&set.weight, source)?);
        actions.push(HostAction::SetWeight { cgroup, weight });
    }
    if let Some(set) = &table.set_limit {
        let limit = limit(Some(&set.limit), set.period.as_ref(), source)?;
        actions.push(HostAction::SetLimit { cgroup: cgroup(&set.cgroup)?, limit });
    }
    if let Some(set) = &table.set_nice {
        actions.push(HostAction::SetNice {
            vms: vms(&set.group, scenario, source)?,
            nice: nice(&set.nice, source)?,
        });
    }
    if let Some(set) = &table.set_affinity {
        let cpus = builder.cpus(&set.cpus)?.into();
        let vms = vms(&set.group, scenario, source)?;
        let first = &scenario.workloads[vms[0].index()];
        let tasks = which(set.vcpus.as_ref(), first.vm().map(|_| first.task_count()), source)?;
        actions.push(HostAction::SetAffinity { vms, tasks, cpus });
    }
    if let Some(cpus) = &table.offline {
        actions.push(HostAction::Offline(builder.cpus(cpus)?));
    }
    if let Some(cpus) = &table.online {
        actions.push(HostAction::Online(builder.cpus(cpus)?));
    }
    if let Some(intrude) = &table.intrude {
        check_time(*intrude.length).map_err(|message| source.error(intrude.length.span(), message))?;
        if intrude.length.ns == 0 {
            return Err(
                source.error(intrude.length.span(), "the length is nothing; it must be longer than \"0s\"")
            );
        }
        let cpus = builder.cpus(&intrude.cpus)?;
        actions.push(HostAction::Intrude { cpus, length_ns: intrude.length.ns });
    }
    match &table.reload {
        Some(reload) if !**reload => {
            return Err(source.error(reload.span(), "`reload` is true, or left out"));
        }
        Some(_) => actions.push(HostAction::Reload),
        None => {}
    }
    Ok(actions)
}

/// The VMs, or sets of processes, of a group.
fn vms(group: &Located<String>, scenario: &Scenario, source: &SourceFile) -> Result<Vec<VmId>, FileError> {
    let vms: Vec<_> = (0..scenario.workloads.len())
        .filter(|&vm| scenario.workloads[vm].group == **group)
        .map(VmId::from)
        .collect();
    if vms.is_empty() {
        let mut known: Vec<_> = scenario.workloads.iter().map(|vm| vm.group.as_str()).collect();
        known.dedup();
        let message = format!("there is no group `{}`; groups: {}", **group, quoted_list(known.into_iter()));
        return Err(source.error(group.span(), message));
    }
    Ok(vms)
}

/// A nice value.
pub(super) fn nice(nice: &Located<i64>, source: &SourceFile) -> Result<i8, FileError> {
    i8::try_from(**nice).ok().filter(|nice| Process::NICE.contains(nice)).ok_or_else(|| {
        let message = format!("`nice` is {}; allowed are -20 to 19", **nice);
        source.error(nice.span(), message)
    })
}
