//! `tandem run --observe`: the agent without a scheduler, to learn what homes would save.
//!
//! It loads nothing and steers nothing. The agent measures and plans; `tandem vms`, `tandem top`, the socket,
//! metrics and a line at each interval report the result.

use super::agent_process::{AgentProcess, Role};
use super::plan::gives_no_homes;
use super::service::Service;
use super::signals::{SignalRequest, Signals};
use super::{Args, POLL_INTERVAL, settings, settings_stay, supervise_agent};
use crate::error::BadInput;
use crate::out::out;
use crate::text::{many, pct};
use anyhow::Context;
use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, Instant};
use tandem_host::agent::VmReport;
use tandem_host::control::{Answer, Client, Request};
use tandem_host::privileges::sees_all_processes;
use tandem_host::scheduler::lock_service;
use tandem_host::vms::Identity;
use tandem_settings::Settings;

/// Observes until a signal asks for the end.
///
/// # Errors
/// If the settings give no homes, the user is not root, another `tandem run` runs, or the agent cannot be
/// started.
pub fn run(args: &Args, mut current: Settings, service: &mut Service) -> anyhow::Result<()> {
    if let Some(why) = gives_no_homes(&current) {
        return Err(BadInput::new(why).into());
    }
    if !sees_all_processes() {
        anyhow::bail!(
            "observing the VMs of all users needs root; run it with sudo, or `tandem run --plan` for your own"
        );
    }
    let _locked = lock_service()?;
    let mut signals = Signals::catch().context("cannot listen for signals")?;
    let mut agent = AgentProcess::start(&current, Role::Observe).context("cannot start the agent")?;
    writeln!(out(), "tandem: observing; no scheduler is loaded")?;
    service.ready("Observing");
    let mut figures = Figures::start(Instant::now());
    loop {
        service.alive();
        match signals.wait(POLL_INTERVAL)? {
            Some(SignalRequest::End) => {
                service.stopping();
                return Ok(());
            }
            Some(SignalRequest::Reload) => reload(args, &mut current, &mut agent)?,
            None => {}
        }
        supervise_agent(&mut agent)?;
        if let Some(line) = figures.step(Instant::now(), args.interval, ask) {
            writeln!(out(), "tandem: {line}")?;
            service.status(&format!("Observing {line}"));
        }
    }
}

/// Reads the settings again. A mistake changes nothing.
fn reload(args: &Args, current: &mut Settings, agent: &mut AgentProcess) -> anyhow::Result<()> {
    let next = settings(args).map_err(|error| error.to_string());
    let next = next.and_then(|next| gives_no_homes(&next).map_or(Ok(next), Err));
    match next {
        Ok(next) => {
            *current = next;
            agent.replace(current).context("cannot start the agent")?;
            writeln!(out(), "tandem: the agent has the new settings")?;
        }
        Err(why) => settings_stay(&why),
    }
    Ok(())
}

/// The agent's reports; nothing while it restarts.
fn ask() -> Option<Vec<VmReport>> {
    match Client::connect().ok()?.ask(&Request::Vms).ok()? {
        Answer::Vms(vms) => vms,
        _ => None,
    }
}

/// The CPU time of VMs in each interval.
struct Figures {
    /// When the last line was due.
    reported: Instant,
    /// When these VMs were read.
    read: Instant,
    vms: Vec<VmReport>,
    is_first: bool,
}

impl Figures {
    fn start(now: Instant) -> Self {
        Self { reported: now, read: now, vms: Vec::new(), is_first: true }
    }

    /// A line if one is due; never if the interval is 0. The first interval begins when the agent has found
    /// VMs, so that there is something to compare with.
    fn step(
        &mut self,
        now: Instant,
        interval: Duration,
        ask: impl FnOnce() -> Option<Vec<VmReport>>,
    ) -> Option<String> {
        let is_due = now.duration_since(self.reported) >= interval;
        let waits_for_vms = self.is_first && self.vms.is_empty();
        if interval.is_zero() || !(is_due || waits_for_vms) {
            return None;
        }
        if is_due {
            (self.reported, self.is_first) = (now, false);
        }
        let vms = ask()?;
        let line = is_due.then(|| summary(&self.vms, &vms, now.duration_since(self.read)));
        (self.read, self.vms) = (now, vms);
        line
    }
}

