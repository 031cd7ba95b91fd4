//! The agent and real VMs: QEMU with nested KVM on two nodes of two CPUs.

use super::metrics::{LISTEN, agents_steps, start_loopback};
use super::{MOSTLY, succeeds, wait_little_beside_idle};
use crate::guest::cgroup::Cgroup;
use crate::guest::tandem::{Tandem, agent};
use crate::guest::tasks::share_on;
use crate::guest::vm::{Vm, homes};
use crate::guest::{Guest, cpus, wait};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::Command;

/// Scans every second, without a rest: what takes minutes on a host takes seconds here.
pub const QUICK: &str = "[agent]\nlook_interval = \"1 s\"\nlooks_in_a_row = 2\nrest = \"0 s\"\n";
/// How many scans the agent may need to find a VM, or to forget it: twice, and as often again.
const LOOKS_MAX: u64 = 4;
/// How many scans an agent that has read where memory is may need to begin moving it: one, and three times as
/// many again.
const MOVING_LOOKS_MAX: u64 = 8;

/// How often it is measured where vCPUs run until they have to be at home.
const MEASUREMENTS_MAX: usize = 12;

/// VMs are found when they start, get homes on different nodes, stay there, are shown, and are forgotten when
/// they end, in order or not.
pub fn are_found_and_have_homes(guest: &Guest) -> Result<()> {
    start_loopback()?;
    let tandem = Tandem::run_with(&format!("{QUICK}{LISTEN}"))?;
    let mut vms = Vec::new();
    let mut nodes = Vec::new();
    for name in ["first", "second"] {
        let vm = Vm::start(name, 2)?;
        let before = agents_steps()?;
        let home = vm.wait_for_home()?;
        let looks = agents_steps()? - before;
        guest.note(format!("{name}: home {:?} after {looks} looks; {}", home.home, home.why))?;
        ensure!(looks <= LOOKS_MAX, "the VM was found too late");
        ensure!(home.name == name, "its name is {}", home.name);
        nodes.extend(home.home);
        vms.push(vm);
    }
    ensure!(nodes.len() == 2 && nodes[0] != nodes[1], "the homes are {nodes:?}");
    for (vm, &node) in vms.iter().zip(&nodes) {
        let home = cpus::of_node(node)?;
        let share = wait_until_at_home(vm.vcpus(), &home)?;
        guest.note(format!("on node {node}: {:.0}% at home", 100.0 * share))?;
    }
    // While vCPUs keep all CPUs busy, a command line may take longer to read than `tandem vms` waits, and
    // that names a VM by its process then.
    wait::until("that `tandem vms` shows both names", || {
        let shown = succeeds(&["vms", "--interval", "200ms"])?;
        Ok((shown.contains("first") && shown.contains("second")).then_some(()))
    })?;

    for (vm, signal) in vms.iter_mut().zip([Signal::KILL, Signal::TERM]) {
        vm.process().signal(signal)?;
    }
    vms.iter_mut().try_for_each(|vm| vm.wait().map(drop))?;
    let before = agents_steps()?;
    wait::until("that the VMs are forgotten", || Ok(homes()?.is_empty().then_some(())))?;
    let looks = agents_steps()? - before;
    guest.note(format!("forgotten after {looks} looks"))?;
    ensure!(looks <= LOOKS_MAX, "VMs that have ended were forgotten too late");
    drop(vms);
    let output = tandem.stop()?;
    ensure!(!fs::exists("/run/tandem/homes.json")?, "homes are published after the scheduler was unloaded");
    ensure!(output.contains("VM first (process ") && output.contains("has ended"), "the log has {output}");
    Ok(())
}

/// Each of two virtual nodes has a node of its own, where its vCPUs run and stay, also when an agent takes
/// over.
pub fn virtual_nodes_have_homes(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run_with(QUICK)?;
    let vm = Vm::start_with_virtual_nodes("virtual", 4)?;
    let look = || {
        let home = vm.wait_for_home()?;
        guest.note(format!("home {:?}: {}", home.home, home.why))?;
        let nodes: Vec<u32> = home.parts.iter().flat_map(|part| part.home.clone()).collect();
        ensure!(nodes == [0, 1] || nodes == [1, 0], "the virtual nodes live on {nodes:?}");
        for (number, (vcpus, &node)) in vm.vcpus().chunks(2).zip(&nodes).enumerate() {
            let home = cpus::of_node(node)?;
            let share = wait_until_at_home(vcpus, &home)?;
            guest.note(format!("virtual node {number} on node {node}: {:.0}% at home", 100.0 * share))?;
        }
        Ok(nodes)
    };
    let before = look()?;
    // By its process: once, `tandem vms` could not read the command line while vCPUs kept all CPUs busy, and
    // did not know the name.
    let detail = succeeds(&["vms", &vm.process().pid().to_string(), "--interval", "200ms"])?;
    ensure!(detail.contains("virtual node 1 (vCPUs 2-3): node "), "`tandem vms` shows {detail}");
    let table = succeeds(&["vms", "--interval", "200ms"])?;
    guest.note(table.trim())?;
    ensure!(table.contains(&format!("{}|{}", before[0], before[1])), "`tandem vms` shows {table}");

    let first = agent()?;
    kill_process(Pid::from_raw(first as i32).context("a process has a number")?, Signal::KILL)?;
    fs::remove_file("/run/tandem/homes.json")?;
    ensure!(look()? == before, "an agent that took over has given other homes");
    let why = vm.wait_for_home()?.why;
    ensure!(why.matches("before the agent started").count() == 2, "the new agent has not taken over: {why}");
    drop(vm);
    tandem.stop()?;
    Ok(())
}

