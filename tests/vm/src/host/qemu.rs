//! Boots a leg in QEMU and listens to what its guest reports.

use super::monitor::Monitor;
use crate::guest::parameters::Parameters;
use crate::leg::{Emulation, Leg, Machine};
use crate::report::Event;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a leg may take besides the churn, seconds of the machine's clock.
const BESIDES_CHURN_S: u64 = 240;
/// After how long a guest that has not reported anything yet is given up. On an idle machine with two CPUs a boot takes
/// 5 to 10 s.
const BOOT_TIMEOUT: Duration = Duration::from_secs(180);
/// After how long a guest that reports nothing is looked at from outside, and how often. Most scenarios are shorter.
const SILENCE: Duration = Duration::from_secs(90);
/// How long a guest may take to print what it was doing, and to end.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// What kernels print of a CPU that has stood still for more than 20 s.
const STALLS: [&str; 3] = ["rcu: INFO: rcu_", "BUG: soft lockup", "hard LOCKUP"];
/// What they print when they have loaded a scheduler.
const LOADED: &str = "sched_ext: BPF scheduler";

/// A virtual machine's life.
pub struct Run {
    /// What the guest reported.
    pub events: Vec<Event>,
    /// How it ended.
    pub end: End,
    /// What the guest's kernel and QEMU printed.
    pub console: String,
    /// From start to end, by the machine's clock.
    pub duration: Duration,
}

impl Run {
    /// Why the run says nothing about what was to be tested, if so: with a thread a CPU, QEMU may run what it translated
    /// before the kernel patched it. Then the kernel meets a breakpoint that it had taken out of its own code (QEMU 7.2
    /// often, 10.0.2 once). Or it loses a wake-up (10.0.2, rarely): a CPU waits for an interrupt that it has been sent,
    /// and the others for that CPU.
    pub fn emulators_fault(&self) -> Option<&'static str> {
        if self.console.contains("Oops: int3") {
            return Some("ran code that the kernel had patched (Oops: int3)");
        }
        match self.end {
            End::Left(_) => None,
            End::NeverBooted(_) => Some("never finished the kernel's boot"),
            End::LostWakeUp(_) => Some("let a CPU sleep that had an interrupt to serve"),
            End::TimedOut(_) => {
                let before = self.console.split(LOADED).next().unwrap_or_default();
                let has_stalled = STALLS.iter().any(|words| before.contains(words));
                has_stalled.then_some("had a CPU stand still before a scheduler was loaded")
            }
        }
    }
}

/// How a virtual machine ended.
pub enum End {
    /// QEMU left by itself, as it does when the guest powers off or its kernel panics.
    Left(ExitStatus),
    /// It took longer than this and was killed.
    TimedOut(Duration),
    /// It had not reported anything after this time, and was killed.
    NeverBooted(Duration),
    /// After this time a CPU was found asleep that had an interrupt to serve, and it was killed.
    LostWakeUp(Duration),
}

/// Boots the leg that `parameters` name; `folder` gets what it prints. The seed counts where instructions are counted.
pub fn boot(
    leg: &Leg,
    parameters: &Parameters,
    seed: u32,
    kernel: &Path,
    initramfs: &Path,
    folder: &Path,
) -> Result<Run> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let console = folder.join("console.log");
    let messages = folder.join("qemu.log");
    let start = Instant::now();
    let mut command = Command::new("qemu-system-x86_64");
    let (monitor, its_end) = Monitor::new(&mut command)?;
    let mut qemu = command
        .args(["-nodefaults", "-no-reboot", "-display", "none", "-M", "q35"])
        .args(emulation_arguments(leg.emulation, seed))
        .args(machine_arguments(&leg.machine))
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .args(["-serial", "stdio"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .arg("-append")
        .arg(kernel_command_line(leg, parameters))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&messages).with_context(|| format!("cannot create {}", messages.display()))?)
        .spawn()
        .context("cannot run qemu-system-x86_64; `scripts/setup vm` installs it")?;
    drop(its_end);

    let reports = qemu.stdout.take().expect("it is piped");
    let heard = Arc::new(AtomicUsize::new(0));
    let listener = thread::spawn({
        let heard = heard.clone();
        move || listen(reports, &heard)
    });
    let timeout_s = leg.timeout_s.max(parameters.churn_s + BESIDES_CHURN_S);
    let mut watch = Watch { qemu: &mut qemu, monitor, cpus: leg.machine.cpus(), heard: &heard };
    let end = watch.wait(Duration::from_secs(timeout_s));
    let (end, seen) = end.with_context(|| format!("cannot wait for the leg {}", leg.name))?;
    let duration = start.elapsed();
    let events = listener.join().expect("the listener does not panic");
    let [console, messages] = [console, messages]
        .map(|file| String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned());
    Ok(Run { events, end, console: console + &messages + &seen, duration })
}

