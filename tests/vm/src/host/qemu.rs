//! Boots a leg in QEMU and collects the guest's reports.

use super::monitor::Monitor;
use crate::guest::parameters::Parameters;
use crate::guest::tasks;
use crate::leg::{Emulation, Leg, Machine};
use crate::report::Event;
use anyhow::{Context, Result};
use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A guest is given up when it has taken this many times the maximum that was ever seen.
const TIMES_SEEN: u32 = 10;
/// The same of its CPU time, in times of [`Leg::cpu_s`]. A busy machine takes twice what an idle one does; a
/// leg that hangs in a loop is to end before its machine's patience does.
const CPU_TIMES_SEEN: u32 = 4;
/// CPU time of QEMU from its start to the first report: 28 s were seen, of a guest with 32 CPUs.
const BOOT_SEEN: Duration = Duration::from_secs(28);
/// How much of the machine's clock went by without a report: 200 s were seen with a load of 20 on two CPUs. A
/// guest whose CPUs all sleep takes no CPU time, so that it takes a limit by this clock as well.
const SILENCE_SEEN: Duration = Duration::from_secs(200);
/// Time after which a guest that reports nothing is examined from outside, and time between two examinations.
/// The findings decide whether it is ended.
const LOOK_INTERVAL: Duration = Duration::from_secs(90);
/// How often QEMU is asked whether it has ended, and what CPU time it has taken.
const POLL: Duration = Duration::from_millis(200);
/// Longest time for a guest to print its state and to end.
const LAST_WORDS: Duration = Duration::from_secs(60);
/// For kernels whose CPUs share the machine's with other work. They do not consider a CPU stalled after the
/// usual 20 s, in which one of many may well get little time of the machine, but after the longest time that
/// each can be set to. And they do not check at boot whether ticks agree with the clock.
const PATIENCE_PARAMETERS: &str = "no_timer_check rcupdate.rcu_cpu_stall_timeout=300 watchdog_thresh=60 \
     sysctl.kernel.hung_task_timeout_secs=1200";
/// The messages about a stalled CPU.
const STALLS: [&str; 3] = ["rcu: INFO: rcu_", "BUG: soft lockup", "hard LOCKUP"];
/// The message when they have loaded a scheduler.
const LOADED: &str = "sched_ext: BPF scheduler";

/// A virtual machine's life.
pub struct Run {
    /// The reports of the guest.
    pub events: Vec<Event>,
    /// How it ended.
    pub end: End,
    /// The output of the guest's kernel and of QEMU.
    pub console: String,
    /// From start to end, by the machine's clock.
    pub duration: Duration,
    /// CPU time that QEMU took.
    pub cpu_time: Duration,
}

impl Run {
    /// Leaves out the reports of a case that did not end; returns the names of those that did.
    pub fn keep_finished(&mut self) -> Vec<String> {
        let is_end = |event: &Event| matches!(event, Event::Finished { .. });
        self.events.truncate(self.events.iter().rposition(is_end).map_or(0, |last| last + 1));
        let started = self.events.iter().filter_map(|event| match event {
            Event::Started(name) => Some(name.clone()),
            _ => None,
        });
        started.collect()
    }

    /// All has been tried before it went wrong.
    pub fn end_well(&mut self) {
        self.events.push(Event::End);
        self.end = End::Left(ExitStatus::default());
    }

    /// With another boot of the same leg, which ran other cases.
    pub fn and_then(mut self, next: Self) -> Self {
        self.events.extend(next.events);
        Self {
            events: self.events,
            duration: self.duration + next.duration,
            cpu_time: self.cpu_time + next.cpu_time,
            ..next
        }
    }