/// Waits until vCPUs have come home, where there may be no room at first, and stay: one measurement after the
/// other says that most of them is there. The share of the last. Not of every measurement: a CPU that the
/// emulator does not run leaves its tasks to others.
fn wait_until_at_home(vcpus: &[u32], home: &[u32]) -> Result<f64> {
    let mut shares = vec![0.0];
    while shares.len() <= MEASUREMENTS_MAX {
        shares.push(share_on(vcpus, home)?);
        if let [.., before, last] = shares[..]
            && before.min(last) > MOSTLY
        {
            return Ok(last);
        }
    }
    bail!("vCPUs are not at home; the shares of their time there: {:.2?}", &shares[1..])
}

/// Memory that another program moves takes the home with it.
pub fn homes_follow_memory(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run_with(QUICK)?;
    let vm = Vm::start("moved", 1)?;
    let home = vm.wait_for_home()?;
    let (from, to) = (home.home[0], 1 - home.home[0]);
    wait_for_memory_on(&vm, from)?;
    let pid = vm.process().pid().to_string();
    let moved = Command::new("migratepages").args([&pid, &from.to_string(), &to.to_string()]).output()?;
    ensure!(moved.status.success(), "migratepages: {}", String::from_utf8_lossy(&moved.stderr));
    // An agent looks at memory as often as it takes little of a CPU, which is seldom where CPUs are emulated;
    // a new one does at once.
    tandem.reload(&QUICK.replace("looks_in_a_row = 2", "looks_in_a_row = 1"))?;
    let home = vm.wait_for_home_on(to)?;
    guest.note(format!("from node {from} to {to}: {}", home.why))?;
    let share = share_on(vm.vcpus(), &cpus::of_node(to)?)?;
    ensure!(share > MOSTLY, "its vCPUs have not followed: {share}");
    drop(vm);
    tandem.stop()?;
    Ok(())
}

/// Waits until most of the memory of a VM is on that node: its firmware touches 39 MiB as soon as it runs.
fn wait_for_memory_on(vm: &Vm, node: u32) -> Result<()> {
    wait::until(&format!("that its memory lies on node {node}"), || {
        Ok((pages_on(vm, node)? > 8_000).then_some(()))
    })
}

/// How many pages a VM has on a node.
fn pages_on(vm: &Vm, node: u32) -> Result<u64> {
    let maps = fs::read_to_string(format!("/proc/{}/numa_maps", vm.process().pid()))?;
    let of_node = |field: &str| field.strip_prefix(&format!("N{node}="))?.parse::<u64>().ok();
    Ok(maps.split_ascii_whitespace().filter_map(of_node).sum())
}

/// Waits until the agent has scanned as often as it may need to begin moving memory.
fn wait_for_looks() -> Result<()> {
    wait::until("that the agent scans", || {
        Ok(agents_steps().is_ok_and(|looks| looks > MOVING_LOOKS_MAX).then_some(()))
    })
}

/// Memory stays where it is when a home moves, and comes home with the setting for that.
pub fn memory_comes_home(guest: &Guest) -> Result<()> {
    start_loopback()?;
    let tandem = Tandem::run_with(QUICK)?;
    let vm = Vm::start("followed", 1)?;
    let from = vm.wait_for_home()?.home[0];
    wait_for_memory_on(&vm, from)?;
    let to = 1 - from;
    let rule = format!("[[vm]]\nname = \"followed\"\nhome = [{to}]\n");
    tandem.reload(&format!("{QUICK}{LISTEN}{rule}"))?;
    vm.wait_for_home_on(to)?;
    wait_for_looks()?;
    let (stayed, moved) = (pages_on(&vm, from)?, pages_on(&vm, to)?);
    guest.note(format!("without the setting: {stayed} pages on node {from}, {moved} on node {to}"))?;
    ensure!(stayed > 8_000, "memory has moved by itself");

    tandem.reload(&format!("{QUICK}memory_mib_per_s = 100\n{rule}"))?;
    wait_for_memory_on(&vm, to)?;
    let what = "of its memory moved to node";
    wait::until("that the log reports it", || Ok(tandem.process().output().contains(what).then_some(())))?;
    let (stayed, moved) = (pages_on(&vm, from)?, pages_on(&vm, to)?);
    guest.note(format!("with it: {stayed} pages on node {from}, {moved} on node {to}"))?;
    let output = tandem.process().output();
    let said = output.lines().find(|line| line.contains(what));
    guest.note(said.unwrap_or_default().to_owned())?;
    drop(vm);
    tandem.stop()?;
    Ok(())
}