/// The options for the emulator and its clock.
fn emulation_arguments(emulation: Emulation, seed: u32) -> Vec<String> {
    let Emulation::Counted { timer_ns } = emulation else {
        return ["-accel", "tcg,thread=multi"].map(String::from).into();
    };
    let mut arguments: Vec<String> = [
        "-accel",
        "tcg,thread=single",
        // 2^0 ns an instruction; a guest that sleeps goes on at once, with its clock put forward.
        "-icount",
        "shift=0,sleep=off",
        // The same date at each boot.
        "-rtc",
        "base=2026-01-01,clock=vm",
        "-seed",
    ]
    .map(String::from)
    .into();
    arguments.push(seed.to_string());
    if let Some(timer_ns) = timer_ns {
        // A filter of a network that has no card: it only sets its timer, anew whenever that expires.
        arguments.extend(["-netdev".into(), "hubport,id=none,hubid=0".into(), "-object".into()]);
        arguments.push(format!("filter-buffer,id=timer,netdev=none,interval={}", timer_ns / 1_000));
    }
    arguments
}

/// The options for the emulated hardware.
fn machine_arguments(machine: &Machine) -> Vec<String> {
    let Machine { cpu, sockets, cores, nodes, memory_mib } = machine;
    let mut arguments = vec![
        "-cpu".into(),
        (*cpu).into(),
        "-smp".into(),
        format!("{},sockets={sockets},cores={cores},threads=1", machine.cpus()),
        "-m".into(),
        format!("{memory_mib}M"),
    ];
    for node in 0..*nodes {
        let cpus = machine.cpus_of(node);
        arguments.extend([
            "-object".into(),
            format!("memory-backend-ram,id=m{node},size={}M", memory_mib / nodes),
            "-numa".into(),
            format!("node,nodeid={node},cpus={}-{},memdev=m{node}", cpus.start, cpus.end - 1),
        ]);
    }
    arguments
}

/// What the guest's kernel, and through it the guest, is told.
fn kernel_command_line(leg: &Leg, parameters: &Parameters) -> String {
    // A kernel that panics reboots at once, upon which QEMU leaves; it does so if it is asked for its last words. The log
    // holds all of a leg.
    format!("console=ttyS0 panic=-1 unknown_nmi_panic log_buf_len=4M {} {parameters}", leg.kernel_parameters)
}

/// Collects events until the port closes; `heard` tells how many there are.
fn listen(reports: impl Read, heard: &AtomicUsize) -> Vec<Event> {
    let mut reports = BufReader::new(reports);
    let mut events = Vec::new();
    let mut line = Vec::new();
    while reports.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        events.extend(Event::parse(&String::from_utf8_lossy(&line)));
        heard.store(events.len(), Ordering::Relaxed);
        line.clear();
    }
    events
}

/// What is watched while a guest runs.
struct Watch<'a> {
    qemu: &'a mut Child,
    monitor: Monitor,
    cpus: u32,
    /// How many events it has reported.
    heard: &'a AtomicUsize,
}

