//! A hostile user, beside another user's VM: no matter which processes and files the user creates, the agent
//! continues, and the VM keeps its home.

use super::control_socket::{READER, USER, connect, write_users};
use super::metrics::{LISTEN, agents_steps, client, start_loopback, vms_as};
use super::succeeds;
use super::vms::QUICK;
use crate::guest::hostile::{FOLDER, MONITOR, as_user, prepare, start, start_monitor};
use crate::guest::process::Process;
use crate::guest::tandem::{Tandem, agent};
use crate::guest::vm::{Vm, homes};
use crate::guest::{Guest, wait};
use anyhow::{Context, Result, anyhow, ensure};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use rustix::thread::set_thread_uid;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The owner of the VM, and a user who is as hostile as the first.
const NEIGHBOUR: &str = "1002";
const ACCOMPLICE: u32 = 1003;
/// Monitors that run without KVM count.
const EMULATED: &str = "emulated = true\n";
/// What the agent may have beyond its state before the hostile users: files and threads after they are gone;
/// memory, KiB, at any time.
const FILES_MORE: usize = 16;
const THREADS_MORE: usize = 2;
const MEMORY_MORE_KIB: usize = 128 << 10;
/// Lines of the log: those of a user's VMs in a minute, and as many as all else has.
const LINES_MAX: usize = 1000 + 100;
/// How often metrics are requested while others ask as well: a client that this machine does not run in time
/// is given up.
const TRIES: u32 = 5;
/// Threads that a process would have, and the kernel's memory for each, KiB.
const THREADS: usize = 30_000;
const THREAD_KIB: usize = 48;

/// An agent that scans every second, and the VM of a user.
struct Stage {
    tandem: Tandem,
    vm: Vm,
    home: Vec<u32>,
    agent: u32,
    before: Taken,
}

/// The resources of the agent.
#[derive(Debug)]
struct Taken {
    files: usize,
    threads: usize,
    memory_kib: usize,
}

impl Taken {
    /// The resources of a process.
    fn by(pid: u32) -> Result<Self> {
        let entries =
            |folder: &str| Ok::<_, anyhow::Error>(fs::read_dir(format!("/proc/{pid}/{folder}"))?.count());
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(Self { files: entries("fd")?, threads: entries("task")?, memory_kib: kib(&status, "VmRSS:")? })
    }
}

/// A line such as `VmRSS:  12 kB`.
fn kib(text: &str, key: &str) -> Result<usize> {
    let value =
        text.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix(" kB")?.parse().ok());
    value.with_context(|| format!("no {key} in {text}"))
}

impl Stage {
    fn set() -> Result<Self> {
        start_loopback()?;
        write_users()?;
        prepare()?;
        fs::set_permissions("/dev/kvm", fs::Permissions::from_mode(0o666))?;
        let tandem = Tandem::run_with(&format!("{QUICK}{EMULATED}{LISTEN}"))?;
        let vm = Vm::start_by("neighbour", 1, &["hostile", "as", NEIGHBOUR])?;
        let home = vm.wait_for_home()?.home;
        wait::until("metrics", || Ok(agents_steps().ok()))?;
        let agent = agent()?;
        let before = Taken::by(agent)?;
        Ok(Self { tandem, vm, home, agent, before })
    }

    /// The agent continues and answers, the VM has its home, and all resources stay within bounds.
    fn check(&self, guest: &Guest, after: &str) -> Result<()> {
        let before = looks()?;
        wait::until(&format!("that the agent continues to scan after {after}"), || {
            Ok((looks()? >= before + 2).then_some(()))
        })?;
        let told = vms_as(READER)?;
        ensure!(told.contains("\"name\":\"neighbour\""), "after {after} the service answers {told}");
        let home = self.vm.home()?.with_context(|| format!("after {after} the VM is not known"))?;
        ensure!(home.home == self.home, "after {after} the VM lives on {:?}, not {:?}", home.home, self.home);
        let taken = Taken::by(self.agent).with_context(|| format!("the agent has ended after {after}"))?;
        let lines = self.tandem.process().output().lines().count();
        guest.note(format!("{after}: {taken:?}, {lines} lines"))?;
        ensure!(
            taken.memory_kib <= self.before.memory_kib + MEMORY_MORE_KIB,
            "it had {:?} before",
            self.before
        );
        ensure!(lines <= LINES_MAX, "the log has {lines} lines");
        Ok(())
    }

