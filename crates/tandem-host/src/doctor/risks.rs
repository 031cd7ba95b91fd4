//! What works under the kernel's own scheduler and would not under this one, and faults of kernels.

use super::{Finding, read};
use crate::scheduler::{Fault, Kernel, KernelTypes, Risk, risks};
use crate::topology::read_sysfs;
use tandem_sim::machine::{format_cpulist, parse_cpulist};

pub fn look(kernel: &Kernel) -> Vec<Finding> {
    // A machine that cannot be read is told elsewhere.
    let Ok(machine) = read_sysfs(kernel.root()) else { return Vec::new() };
    let types = KernelTypes::read(kernel).ok();
    let release = kernel.release();
    let has = |fault: Fault| fault.is_in(&release, types.as_ref());
    let risks = risks(kernel, &machine);
    let risk = |subject, name| {
        let risk: &Risk = risks.iter().find(|risk| risk.name() == name)?;
        Some(Finding::warning(subject, format!("{risk}; `tandem run` refuses: {}", risk.cure())))
    };

    let limits =
        risk("CPU limits", "limits").unwrap_or_else(|| Finding::ok("CPU limits", "no limit is lost"));
    let subject = "core scheduling";
    let cookies = risk(subject, "cookies").unwrap_or_else(|| match (machine.has_smt(), has(Fault::CoreScheduling)) {
        (true, true) => Finding::warning(
            subject,
            format!(
                "Linux {release} hangs with a sched_ext scheduler as soon as a VM uses it, as those of Cloud Hypervisor do; \
                 boot Linux 7.2.4, 7.3 or a later one"
            ),
        ),
        (false, true) => Finding::ok(subject, "cores have one thread each, which need none"),
        (_, false) => Finding::ok(subject, "works with this kernel"),
    });
    let subject = "pressure triggers";
    let pressure = match has(Fault::PressureTriggers) {
        true => Finding::warning(
            subject,
            format!(
                "Linux {release} hangs if somebody, such as systemd at boot, sets one up (PSI) while a scheduler is loaded; \
                 boot Linux 7.1.9, 7.2 or a later one"
            ),
        ),
        false => Finding::ok(subject, "work with this kernel"),
    };
    vec![limits, cookies, pressure, isolated(kernel), tickless(kernel)]
}

/// CPUs that the kernel leaves out of its balancing.
fn isolated(kernel: &Kernel) -> Finding {
    let subject = "isolated CPUs";
    match cpus(kernel, "isolated") {
        Some(cpus) => Finding::ok(
            subject,
            format!(
                "{cpus}; tasks run there by their affinity alone, and no queue counts these CPUs as its own"
            ),
        ),
        None => Finding::ok(subject, "none"),
    }
}

/// CPUs whose tick the kernel stops while one task runs.
fn tickless(kernel: &Kernel) -> Finding {
    let subject = "CPUs without tick";
    match cpus(kernel, "nohz_full") {
        Some(cpus) => Finding::ok(
            subject,
            format!("{cpus} (nohz_full); the tick stops there while a task is alone on its CPU"),
        ),
        None => Finding::ok(subject, "none"),
    }
}

/// The CPUs of a file of `/sys/devices/system/cpu`; nothing if it names none, which kernels tell in several ways.
fn cpus(kernel: &Kernel, file: &str) -> Option<String> {
    let cpus = parse_cpulist(&read(kernel.root(), format!("/sys/devices/system/cpu/{file}"))?).ok()?;
    (!cpus.is_empty()).then(|| format_cpulist(cpus))
}