impl Watch<'_> {
    /// Waits until QEMU leaves, its time is over or it is seen to be at fault; the text tells what the CPUs were at if
    /// it did not leave by itself.
    fn wait(&mut self, timeout: Duration) -> Result<(End, String)> {
        let start = Instant::now();
        let mut heard = 0;
        let mut silent_since = start;
        loop {
            if let Some(status) = self.qemu.try_wait()? {
                return Ok((End::Left(status), String::new()));
            }
            let elapsed = start.elapsed();
            if self.heard.load(Ordering::Relaxed) != heard {
                heard = self.heard.load(Ordering::Relaxed);
                silent_since = Instant::now();
            }
            let end = if elapsed >= timeout {
                Some(End::TimedOut(elapsed))
            } else if elapsed >= BOOT_TIMEOUT && heard == 0 {
                Some(End::NeverBooted(elapsed))
            } else if silent_since.elapsed() >= SILENCE {
                silent_since = Instant::now();
                // A QEMU that does not answer has its time to end.
                self.monitor.has_lost_wake_up(self.cpus).unwrap_or(false).then_some(End::LostWakeUp(elapsed))
            } else {
                None
            };
            if let Some(end) = end {
                let seen = self.look();
                self.qemu.kill()?;
                self.qemu.wait()?;
                return Ok((end, seen));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// What each CPU is at, a line each; the kernel is made to print on its console what it was doing.
    fn look(&mut self) -> String {
        let seen = match self.monitor.cpus(self.cpus) {
            Ok(cpus) => {
                let lines =
                    cpus.iter().enumerate().map(|(number, cpu)| format!("QEMU: CPU {number} is {cpu}\n"));
                lines.collect()
            }
            Err(error) => format!("QEMU: {error:#}\n"),
        };
        if self.monitor.interrupt_unmaskably().is_ok() {
            let asked = Instant::now();
            while asked.elapsed() < LAST_WORDS && matches!(self.qemu.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(50));
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_share_cpus_and_memory_evenly() {
        let machine = Machine { cpu: "max", sockets: 2, cores: 4, nodes: 2, memory_mib: 2048 };
        assert_eq!(
            machine_arguments(&machine).join(" "),
            "-cpu max -smp 8,sockets=2,cores=4,threads=1 -m 2048M \
             -object memory-backend-ram,id=m0,size=1024M -numa node,nodeid=0,cpus=0-3,memdev=m0 \
             -object memory-backend-ram,id=m1,size=1024M -numa node,nodeid=1,cpus=4-7,memdev=m1"
        );
    }

    #[test]
    fn counted_instructions_have_a_seed_and_may_have_a_timer() {
        let arguments = |timer_ns| emulation_arguments(Emulation::Counted { timer_ns }, 7).join(" ");
        assert!(arguments(None).ends_with("-icount shift=0,sleep=off -rtc base=2026-01-01,clock=vm -seed 7"));
        assert!(arguments(Some(40_000)).ends_with(
            "-seed 7 -netdev hubport,id=none,hubid=0 -object filter-buffer,id=timer,netdev=none,interval=40"
        ));
        assert_eq!(emulation_arguments(Emulation::Threads, 7).join(" "), "-accel tcg,thread=multi");
    }

    #[test]
    fn the_listener_keeps_events_and_survives_noise() {
        let port = b"SeaBIOS\r\n\xff\xfe\n{\"booted\":\"6.12\"}\r\n{\"started\":\"a\"}\r\n{\"fini";
        let heard = AtomicUsize::new(0);
        assert_eq!(listen(&port[..], &heard), [Event::Booted("6.12".into()), Event::Started("a".into())]);
        assert_eq!(heard.into_inner(), 2);
        let heard = AtomicUsize::new(0);
        assert_eq!(listen(&b"SeaBIOS\r\n"[..], &heard), []);
        assert_eq!(heard.into_inner(), 0);
    }

    #[test]
    fn the_emulator_is_at_fault_for_what_came_before_the_scheduler() {
        const STALL: &str = "[   23.6] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n";
        const LOADED: &str = "[   35.1] sched_ext: BPF scheduler \"tandem\" enabled\n";
        let run = |console: String, end| Run { events: Vec::new(), end, console, duration: Duration::ZERO };
        let limit = Duration::from_secs(600);
        assert!(run(format!("{STALL}{LOADED}"), End::TimedOut(limit)).emulators_fault().is_some());
        for (console, end) in [
            (format!("{LOADED}{STALL}"), End::TimedOut(limit)),
            (LOADED.to_owned(), End::TimedOut(limit)),
            (format!("{STALL}{LOADED}"), End::Left(ExitStatus::default())),
        ] {
            assert_eq!(run(console, end).emulators_fault(), None);
        }
        assert!(run(LOADED.to_owned(), End::LostWakeUp(limit)).emulators_fault().is_some());
    }
}
