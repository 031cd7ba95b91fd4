//! Work for the scheduler: processes whose demand is known.
//!
//! They are `vm-guest work ...`, so that a case defines its work without a program of its own.
//! [`tasks`](super::tasks) reads from outside what they get.

use super::process::Process;
use super::{perform, wait};
use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use rustix::process::{getpid, setpriority_process};
use rustix::thread::{
    CoreSchedulingScope, CpuSet, create_core_scheduling_cookie, sched_getaffinity, sched_setaffinity,
};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::hint::black_box;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;
use tandem_machine::parse_cpulist;

/// How `vm-guest` is called to work.
pub const ARGUMENT: &str = "work";

/// The output of a process when all its threads have started.
const STARTED: &str = "at work\n";

/// Rounds of computing between two readings of the clock: some microseconds on an emulated CPU.
const ROUNDS: u32 = 500;

/// The work of a process, and its conditions.
#[derive(Debug, Clone, Parser)]
#[command(name = "vm-guest work")]
pub struct Work {
    /// CPUs that it may use, as a list; all if there is none
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    nice: Option<i32>,
    /// Directory of the cgroup to join
    #[arg(long, value_name = "DIR")]
    cgroup: Option<String>,
    /// Share cores only with its own threads: take a new core scheduling cookie
    #[arg(long)]
    cookie: bool,
    #[command(subcommand)]
    job: Job,
    /// The command by which it is started; not an argument of its own
    #[arg(skip)]
    started_by: Vec<String>,
}

#[derive(Debug, Clone, Subcommand)]
enum Job {
    /// Threads that compute all the time
    Burn { threads: u32 },
    /// Threads that compute for some time, sleep for some time, and so on
    Pulse { threads: u32, run_us: u64, sleep_us: u64 },
    /// Threads that compute all the time, and periodically exclude the next one of the CPUs that they may use
    Roam { threads: u32, stay_us: u64 },
    /// Two threads that send each other 8 bytes in turn, as UnixBench's context1 does with processes
    PingPong,
    /// Threads that run the programs of a set of processes in a scenario file, from a time of the monotonic
    /// clock on
    Perform { scenario: PathBuf, set: usize, start_ns: u64 },
}

/// A process that computes all the time in each of its threads.
pub fn burn(threads: u32) -> Work {
    Work::new(Job::Burn { threads })
}

/// A process each of whose threads computes for `run`, sleeps for `sleep`, and so on.
pub fn pulse(threads: u32, run: Duration, sleep: Duration) -> Work {
    Work::new(Job::Pulse { threads, run_us: us(run), sleep_us: us(sleep) })
}

/// A process that computes all the time in each of its threads. After each `stay` of that, a thread changes
/// its affinity: it may use all CPUs that the process may, but for one, each in turn. Every so often it has
/// to leave the CPU on which it is.
pub fn roam(threads: u32, stay: Duration) -> Work {
    Work::new(Job::Roam { threads, stay_us: us(stay) })
}

/// A process with two threads that wake each other in turn, and otherwise wait.
pub fn ping_pong() -> Work {
    Work::new(Job::PingPong)
}

/// A process whose threads run the programs of a scenario's set of processes, from a time of the monotonic
/// clock on.
pub fn perform(scenario: &Path, set: usize, start_ns: u64) -> Work {
    Work::new(Job::Perform { scenario: scenario.into(), set, start_ns })
}

fn us(duration: Duration) -> u64 {
    duration.as_micros().try_into().expect("short times")
}

impl Work {
    fn new(job: Job) -> Self {
        Self { cpus: None, nice: None, cgroup: None, cookie: false, job, started_by: Vec::new() }
    }

    /// May only use these CPUs.
    pub fn on(mut self, cpus: &[u32]) -> Self {
        self.cpus = Some(list(cpus));
        self
    }

    /// With this nice value.
    pub fn nice(mut self, nice: i32) -> Self {
        self.nice = Some(nice);
        self
    }

    /// In the cgroup of this directory.
    pub fn in_cgroup(mut self, directory: &str) -> Self {
        self.cgroup = Some(directory.to_owned());
        self
    }

    /// With a core scheduling cookie of its own: no thread of another cookie runs on a core at the same
    /// time.
    pub fn with_cookie(mut self) -> Self {
        self.cookie = true;
        self
    }

    /// With a preference: started by `tandem prefer OPTIONS -- ...`.
    pub fn preferring(self, options: &[&str]) -> Self {
        self.started_by([&["tandem", "prefer"], options, &["--"]].concat())
    }

    /// With the policy of tasks that wait for no other, `SCHED_BATCH`.
    pub fn batch(self) -> Self {
        self.started_by(vec!["chrt", "--batch", "0"])
    }

    /// Before all tasks that are not real-time.
    pub fn real_time(self) -> Self {
        self.started_by(vec!["chrt", "--fifo", "50"])
    }

    fn started_by(mut self, words: Vec<&str>) -> Self {
        self.started_by.extend(words.into_iter().map(str::to_owned));
        self
    }