    /// The same when hostile processes are gone: nothing of them remains. Ends the agent; returns its output
    /// and the scheduler's.
    fn leave(self, guest: &Guest) -> Result<String> {
        wait::until("that other VMs are forgotten", || Ok((homes()?.len() == 1).then_some(())))?;
        self.check(guest, "all of it")?;
        let taken = Taken::by(self.agent)?;
        ensure!(
            taken.files <= self.before.files + FILES_MORE
                && taken.threads <= self.before.threads + THREADS_MORE,
            "the agent has {taken:?}, and had {:?}",
            self.before
        );
        drop(self.vm);
        let output = self.tandem.stop()?;
        ensure!(
            !output.contains("the agent ended") && !output.contains("was silent"),
            "the log has {output}"
        );
        ensure!(!output.contains('\u{1b}'), "a name speaks to the terminal: {output:?}");
        Ok(output)
    }
}

/// The number of the agent's scans, while others ask as well.
fn looks() -> Result<u64> {
    let mut looks = agents_steps();
    for _ in 1..TRIES {
        if looks.is_ok() {
            break;
        }
        looks = agents_steps();
    }
    looks
}

/// Waits until the agent knows a process as a VM; by which name.
fn wait_for_name(pid: u32) -> Result<String> {
    wait::until("that a monitor is found", || {
        Ok(homes()?.into_iter().find(|home| home.pid == pid).map(|home| home.name))
    })
}

/// Whether a process prefers anything.
fn has_preference(pid: u32) -> Result<bool> {
    Ok(!succeeds(&["prefer", "show", "--pid", &pid.to_string()])?.contains("no preference"))
}

/// Processes with false names: with escapes, of a megabyte, and paths that are not files, which would block a
/// reader.
pub fn false_monitors(guest: &Guest) -> Result<()> {
    let stage = Stage::set()?;
    let path = |name: &str| format!("{FOLDER}/{name}");
    let made = Command::new("busybox").args(["mkfifo", "-m", "666", &path("fifo")]).status()?;
    ensure!(made.success(), "there is no FIFO");
    for (link, target) in
        [("zero", "/dev/zero"), ("loop", "ring"), ("ring", "loop"), ("memory", "/proc/self/mem")]
    {
        symlink(target, path(link))?;
    }
    let escapes = "\u{1b}[2J\nVM neighbour (process 1) has ended\u{202e}";
    let mut processes = Vec::new();
    for file in ["fifo", "zero", "loop", "memory", ".", "../../proc/kmsg", "none"] {
        let more = ["-name", &format!("guest={escapes}{file}"), "-readconfig", &path(file)];
        processes.push(start_monitor(USER, 2, 0, &more)?);
    }
    let long = format!("guest={}", "\u{202e}".repeat(40_000));
    processes.push(start_monitor(
        USER,
        1,
        0,
        &["-name", &long, &long, &long, &long, &long, &long, &long, &long, &long],
    )?);
    for process in &processes {
        let name = wait_for_name(process.pid())?;
        ensure!(name.chars().count() <= 255 && !name.contains(char::is_control), "a name is {name:?}");
    }
    stage.check(guest, "false monitors")?;
    drop(processes);
    for file in ["fifo", "zero", "loop", "ring", "memory"] {
        fs::remove_file(path(file))?;
    }
    let output = stage.leave(guest)?;
    ensure!(!output.contains("\nVM neighbour (process 1)"), "a name begins a line of the log: {output}");
    Ok(())
}