/// A line with the VMs' CPU time between two readings, and what their planned homes are expected to save.
fn summary(earlier: &[VmReport], now: &[VmReport], time: Duration) -> String {
    if now.is_empty() {
        return "no VMs".into();
    }
    let before: HashMap<Identity, &VmReport> = earlier.iter().map(|vm| (vm.identity, vm)).collect();
    let (mut run_ns, mut steal_ns, mut vcpus) = (0, 0, 0);
    let (mut home_ns, mut away_ns) = (0, 0);
    for vm in now {
        let Some(before) = before.get(&vm.identity) else { continue };
        let gone = |value: fn(&VmReport) -> u64| value(vm).saturating_sub(value(before));
        vcpus += vm.vcpus;
        run_ns += gone(|vm| vm.vcpu_ns);
        steal_ns += gone(|vm| vm.steal_ns.unwrap_or(0));
        let places = |vm: &VmReport| [vm.home_ns.unwrap_or(0), vm.away_ns.unwrap_or(0)];
        let (earlier, now) = (places(before), places(vm));
        // A restarted agent counts from 0.
        let from = if now[0] < earlier[0] || now[1] < earlier[1] { [0; 2] } else { earlier };
        home_ns += now[0] - from[0];
        away_ns += now[1] - from[1];
    }
    let part = |part: u64, whole: f64| (whole > 0.0).then(|| 100.0 * part as f64 / whole);
    let mut line = many(now.len(), "VM");
    if vcpus > 0 {
        let time_ns = time.as_nanos() as f64;
        line += &format!(
            ": {:.1} CPUs, steal {}",
            run_ns as f64 / time_ns,
            pct(part(steal_ns, vcpus as f64 * time_ns))
        );
    }
    if let Some(local) = part(home_ns, (home_ns + away_ns) as f64) {
        line += &format!(", {} of their time on the nodes of planned homes", pct(Some(local)));
    }
    let savings: Vec<_> = now.iter().filter_map(|vm| vm.saving).collect();
    if !savings.is_empty() {
        let sum = savings.iter().fold([0.0; 3], |[least, expected, most], saving| {
            [least + saving.least_cpus, expected + saving.expected_cpus, most + saving.most_cpus]
        });
        line += &format!("; these homes would save {:.2} CPUs ({:.2} to {:.2})", sum[1], sum[0], sum[2]);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_host::agent::MemoryReport;
    use tandem_host::vms::homes_file::HomeSaving;
    use tandem_host::vms::{Manager, Monitor};

    fn vm(pid: u32, ran_s: u64, stolen_s: u64, at_home_s: u64, saving: Option<HomeSaving>) -> VmReport {
        let s = 1_000_000_000;
        VmReport {
            identity: Identity { pid, start_ticks: 1 },
            name: "web".into(),
            manager: Manager::None,
            monitor: Monitor::Qemu,
            vcpus: 2,
            quota_cpus: None,
            memory: MemoryReport { given_bytes: None, resident_bytes: None, by_node: None, source: None },
            home: vec![1],
            why: String::new(),
            parts: Vec::new(),
            cpu_ns: ran_s * s,
            vcpu_ns: ran_s * s,
            steal_ns: Some(stolen_s * s),
            home_ns: Some(at_home_s * s),
            away_ns: Some((ran_s - at_home_s) * s),
            saving,
            cores: None,
        }
    }

    #[test]
    fn a_line_has_what_was_between() {
        let time = Duration::from_secs(10);
        let saving = HomeSaving { least_cpus: 0.1, expected_cpus: 0.3, most_cpus: 0.4 };
        let earlier = [vm(1, 100, 5, 50, None), vm(2, 0, 0, 0, None)];
        let now = [vm(1, 110, 7, 55, Some(saving)), vm(2, 5, 0, 5, Some(saving)), vm(3, 9, 9, 9, None)];
        assert_eq!(
            summary(&earlier, &now, time),
            "3 VMs: 1.5 CPUs, steal 5.0%, 67% of their time on the nodes of planned homes; these homes would save 0.60 \
             CPUs (0.20 to 0.80)"
        );
        let anew = [vm(1, 120, 7, 2, None), vm(2, 6, 0, 3, None)].map(|mut vm| {
            vm.away_ns = Some(60_000_000_000);
            vm
        });
        let line = summary(&now[..2], &anew, time);
        assert!(line.contains(", 4.0% of their time"), "a restarted agent: {line}");
        assert_eq!(summary(&[], &now[2..], time), "1 VM", "new VMs have no figures yet");
        assert_eq!(summary(&now, &[], time), "no VMs");
    }

    #[test]
    fn the_first_line_has_figures() {
        let start = Instant::now();
        let mut figures = Figures::start(start);
        let (second, interval) = (Duration::from_secs(1), Duration::from_secs(10));
        assert_eq!(figures.step(start, interval, || None), None, "the agent starts");
        assert_eq!(figures.step(start, interval, || Some(vec![])), None, "it has found nothing yet");
        let step = |figures: &mut Figures, after: u32, ran_s| {
            figures.step(start + after * second, interval, || Some(vec![vm(1, ran_s, 0, 0, None)]))
        };
        assert_eq!(step(&mut figures, 2, 100), None);
        assert_eq!(
            step(&mut figures, 3, 101),
            None,
            "it does not ask again: the interval begins with the first reports"
        );
        assert_eq!(
            step(&mut figures, 10, 108).unwrap(),
            "1 VM: 1.0 CPUs, steal 0%, 0% of their time on the nodes of planned homes"
        );
        assert_eq!(step(&mut figures, 19, 120), None);
        assert!(step(&mut figures, 20, 128).unwrap().starts_with("1 VM: 2.0 CPUs"));
        assert_eq!(figures.step(start + 99 * second, Duration::ZERO, || Some(vec![])), None);
    }
}