    /// The command that does it.
    pub fn command(&self) -> Command {
        let mut words = self.started_by.clone();
        words.extend(["vm-guest".into(), ARGUMENT.into()]);
        words.extend(self.cpus.iter().map(|cpus| format!("--cpus={cpus}")));
        words.extend(self.nice.iter().map(|nice| format!("--nice={nice}")));
        words.extend(self.cgroup.iter().map(|cgroup| format!("--cgroup={cgroup}")));
        words.extend(self.cookie.then(|| "--cookie".into()));
        match &self.job {
            Job::Burn { threads } => words.extend(["burn".into(), threads.to_string()]),
            Job::Pulse { threads, run_us, sleep_us } => {
                words.push("pulse".into());
                words.extend([u64::from(*threads), *run_us, *sleep_us].map(|number| number.to_string()));
            }
            Job::Roam { threads, stay_us } => {
                words.extend(["roam".into(), threads.to_string(), stay_us.to_string()]);
            }
            Job::PingPong => words.push("ping-pong".into()),
            Job::Perform { scenario, set, start_ns } => {
                words.extend(["perform".into(), scenario.display().to_string()]);
                words.extend([set.to_string(), start_ns.to_string()]);
            }
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }

    /// Starts it, and waits until all its threads are at work, under the conditions that it is to have.
    pub fn start(&self) -> Result<Process> {
        let mut process = Process::start(&mut self.command())?;
        wait::until("the start of work", || {
            let status = process.ended()?;
            ensure!(status.is_none(), "the work ended: {}", process.output().trim());
            Ok((process.output() == STARTED).then_some(()))
        })?;
        Ok(process)
    }

    /// Does it, in this process, until it is killed.
    pub fn run(&self) -> Result<()> {
        if let Some(directory) = &self.cgroup {
            let file = format!("{directory}/cgroup.procs");
            fs::write(&file, "0").with_context(|| format!("cannot join by {file}"))?;
        }
        if let Some(nice) = self.nice {
            setpriority_process(None, nice).context("cannot set the nice value")?;
        }
        if let Some(cpus) = &self.cpus {
            let mut set = CpuSet::new();
            parse_cpulist(cpus)?.iter().for_each(|&cpu| set.set(cpu as usize));
            sched_setaffinity(None, &set).with_context(|| format!("cannot run on the CPUs {cpus}"))?;
        }
        if self.cookie {
            // Threads that start later inherit it.
            create_core_scheduling_cookie(getpid(), CoreSchedulingScope::Thread)
                .context("cannot take a core scheduling cookie")?;
        }
        match &self.job {
            &Job::Burn { threads } => in_threads(threads, || compute_until(|| false)),
            &Job::Pulse { threads, run_us, sleep_us } => {
                let run = Duration::from_micros(run_us);
                let sleep = Duration::from_micros(sleep_us);
                in_threads(threads, move || pulse_forever(run, sleep));
            }
            &Job::Roam { threads, stay_us } => {
                let all = sched_getaffinity(None).context("cannot read the affinity")?;
                in_threads(threads, move || roam_forever(&all, Duration::from_micros(stay_us)));
            }
            Job::PingPong => play_ping_pong()?,
            Job::Perform { scenario, set, start_ns } => {
                let set = perform::Set::read(scenario, *set)?;
                print!("{STARTED}");
                set.perform(*start_ns)?;
            }
        }
        Ok(())
    }
}

/// A list of CPUs in the form of the kernel.
pub fn list(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// Runs something in this many threads, of which this one is the first.
fn in_threads(threads: u32, work: impl Fn() + Clone + Send + 'static) {
    for _ in 1..threads {
        thread::spawn(work.clone());
    }
    print!("{STARTED}");
    work();
}

/// Computes without a system call and without PAUSE, which may cause an emulator to run another CPU.
fn compute_until(done: impl Fn() -> bool) {
    let mut number = 1_u64;
    while !done() {
        for _ in 0..ROUNDS {
            number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

fn pulse_forever(run: Duration, sleep: Duration) {
    loop {
        compute(run);
        thread::sleep(sleep);
    }
}

fn roam_forever(all: &CpuSet, stay: Duration) {
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu)).collect();
    for &left_out in cpus.iter().cycle() {
        compute(stay);
        let mut set = *all;
        set.unset(left_out);
        // An error means that no other one is online.
        let _ = sched_setaffinity(None, &set);
    }
}

/// Computes for some of the thread's own time, so that waiting for a CPU is not taken for having computed.
pub fn compute(time: Duration) {
    let end = thread_time() + time;
    compute_until(|| thread_time() >= end);
}

/// How long this thread has been on a CPU.
fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn play_ping_pong() -> Result<()> {
    let (reader_of_ping, ping) = io::pipe().context("cannot make a pipe")?;
    let (reader_of_pong, mut pong) = io::pipe().context("cannot make a pipe")?;
    pong.write_all(&[0; 8])?;
    let other = thread::spawn(|| return_balls(reader_of_ping, pong));
    print!("{STARTED}");
    return_balls(reader_of_pong, ping)?;
    other.join().expect("no thread panics")
}

fn return_balls(mut from: PipeReader, mut to: PipeWriter) -> Result<()> {
    let mut ball = [0; 8];
    loop {
        from.read_exact(&mut ball)?;
        to.write_all(&ball)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_what_the_process_understands() {
        let work = pulse(3, Duration::from_millis(5), Duration::from_micros(20))
            .on(&[0, 2])
            .nice(-5)
            .with_cookie()
            .in_cgroup("/sys/fs/cgroup/a");
        let command = work.command();
        assert_eq!(command.get_program(), "vm-guest");
        let arguments: Vec<_> = command.get_args().collect();
        assert_eq!(arguments[0], ARGUMENT);
        let parsed = Work::try_parse_from(arguments).unwrap();
        assert_eq!(format!("{parsed:?}"), format!("{work:?}"));
    }

    #[test]
    fn a_preference_is_given_by_the_command() {
        let command = burn(2).preferring(&["--cpus", "0-1"]).command();
        let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(command.get_program(), "tandem");
        assert_eq!(words.join(" "), "prefer --cpus 0-1 -- vm-guest work burn 2");
    }
}
