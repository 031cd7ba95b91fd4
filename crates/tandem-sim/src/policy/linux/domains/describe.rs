//! Prints the domains in the form of a kernel that is booted with `sched_debug` (`sched_verbose` in 6.12; 5.2
//! has the log of 6.12): first its log, then the constants, a line a domain, as in the files under
//! `/proc/sys/kernel/sched_domain` or, in 6.12, `/sys/kernel/debug/sched/domains`.
//!
//! Flags are shown by name throughout; the older kernels show a number there.

use super::level::CPU_CAPACITY;
use super::{Domain, DomainTree, Group};
use crate::policy::linux::LinuxSettings;
use crate::policy::linux::features::Features;
use std::fmt::{self, Write};
use tandem_machine::Machine;
use tandem_machine::ids::CpuId;

/// Lists the scheduling domains that a kernel with these settings builds on the machine that it sees.
pub fn describe(settings: &LinuxSettings, machine: &Machine) -> String {
    let features = Features::of(settings.era);
    let tree = DomainTree::new(&features.domains, settings.domains, machine);
    let printer = Printer { tree, features, machine };
    let mut text = String::new();
    printer.print(&mut text).expect("a string takes all that is written");
    text
}

struct Printer<'a> {
    tree: DomainTree,
    features: &'static Features,
    machine: &'a Machine,
}

impl Printer<'_> {
    fn print(&self, out: &mut String) -> fmt::Result {
        for cpu in self.machine.all_cpus().iter() {
            self.attach(out, cpu)?;
        }
        writeln!(out, "{}:", self.features.domains.folder)?;
        for cpu in self.machine.all_cpus().iter() {
            for (level, at) in self.tree.of(cpu).enumerate() {
                write!(out, "cpu{}/domain{level}:", self.os_index(cpu))?;
                self.constants(out, self.tree.domain(at))?;
            }
        }
        Ok(())
    }

    fn os_index(&self, cpu: CpuId) -> u32 {
        self.machine.cpu(cpu).os_index
    }

    /// The log of one CPU.
    fn attach(&self, out: &mut String, cpu: CpuId) -> fmt::Result {
        let number = self.os_index(cpu);
        let domains = self.tree.of(cpu);
        if domains.is_empty() {
            return writeln!(out, "CPU{number} attaching NULL sched-domain.");
        }
        let with_spans = self.features.domains.capacity_word.is_none();
        let plural = if with_spans { "(s)" } else { "" };
        writeln!(out, "CPU{number} attaching sched-domain{plural}:")?;
        for (level, at) in domains.enumerate() {
            let name = self.tree.domain(at).name;
            let span = self.machine.os_list(&self.tree.span(at).cpus);
            if with_spans {
                writeln!(out, "{:level$} domain-{level}: span={span} level={name}", "")?;
            } else {
                writeln!(out, "{:level$} domain {level}: span {span} level {name}", "")?;
            }
            write!(out, "{:1$} groups:", "", level + 1)?;
            for (nth, group) in self.tree.groups(at).enumerate() {
                self.group(out, nth, group)?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn group(&self, out: &mut String, nth: usize, group: &Group) -> fmt::Result {
        let cpus = self.machine.os_list(&group.cpus);
        let unusual = group.capacity != CPU_CAPACITY;
        match self.features.domains.capacity_word {
            Some(word) => {
                write!(out, " {cpus}")?;
                if unusual {
                    write!(out, " ({word} = {})", group.capacity)?;
                }
            }
            None => {
                let first = group.cpus.iter().next().map_or(0, |cpu| self.os_index(cpu));
                let comma = if nth > 0 { "," } else { "" };
                write!(out, "{comma} {first}:{{ span={cpus}")?;
                if unusual {
                    write!(out, " cap={}", group.capacity)?;
                }
                write!(out, " }}")?;
            }
        }
        Ok(())
    }

    fn constants(&self, out: &mut String, domain: &Domain) -> fmt::Result {
        let it = &domain.tunables;
        write!(
            out,
            " name={} min_interval={} max_interval={}",
            domain.name, it.min_interval_ms, it.max_interval_ms
        )?;
        if self.features.domains.load_indices {
            write!(out, " busy_idx={} idle_idx={}", it.busy_idx, it.idle_idx)?;
        }
        write!(
            out,
            " busy_factor={} imbalance_pct={} cache_nice_tries={} flags=",
            it.busy_factor, it.imbalance_pct, it.cache_nice_tries
        )?;
        for (nth, name) in it.flags.names(&self.features.domains).enumerate() {
            write!(out, "{}{name}", if nth > 0 { "," } else { "" })?;
        }
        writeln!(out)
    }
}
