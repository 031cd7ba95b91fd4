//! Features that work under the kernel's own scheduler but not under this one, and faults of kernels.

use super::Finding;
use crate::core_scheduling::Means;
use crate::scheduler::{Fault, KernelTypes, Risk, RunningKernel, keeps_parts_from_starving, risks};
use crate::topology::read_sysfs;
use tandem_machine::Machine;
use tandem_settings::Partial;

pub fn check(kernel: &RunningKernel) -> Vec<Finding> {
    // The topology finding reports a machine that cannot be read.
    let Ok(machine) = read_sysfs(kernel.root()) else { return Vec::new() };
    let types = KernelTypes::read(kernel).ok();
    let release = kernel.release();
    let has = |fault: Fault| fault.is_in(&release, types.as_ref());
    // The doctor does not know the settings, nor what they leave out.
    let risks = risks(kernel, &machine, &Partial::default());
    let risk = |subject, name| {
        let risk: &Risk = risks.iter().find(|risk| risk.name() == name)?;
        Some(Finding::warning(subject, format!("{risk}; `tandem run` refuses: {}", risk.cure())))
    };

    let limits =
        risk("CPU limits", "limits").unwrap_or_else(|| Finding::ok("CPU limits", "every limit is enforced"));
    let subject = "core scheduling";
    let cookies = risk(subject, "cookies").unwrap_or_else(|| match (machine.has_smt(), has(Fault::CoreScheduling)) {
        (true, true) => Finding::warning(
            subject,
            format!(
                "Linux {release} hangs with a sched_ext scheduler as soon as a VM uses it, as VMs of Cloud Hypervisor do; \
                 boot Linux 7.2.4, 7.3 or later; until then only placement isolates VMs with `cores = \"apart\"`, and others \
                 may share their cores when the machine is busy"
            ),
        ),
        (false, true) => Finding::ok(subject, "not needed: cores have one thread each"),
        (_, false) => match Means::of(kernel, &machine).shortcoming() {
            Some(shortcoming) => Finding::ok(subject, shortcoming),
            None => Finding::ok(subject, "works with this kernel"),
        },
    });
    let subject = "pressure triggers";
    let pressure = match has(Fault::PressureTriggers) {
        true => Finding::warning(
            subject,
            format!(
                "Linux {release} hangs if a program, such as systemd at boot, sets one up (PSI) while a scheduler is loaded; \
                 boot Linux 7.1.9, 7.2 or later"
            ),
        ),
        false => Finding::ok(subject, "work with this kernel"),
    };
    let subject = "partial mode";
    let partial = Finding::ok(
        subject,
        match types.as_ref().is_some_and(keeps_parts_from_starving) {
            true => {
                "works with this kernel: tasks of a part run after others on the same CPUs, but get at least a twentieth of a CPU"
            }
            false => {
                "on this kernel a part starves beside other tasks on the same CPUs; give it CPUs of its own: `root` in its \
                 cpuset.cpus.partition"
            }
        },
    );
    vec![limits, cookies, pressure, partial, isolated(&machine), tickless(&machine)]
}

/// CPUs that the kernel's balancing leaves out.
fn isolated(machine: &Machine) -> Finding {
    let subject = "isolated CPUs";
    match machine.isolated().is_empty() {
        true => Finding::ok(subject, "none"),
        false => Finding::ok(
            subject,
            format!(
                "{}; tasks run there only by their affinity, the queues of caches do not count these CPUs, and no VM has its home there",
                machine.os_list(machine.isolated())
            ),
        ),
    }
}

/// CPUs whose tick the kernel stops while one task runs.
fn tickless(machine: &Machine) -> Finding {
    let subject = "CPUs without tick";
    match machine.tickless().is_empty() {
        true => Finding::ok(subject, "none"),
        false => Finding::ok(
            subject,
            format!(
                "{} (nohz_full); the tick stops while a task is alone on its CPU",
                machine.os_list(machine.tickless())
            ),
        ),
    }
}