/// A process of as many threads as there is memory for, all called vCPUs, and processes with thousands of
/// open files.
pub fn threads_and_files(guest: &Guest) -> Result<()> {
    let stage = Stage::set()?;
    let available = kib(&fs::read_to_string("/proc/meminfo")?, "MemAvailable:")?;
    let threads = THREADS.min(available / 2 / THREAD_KIB);
    let limits = [("threads-max", 2 * THREADS), ("pid_max", 2 * THREADS)];
    let before = limits.map(|(limit, _)| fs::read_to_string(format!("/proc/sys/kernel/{limit}")));
    for (limit, value) in limits {
        fs::write(format!("/proc/sys/kernel/{limit}"), value.to_string())?;
    }
    let large = start_monitor(USER, threads as u32, 0, &[])?;
    guest.note(large.output().lines().next().unwrap_or_default())?;
    let many = (0..10).map(|_| start_monitor(USER, 1, 4000, &[])).collect::<Result<Vec<_>>>()?;
    for process in many.iter().chain([&large]) {
        wait_for_name(process.pid())?;
    }
    stage.check(guest, "threads and files")?;
    drop((large, many));
    for ((limit, _), before) in limits.iter().zip(before) {
        fs::write(format!("/proc/sys/kernel/{limit}"), before?)?;
    }
    stage.leave(guest).map(drop)
}

/// Thousands of programs that end at once, and hundreds of monitors that come and go.
pub fn storms(guest: &Guest) -> Result<()> {
    let stage = Stage::set()?;
    let mut short = start(&mut as_user(USER, &["hostile", "many", "3000", "30", "busybox", "true"]))?;
    stage.check(guest, "a storm of programs")?;
    let mut vms =
        start(&mut as_user(USER, &["hostile", "many", "600", "200", MONITOR, "vm", "1", "0", "3000"]))?;
    stage.check(guest, "a storm of VMs")?;
    short.wait_success()?;
    vms.wait_success()?;
    let output = stage.leave(guest)?;
    let found = output.lines().filter(|line| line.contains("was found")).count();
    guest.note(format!("{found} VMs were reported"))?;
    ensure!(found > 1, "none of them was found");
    Ok(())
}

/// Clients that send a byte a second, to the socket and to the port, as many as there may be.
pub fn slow_clients(guest: &Guest) -> Result<()> {
    let stage = Stage::set()?;
    let clients = thread::spawn(|| -> Result<()> {
        set_thread_uid(rustix::fs::Uid::from_raw(USER))?;
        let mut sockets = (0..32).map(|_| connect()).collect::<Result<Vec<_>>>()?;
        let mut ports = (0..128).map(|_| client()).collect::<Result<Vec<_>>>()?;
        for &byte in b"GET /metric" {
            // An error means that it was turned away, or given up.
            sockets.iter_mut().for_each(|socket| drop(socket.write_all(&[byte])));
            ports.iter_mut().for_each(|port| drop(port.write_all(&[byte])));
            thread::sleep(Duration::from_secs(1));
        }
        Ok(())
    });
    while !clients.is_finished() {
        stage.check(guest, "slow clients")?;
    }
    clients.join().map_err(|_| anyhow!("the clients panicked"))??;
    stage.leave(guest).map(drop)
}

