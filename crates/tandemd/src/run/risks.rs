//! What keeps `tandem run` from loading the scheduler, unless the operator ignores it.

use crate::error::BadInput;
use clap::ValueEnum;
use tandem_host::scheduler::{Risk, RunningKernel, risks};
use tandem_host::topology::read_sysfs;
use tandem_settings::{Ignore, Settings};

/// A risk that is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RiskArg {
    /// Cgroups have CPU limits (cpu.max) that would not be enforced
    Limits,
    /// VMs use core scheduling, with which this kernel hangs
    Cookies,
    /// Tasks of the cgroups that are scheduled would starve beside others on this kernel
    Starvation,
}

impl RiskArg {
    /// Sets it in the settings.
    pub fn set(self, ignore: &mut Ignore) {
        match self {
            Self::Limits => ignore.limits = true,
            Self::Cookies => ignore.cookies = true,
            Self::Starvation => ignore.starvation = true,
        }
    }
}

/// Searches for risks; returns a sentence for each that is ignored.
///
/// # Errors
/// If there is one that is not ignored: bad input, because other settings cure it. Or if the machine cannot
/// be read.
pub fn accept(kernel: &RunningKernel, settings: &Settings) -> anyhow::Result<Vec<String>> {
    let machine = read_sysfs(kernel.root())?;
    let (ignored, others): (Vec<Risk>, Vec<Risk>) = risks(kernel, &machine, &settings.partial)
        .into_iter()
        .partition(|risk| risk.is_ignored(&settings.ignore));
    match others.first() {
        Some(risk) => Err(BadInput::new(format!("{risk}; {}", risk.cure())).into()),
        None => Ok(ignored.iter().map(|risk| format!("ignored: {risk}")).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::report;
    use std::process::ExitCode;
    use tandem_host::vms::testing::{Cgroups, Process, Tree};

    fn of(risks: &[RiskArg]) -> Settings {
        let mut settings = Settings::default();
        risks.iter().for_each(|risk| risk.set(&mut settings.ignore));
        settings
    }

    /// Checks that it is refused with status 2; the message.
    #[track_caller]
    fn refused(kernel: &RunningKernel, settings: &Settings) -> String {
        let error = accept(kernel, settings).unwrap_err();
        assert_eq!(format!("{:?}", report(&error)), format!("{:?}", ExitCode::from(2)));
        error.to_string()
    }

    #[test]
    fn a_risk_is_refused_until_it_is_ignored_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::new(folder.path());
        tree.machine(1, 2);
        tree.cgroups(Cgroups::Unified);
        tree.write("proc/sys/kernel/osrelease", "7.1.3\n");
        let kernel = RunningKernel::new(folder.path());
        assert_eq!(accept(&kernel, &of(&[])).unwrap(), [""; 0]);

        tree.cgroup("/machine.slice/a", "cpu.max", "50000 100000\n");
        let limits = "the CPU limits (cpu.max) of cgroups would not be enforced: /machine.slice/a";
        let cure = "remove the limits, or run it with --ignore limits";
        assert_eq!(refused(&kernel, &of(&[RiskArg::Cookies])), format!("{limits}; {cure}"));
        assert_eq!(accept(&kernel, &of(&[RiskArg::Limits])).unwrap(), [format!("ignored: {limits}")]);

        for cpu in [0, 1] {
            tree.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"), "0-1");
        }
        let vm = Process::new(700, "/usr/bin/cloud-hypervisor", &["--api-socket", "/run/web.sock"]);
        tree.process(&vm.thread("vcpu0"));
        let message = refused(&kernel, &of(&[RiskArg::Limits]));
        assert!(message.ends_with("without core scheduling, or run it with --ignore cookies"), "{message}");
        assert_eq!(accept(&kernel, &of(&[RiskArg::Limits, RiskArg::Cookies])).unwrap().len(), 2);
    }
}