/// A cpuset that shrinks takes the home with it; `taskset` is respected, and nothing is ever pinned.
pub fn limits_are_respected(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run_with(QUICK)?;
    let cgroup = Cgroup::create("vms")?;
    let vm = Vm::start("confined", 1)?;
    let home = vm.wait_for_home()?;
    let allowed = |thread: u32| -> Result<String> {
        let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Ok(list.context("no list of CPUs")?.trim().to_owned())
    };
    ensure!(allowed(vm.vcpus()[0])? == "0-3", "the agent has pinned a vCPU");

    fs::write(format!("{}/cgroup.procs", cgroup.directory()), vm.process().pid().to_string())?;
    let other = 1 - home.home[0];
    let list: Vec<String> = cpus::of_node(other)?.iter().map(u32::to_string).collect();
    cgroup.set("cpuset.cpus", &list.join(","))?;
    let home = vm.wait_for_home_on(other)?;
    guest.note(format!("with a cpuset of node {other}: {}", home.why))?;
    drop(vm);

    let apart = Vm::start_by("apart", 1, &["busybox", "taskset", "4"])?;
    let home = apart.wait_for_home_on(1)?;
    guest.note(format!("with CPU 2 alone: {}", home.why))?;
    ensure!(allowed(apart.vcpus()[0])? == "2", "the affinity was changed");
    drop(apart);
    tandem.stop()?;
    Ok(())
}

/// Homes outlive hotplug, an agent that is killed, and a file of settings with a mistake; exceptions come
/// with a reload.
pub fn homes_survive(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run_with(QUICK)?;
    let vm = Vm::start("lasting", 1)?;
    let home = vm.wait_for_home()?;
    let node = home.home[0];
    let away = cpus::of_node(1 - node)?;
    for online in [false, true] {
        tandem.hotplug(away[1], online)?;
        vm.wait_for_home_on(node)?;
    }

    let first = agent()?;
    kill_process(Pid::from_raw(first as i32).context("a process has a number")?, Signal::KILL)?;
    fs::remove_file("/run/tandem/homes.json")?;
    let home = vm.wait_for_home_on(node)?;
    guest.note(format!("after the agent was killed: {}", home.why))?;
    ensure!(home.why.contains("before the agent started"), "the new agent has not taken over");

    let reload = |settings: &str, message: &str| -> Result<()> {
        let before = tandem.process().output().matches(message).count();
        tandem.reload(settings)?;
        wait::until(&format!("the message `{message}`"), || {
            Ok((tandem.process().output().matches(message).count() > before).then_some(()))
        })
    };
    reload("[agent]\nlook_interval = \"1\"\n", "the old settings stay: /tmp/settings.toml:")?;
    vm.wait_for_home_on(node)?;
    reload(&format!("{QUICK}[[vm]]\nname = \"last*\"\nexempt = true\n"), "the agent has the new settings")?;
    wait::until("that the VM has no home", || Ok(vm.home()?.filter(|home| home.home.is_empty()).map(drop)))?;
    let other = 1 - node;
    reload(
        &format!("{QUICK}[[vm]]\nname = \"lasting\"\nhome = [{other}]\n"),
        "the agent has the new settings",
    )?;
    let home = vm.wait_for_home_on(other)?;
    guest.note(format!("with home = [{other}]: {}", home.why))?;
    reload(&format!("{QUICK}[fairness]\nslice = \"5 ms\"\n"), "tandem: scheduling")?;
    vm.wait_for_home_on(other)?;
    drop(vm);
    tandem.stop()?;
    Ok(())
}

/// Two VMs at home on the same two CPUs use the idle node as well: no vCPU waits for longer than a slice
/// while a CPU idles.
pub fn nobody_waits_beside_idle(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run_with("[[vm]]\nname = \"crowd*\"\nhome = [0]\n")?;
    let vms = [Vm::start("crowd-a", 2)?, Vm::start("crowd-b", 2)?];
    for vm in &vms {
        vm.wait_for_home_on(0)?;
    }
    let vcpus: Vec<u32> = vms.iter().flat_map(|vm| vm.vcpus()).copied().collect();
    let away = share_on(&vcpus, &cpus::of_node(1)?)?;
    guest.note(format!(
        "4 vCPUs with a home of 2 CPUs: {:.0}% of their time on the other node",
        100.0 * away
    ))?;
    wait_little_beside_idle(guest, &vcpus)?;
    drop(vms);
    tandem.stop()?;
    Ok(())
}