/// A number that was a VM's is another process's: that has neither its home nor its name.
pub fn numbers_are_taken(guest: &Guest) -> Result<()> {
    const PID_MAX: &str = "/proc/sys/kernel/pid_max";
    let stage = Stage::set()?;
    let before = fs::read_to_string(PID_MAX)?;
    // So few numbers that one comes again soon; those below 300, of a boot, never do (RESERVED_PIDS in the
    // kernel's pid.c).
    fs::write(PID_MAX, "600")?;
    while Process::start(Command::new("busybox").arg("true"))?.pid() < 300 {}
    for (name, program) in [
        ("first", &["busybox", "sleep", "1000"][..]),
        ("second", &[MONITOR, "vm", "1", "0", "0", "-name", "taker"]),
    ] {
        let victim = start_monitor(USER, 1, 0, &["-name", name])?;
        let pid = victim.pid();
        wait::until("a home", || {
            Ok(homes()?.into_iter().find(|home| home.pid == pid && !home.home.is_empty()))
        })?;
        drop(victim);
        let number = pid.to_string();
        let taker = start(&mut as_user(USER, &[&["hostile", "take", &number], program].concat()))?;
        stage.check(guest, "a number that was taken")?;
        let known = homes()?.into_iter().find(|home| home.pid == pid);
        match name {
            "first" => {
                ensure!(known.is_none(), "another process is taken for the VM: {known:?}");
                ensure!(!has_preference(pid)?, "another process has the VM's home");
            }
            _ => ensure!(
                known.as_ref().is_some_and(|home| home.name == "taker"),
                "the new VM is known as {known:?}"
            ),
        }
        drop(taker);
    }
    fs::write(PID_MAX, before)?;
    stage.leave(guest).map(drop)
}

/// A VM that runs another program is none, and has no home; or it is the VM that this program is.
pub fn other_programs(guest: &Guest) -> Result<()> {
    let stage = Stage::set()?;
    let turn = |program: &[&str]| -> Result<Process> {
        let process = start(&mut as_user(USER, &[&[MONITOR, "turn"], program].concat()))?;
        let pid = process.pid();
        wait::until("a home", || {
            Ok(homes()?.into_iter().find(|home| home.pid == pid && !home.home.is_empty()))
        })?;
        process.signal(Signal::USR1)?;
        Ok(process)
    };
    let none = turn(&["busybox", "sleep", "1000"])?;
    wait::until("that it is no VM", || Ok(homes()?.iter().all(|home| home.pid != none.pid()).then_some(())))?;
    ensure!(!has_preference(none.pid())?, "what is no VM has a home");
    let other = turn(&[MONITOR, "vm", "1", "0", "0", "-name", "other"])?;
    wait::until("that it is another VM", || Ok((wait_for_name(other.pid())? == "other").then_some(())))?;
    stage.check(guest, "other programs")?;
    drop((none, other));
    stage.leave(guest).map(drop)
}

/// A process whose files wait for memory that never answers, and one that names such a file.
pub fn silent_memory(guest: &Guest) -> Result<()> {
    if !fs::read_to_string("/proc/filesystems")?.lines().any(|line| line.ends_with("\tfuse")) {
        return guest.note("this kernel has no FUSE");
    }
    let stage = Stage::set()?;
    let folder = format!("{FOLDER}/silence");
    fs::create_dir_all(&folder)?;
    // They end when the file system has ended, which is why it is dropped before them, come what may.
    let (mute, naming, silenced);
    let server = start(Command::new("hostile").args(["silence", &folder, &USER.to_string()]))?;
    // From here on only the agent may read command lines: any other reader waits.
    let file = |name: &str| format!("{folder}/{name}");
    mute = start(&mut as_user(USER, &[MONITOR, "mute", &file("memory"), "-name", "mute"]))?;
    naming = start_monitor(ACCOMPLICE, 1, 0, &["-name", "naming", "-readconfig", &file("silent")])?;
    let name = wait_for_name(mute.pid())?;
    ensure!(name == format!("qemu-{}", mute.pid()), "a VM without a command line is called {name}");
    ensure!(wait_for_name(naming.pid())? == "naming");
    stage.check(guest, "silence")?;
    silenced = start_monitor(USER, 1, 0, &["-name", "silenced"])?;
    let name = wait_for_name(silenced.pid())?;
    ensure!(
        name == format!("qemu-{}", silenced.pid()),
        "a user was asked whose memory does not answer: {name}"
    );
    let later = Vm::start_by("later", 1, &["hostile", "as", NEIGHBOUR])?;
    ensure!(later.wait_for_home()?.name == "later", "others are not asked, either");
    drop(server);
    drop((mute, naming, silenced, later));
    unmount(&folder, UnmountFlags::DETACH)?;
    stage.leave(guest).map(drop)
}