    /// Why the run proves nothing about its subject, if so: with a thread a CPU, QEMU may run what it
    /// translated before the kernel patched it. Then the kernel meets a breakpoint that it had taken out of
    /// its own code (QEMU 7.2 and 10.0.2 often). Or it loses a wake-up (10.0.2, rarely): a CPU waits for an
    /// interrupt that it has been sent, and the others for that CPU.
    pub fn emulators_fault(&self) -> Option<&'static str> {
        if self.console.contains("Oops: int3") {
            return Some("ran code that the kernel had patched (Oops: int3)");
        }
        match self.end {
            End::Left(_) if self.events.is_empty() => Some("had the kernel end before it had booted"),
            End::Left(_) => None,
            End::NeverBooted(_) => Some("never finished the kernel's boot"),
            End::LostWakeUp(_) => Some("let a CPU sleep that had an interrupt to serve"),
            End::GivenUp(_) => {
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
    /// It reached a limit and was killed.
    GivenUp(Limit),
    /// It reached one before it had reported anything, and was killed.
    NeverBooted(Limit),
    /// After this time a CPU was found asleep that had an interrupt to serve, and it was killed.
    LostWakeUp(Duration),
}

/// The limit of a guest.
#[derive(Debug, Clone, Copy)]
pub enum Limit {
    /// CPU time of QEMU.
    CpuTime(Duration),
    /// Time without a report, by the machine's clock.
    Silence(Duration),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CpuTime(time) => write!(f, "{} s of CPU time", time.as_secs()),
            Self::Silence(time) => write!(f, "{} s without a report", time.as_secs()),
        }
    }
}

/// Boots the leg that `parameters` name; its output goes to `folder`. The seed only matters where
/// instructions are counted.
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
        let name = leg.name;
        // CI may end before the leg does: its log then shows where that was.
        let tell = move |event: &Event| {
            if let Event::Started(case) = event {
                println!("{name}/{case} begins");
            }
        };
        move || listen(reports, &heard, tell)
    });
    // The churn reports nothing, and continues for a time that is requested; each CPU can take all of it.
    let churn = Duration::from_secs(parameters.churn_s);
    let limits = Limits {
        boot: TIMES_SEEN * BOOT_SEEN,
        cpu_time: CPU_TIMES_SEEN * Duration::from_secs(leg.cpu_s) + leg.machine.cpus() * churn,
        silence: TIMES_SEEN * SILENCE_SEEN + churn,
    };
    let mut watch = Watch { qemu: &mut qemu, monitor, cpus: leg.machine.cpus(), heard: &heard };
    let (end, cpu_time, seen) =
        watch.wait(&limits).with_context(|| format!("cannot wait for the leg {}", leg.name))?;
    let duration = start.elapsed();
    let events = listener.join().expect("the listener does not panic");
    let [console, messages] = [console, messages]
        .map(|file| String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned());
    Ok(Run { events, end, console: console + &messages + &seen, duration, cpu_time })
}

/// The options for the emulator and its clock.
fn emulation_arguments(emulation: Emulation, seed: u32) -> Vec<String> {
    let Emulation::Counted { timer_ns } = emulation else {
        return ["-accel", "tcg,thread=multi"].map(String::from).into();
    };
    let mut arguments: Vec<String> = [
        "-accel",
        "tcg,thread=single",
        // 2^0 ns per instruction; a guest that sleeps continues at once, with its clock put forward.
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
        // A filter of a network that has no card: it only sets its timer, again whenever that expires.
        arguments.extend(["-netdev".into(), "hubport,id=none,hubid=0".into(), "-object".into()]);
        arguments.push(format!("filter-buffer,id=timer,netdev=none,interval={}", timer_ns / 1_000));
    }
    arguments
}

/// The options for the emulated hardware.
fn machine_arguments(machine: &Machine) -> Vec<String> {
    let Machine { cpu, sockets, cores, threads, nodes, memory_mib } = machine;
    let mut arguments = vec![
        "-cpu".into(),
        (*cpu).into(),
        "-smp".into(),
        format!("{},sockets={sockets},cores={cores},threads={threads}", machine.cpus()),
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

/// The parameters of the guest's kernel, and through it of the guest.
fn kernel_command_line(leg: &Leg, parameters: &Parameters) -> String {
    // A kernel that panics reboots at once, upon which QEMU leaves; it does so if it is asked for its last
    // words. The log holds all of a leg.
    let patience = if leg.emulation == Emulation::Threads { PATIENCE_PARAMETERS } else { "" };
    format!(
        "console=ttyS0 panic=-1 unknown_nmi_panic log_buf_len=4M {patience} {} {parameters}",
        leg.kernel_parameters
    )
}

/// Collects events until the port closes, and logs each; `heard` counts them.
fn listen(reports: impl Read, heard: &AtomicUsize, tell: impl Fn(&Event)) -> Vec<Event> {
    let mut reports = BufReader::new(reports);
    let mut events: Vec<Event> = Vec::new();
    let mut line = Vec::new();
    while reports.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        if let Some(event) = Event::parse(&String::from_utf8_lossy(&line)) {
            tell(&event);
            events.push(event);
        }
        heard.store(events.len(), Ordering::Relaxed);
        line.clear();
    }
    events
}

/// When a guest is given up.
struct Limits {
    /// CPU time until it has reported something.
    boot: Duration,
    cpu_time: Duration,
    silence: Duration,
}

/// The checks while a guest runs.
struct Watch<'a> {
    qemu: &'a mut Child,
    monitor: Monitor,
    cpus: u32,
    /// How many events it has reported.
    heard: &'a AtomicUsize,
}

