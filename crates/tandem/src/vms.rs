//! `tandem vms`: the virtual machines of this host, and how much of the machine they get.

pub mod detail;
mod json;
mod table;
#[cfg(test)]
pub mod tests;

use std::io::Write;
use std::path::Path;
use std::time::Duration;
use tandem_host::topology::read_sysfs;
use tandem_host::vms::{Finder, Manager, Vm};
use tandemd::access::Access;
use tandemd::error::BadInput;
use tandemd::observe::{self, Observation, note_of_monitors};
use tandemd::out::out;
use tandemd::text::to_json_text;

/// Shortest time of observation: below, a thread's time is that of a few switches.
const SHORTEST: Duration = Duration::from_millis(10);

/// How many rounds of their share of time users with very many processes get.
const ROUNDS_MAX: u32 = 5;

pub const HELP: &str = "Columns:
  NAME    its name, as its manager shows it
  BY      its manager, such as libvirt, or else its program
  PID     its process
  VCPU    how many vCPUs it has
  MEMORY  resident memory, and its size
  NODE    the NUMA node with most of its memory, and the share there
  HOME    its home nodes; - for none; 0|1 if each of its virtual nodes has a home; (1) if the agent only observes and would give it node 1
  CPU     CPU time of all its threads; 100% is one CPU
  WAIT    time that its threads other than vCPUs waited for a CPU
  STEAL   time that a vCPU waited for a CPU, on average
  LOCAL   share of its vCPUs' CPU time spent on its home nodes

A question mark stands for what cannot be read; a line below the table says why, and what to do. KVM reports the wait of a vCPU \
to the guest as stolen time. Home nodes are those that the agent gave, or else those that its CPUs are confined to, or those \
with at least 80% of its memory.

JSON: an object with interval_s (null if there are no VMs), notes (the lines below the table) and vms. Each has name, manager (with id for proxmox, \
project for lxd and incus), monitor, pid, start_ticks, vcpus; memory: given_bytes, resident_bytes, by_node (node and \
bytes), source (cgroup, numa_maps); home: nodes, source (agent, planned, cpus, memory, machine), why, parts (virtual_node, vcpus, nodes, why) if virtual nodes have their own homes, saving of a planned home (least_cpus, expected_cpus, most_cpus); cores: how it is kept apart, if the settings ask for it (core_scheduling, placement, one_thread, shared); usage: cpu_pct, wait_pct, \
steal_pct, local_pct, vcpu_run_ns_by_node (node and ns); limits: cpus, is_pinned, quota_cpus, memory_nodes; cgroup: path, version, \
is_own, cpus; devices: name and node; threads: tid, name, kind (vcpu, io, emulator), vcpu, cpus, last_cpu, run_ns, wait_ns, migrations (since it began). \
Unknown values are null.

It changes nothing, and needs neither root nor the scheduler; root can read more.

Examples:
  tandem vms
  tandem vms web
  tandem vms --interval 10s
  tandem vms --json | jq -r '.vms[] | select(.usage.steal_pct > 5).name'";

/// Arguments of `tandem vms`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Show this VM with its threads, memory, devices and limits: by name, process, or number in Proxmox
    #[arg(value_name = "NAME|PID")]
    vm: Option<String>,
    /// How long to observe: in seconds, or with a unit
    #[arg(long, value_name = "TIME", default_value = "1 s", value_parser = parse_interval)]
    interval: Duration,
    /// Print JSON, with everything known of each VM
    #[arg(long)]
    json: bool,
    /// Include VMs that run without KVM, which any process can imitate
    #[arg(long)]
    emulated: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    observe::parse_interval(text, SHORTEST)
}

/// Observes the VMs and prints them.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let root = Path::new("/");
    let machine = read_sysfs(root)?;
    let mut finder = Finder::new(root).with_emulated(args.emulated);
    let mut left = 0;
    for _ in 0..ROUNDS_MAX {
        left = finder.scan()?.postponed;
        if left == 0 {
            break;
        }
    }
    let mut vms: Vec<&Vm> = finder.vms().collect();
    vms.sort_by(|a, b| (&a.name, a.identity).cmp(&(&b.name, b.identity)));
    if let Some(wanted) = &args.vm {
        vms = vec![select(&vms, wanted)?];
    }
    let mut observation = Observation::make(root, &machine, &vms, args.interval, || {
        Access::find().map(|access| observe::reports(&access)).unwrap_or_default()
    });
    if args.vm.is_none() {
        observation.notes.extend(note_of_monitors(finder.monitors_without_vcpus().collect()));
    }
    if left > 0 {
        observation.notes.push(format!(
            "{left} processes of users who have very many were not read; VMs among them are missing"
        ));
    }
    if args.vm.is_some() && observation.vms.is_empty() {
        anyhow::bail!("the virtual machine has ended meanwhile");
    }
    let text = match (args.json, &args.vm) {
        (true, _) => to_json_text(&json::to_json(&observation))?,
        (_, Some(_)) => detail::show(&observation, &machine),
        (_, None) => table::draw(&observation, table::width_of_terminal()),
    };
    out().write_all(text.as_bytes())?;
    Ok(())
}

/// The VM of that name, process or number.
fn select<'a>(vms: &[&'a Vm], wanted: &str) -> Result<&'a Vm, BadInput> {
    let with = |is_it: &dyn Fn(&Vm) -> bool| vms.iter().copied().filter(|vm| is_it(vm)).collect::<Vec<_>>();
    // A process's number is the kernel's word; all else is what somebody calls it.
    let number: Option<u32> = wanted.parse().ok();
    if let Some(&vm) = vms.iter().find(|vm| Some(vm.identity.pid) == number) {
        return Ok(vm);
    }
    let is_proxmoxs = |vm: &Vm| number.is_some_and(|id| vm.manager == Manager::Proxmox { id });
    let named = with(&|vm| vm.name == wanted || is_proxmoxs(vm));
    match &named[..] {
        [] => {}
        [vm] => return Ok(vm),
        several => {
            let pids: Vec<_> = several.iter().map(|vm| vm.identity.pid.to_string()).collect();
            return Err(BadInput::new(format!(
                "{} VMs have the name `{wanted}`; say which process: {}",
                several.len(),
                pids.join(", ")
            )));
        }
    }
    let there = match vms {
        [] => "there is none".to_owned(),
        _ => {
            let names: Vec<_> = vms.iter().map(|vm| vm.name.as_str()).collect();
            format!("those that there are: {}", names.join(", "))
        }
    };
    Err(BadInput::new(format!("there is no VM `{wanted}`; {there}")))
}
