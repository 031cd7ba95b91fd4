//! `tandem sim --domains`: the scheduling domains of every Linux kernel in a scenario.

use std::io::{self, Write};
use tandem_machine::Machine;
use tandem_sim::policy::linux::{LinuxSettings, describe_domains};
use tandem_sim::scenario::{PolicySettings, Scenario};

/// Kernels that build the same domains.
struct Kernels<'a> {
    names: Vec<String>,
    settings: &'a LinuxSettings,
    machine: &'a Machine,
}

/// Prints the domains of the host, if it is Linux, and of each guest; guests that are alike are printed once.
pub fn print(scenario: &Scenario, out: &mut impl Write) -> io::Result<()> {
    let mut kernels: Vec<Kernels<'_>> = Vec::new();
    match &scenario.policy {
        PolicySettings::Linux(settings) => {
            kernels.push(Kernels { names: vec!["the host".into()], settings, machine: &scenario.machine });
        }
        PolicySettings::Credit(_) | PolicySettings::Credit2(_) => {
            writeln!(out, "The host runs Xen, which has no scheduling domains.\n")?;
        }
        PolicySettings::SchedExt(settings) => {
            writeln!(out, "The host runs {}, which has no scheduling domains.\n", settings.name)?;
        }
    }
    let host_kernels = kernels.len();
    for vm in &scenario.workloads {
        let Some(guest) = vm.guest() else { continue };
        let PolicySettings::Linux(settings) = &guest.policy else { continue };
        let machine = &*guest.topology;
        let alike = |kernels: &&mut Kernels<'_>| kernels.settings == settings && kernels.machine == machine;
        match kernels[host_kernels..].iter_mut().find(alike) {
            Some(kernels) => kernels.names.push(vm.name.clone()),
            None => kernels.push(Kernels { names: vec![vm.name.clone()], settings, machine }),
        }
    }
    for (position, Kernels { names, settings, machine }) in kernels.iter().enumerate() {
        let who = if position < host_kernels { "" } else { "the guest in " };
        writeln!(out, "Scheduling domains of {who}{}:\n", names.join(", "))?;
        writeln!(out, "{}", describe_domains(settings, machine))?;
    }
    Ok(())
}