impl Watch<'_> {
    /// Waits until QEMU exits, reaches a limit or is found at fault. Returns how it ended, the CPU time that
    /// it took, and the states of the CPUs if it did not exit by itself.
    fn wait(&mut self, limits: &Limits) -> Result<(End, Duration, String)> {
        let start = Instant::now();
        let mut heard = 0;
        let mut heard_at = start;
        let mut looked_at = start;
        let mut cpu_time = Duration::ZERO;
        loop {
            if let Some(status) = self.qemu.try_wait()? {
                return Ok((End::Left(status), cpu_time, String::new()));
            }
            // It may have left meanwhile; no thread is forgotten before.
            cpu_time = tasks::usage_of_process(self.qemu.id()).map_or(cpu_time, |usage| usage.run());
            if self.heard.load(Ordering::Relaxed) != heard {
                heard = self.heard.load(Ordering::Relaxed);
                heard_at = Instant::now();
            }
            let limit = if cpu_time >= limits.cpu_time || heard == 0 && cpu_time >= limits.boot {
                Some(Limit::CpuTime(cpu_time))
            } else {
                (heard_at.elapsed() >= limits.silence).then(|| Limit::Silence(heard_at.elapsed()))
            };
            let end = if let Some(limit) = limit {
                Some(if heard == 0 { End::NeverBooted(limit) } else { End::GivenUp(limit) })
            } else if heard_at.max(looked_at).elapsed() >= LOOK_INTERVAL {
                looked_at = Instant::now();
                // A QEMU that does not answer has its limits.
                let is_asleep = self.monitor.has_lost_wake_up(self.cpus).unwrap_or(false);
                is_asleep.then(|| End::LostWakeUp(start.elapsed()))
            } else {
                None
            };
            if let Some(end) = end {
                let seen = self.look();
                self.qemu.kill()?;
                self.qemu.wait()?;
                return Ok((end, cpu_time, seen));
            }
            thread::sleep(POLL);
        }
    }

    /// The state of each CPU, a line each; makes the kernel print its state on its console.
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
        let machine = Machine { cpu: "max", sockets: 2, cores: 4, threads: 1, nodes: 2, memory_mib: 2048 };
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
        assert_eq!(
            listen(&port[..], &heard, |_| {}),
            [Event::Booted("6.12".into()), Event::Started("a".into())]
        );
        assert_eq!(heard.into_inner(), 2);
        let heard = AtomicUsize::new(0);
        assert_eq!(listen(&b"SeaBIOS\r\n"[..], &heard, |_| {}), []);
        assert_eq!(heard.into_inner(), 0);
    }

    #[test]
    fn the_emulator_is_at_fault_for_what_came_before_the_scheduler() {
        const STALL: &str = "[   23.6] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:\n";
        const LOADED: &str = "[   35.1] sched_ext: BPF scheduler \"tandem\" enabled\n";
        let run = |console: String, end| Run {
            events: vec![Event::Booted("7.3".into())],
            end,
            console,
            duration: Duration::ZERO,
            cpu_time: Duration::ZERO,
        };
        let time = Duration::from_secs(600);
        let limit = Limit::Silence(time);
        assert!(run(format!("{STALL}{LOADED}"), End::GivenUp(limit)).emulators_fault().is_some());
        for (console, end) in [
            (format!("{LOADED}{STALL}"), End::GivenUp(limit)),
            (LOADED.to_owned(), End::GivenUp(Limit::CpuTime(time))),
            (format!("{STALL}{LOADED}"), End::Left(ExitStatus::default())),
        ] {
            assert_eq!(run(console, end).emulators_fault(), None);
        }
        assert!(run(LOADED.to_owned(), End::LostWakeUp(time)).emulators_fault().is_some());
        let before_boot = Run { events: Vec::new(), ..run(String::new(), End::Left(ExitStatus::default())) };
        assert!(before_boot.emulators_fault().is_some());
    }
}
