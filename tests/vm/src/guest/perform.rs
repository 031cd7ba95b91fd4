//! Performs a scenario file's set of processes in a real kernel, as the simulator does.
//!
//! **Problem.** To compare the two, the same programs must run in both.
//!
//! **Approach.** The simulator's own reader reads the scenario file. Each process of the set is a thread that
//! executes the operations of its program: it computes for a given amount of its own CPU time, sleeps,
//! yields, and uses a channel as a pipe, in which each token is a packet of one byte in a page of its own, so
//! that the pipe has the channel's capacity.
//!
//! **Limits.** The set must be threads of one process. Operations that have no exact counterpart are refused:
//! only `send` may write to a channel, and times are fixed. System calls take time here that they do not take
//! in the simulator, and the threads start one after the other.

use super::work::compute;
use anyhow::{Context, Result, bail, ensure};
use rustix::io::{read, write};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use rustix::thread::{clock_nanosleep_absolute, sched_yield};
use rustix::time::{ClockId, Timespec};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tandem_lab::scenario::ScenarioSource;
use tandem_sim::program::{Amount, Op};
use tandem_sim::scenario::{Scenario, Workload, WorkloadKind};

/// A page of a pipe holds one token.
const PAGE_BYTES: usize = 4096;

/// The scenario in a file, as the simulator would run it.
pub fn read_scenario(file: &Path) -> Result<Scenario> {
    let mut scenario = ScenarioSource::read(file)?.build(&Default::default(), &Default::default())?;
    // What the guest's kernel does is in its records.
    scenario.remove_kernel_threads();
    Ok(scenario)
}

/// The name of a task of a set: the set's name and the task's number.
pub fn task_name(set: &str, number: usize) -> String {
    format!("{set}/{number}")
}

/// A set of processes, with its resources.
pub struct Set {
    processes: Workload,
    channels: Arc<[Channel]>,
}

/// A pipe.
struct Channel {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Set {
    /// The set of that number in the file.
    pub fn read(file: &Path, number: usize) -> Result<Self> {
        let mut scenario = read_scenario(file)?;
        ensure!(number < scenario.workloads.len(), "{} has no set {number}", file.display());
        let processes = scenario.workloads.swap_remove(number);
        ensure!(
            matches!(processes.kind, WorkloadKind::Threads(_)),
            "{} are not `threads = true`",
            processes.name
        );
        let mut capacities = vec![None; processes.channels];
        for task in processes.programs() {
            check(&task.program.ops, &mut capacities)
                .with_context(|| format!("{} cannot be done by a real kernel", processes.name))?;
        }
        let channels = capacities.iter().map(|capacity| Channel::open(capacity.unwrap_or(1)));
        let channels = channels.collect::<Result<_>>()?;
        Ok(Self { processes, channels })
    }

    /// Starts all tasks at a time of the monotonic clock, and waits until they end.
    pub fn perform(self, start_ns: u64) -> Result<()> {
        sleep_until(start_ns);
        let mut threads = Vec::new();
        for (number, task) in self.processes.programs().iter().enumerate() {
            let program = task.program.clone();
            let channels = self.channels.clone();
            let name = task_name(&self.processes.name, number);
            let body = move || run(&program.ops, &channels, start_ns);
            threads.push(thread::Builder::new().name(name).spawn(body).context("cannot start a thread")?);
        }
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    }
}

impl Channel {
    fn open(capacity: u32) -> Result<Self> {
        // Packets, so that the next token does not go into the page of the one before.
        let (reader, writer) = pipe_with(PipeFlags::DIRECT).context("cannot make a pipe")?;
        let bytes = capacity as usize * PAGE_BYTES;
        let has = fcntl_setpipe_size(&writer, bytes).with_context(|| format!("no pipe of {bytes} bytes"))?;
        ensure!(has == bytes, "a pipe holds {} packets instead of {capacity}", has / PAGE_BYTES);
        Ok(Self { reader, writer })
    }
}

/// Finds operations that a thread cannot do, and the capacities of channels.
fn check(ops: &[Op], capacities: &mut [Option<u32>]) -> Result<()> {
    for op in ops {
        match op {
            Op::Compute { work: Amount::Fixed(_), profile: None } | Op::Sleep(Amount::Fixed(_)) => {}
            Op::SleepUntil(_) | Op::Wait { .. } | Op::Count { .. } | Op::Yield => {}
            Op::Send { channel, capacity, resume_at: None, .. } => {
                let known = *capacities[*channel].get_or_insert(*capacity);
                ensure!(known == *capacity, "a channel has the capacities {known} and {capacity}");
            }
            Op::Repeat { body, .. } => check(body, capacities)?,
            other => bail!("it has the operation {other:?}"),
        }
    }
    Ok(())
}

/// Does operations that were checked.
fn run(ops: &[Op], channels: &[Channel], start_ns: u64) -> Result<()> {
    for op in ops {
        match op {
            Op::Compute { work: Amount::Fixed(ns), .. } => compute(Duration::from_nanos(*ns)),
            Op::Sleep(Amount::Fixed(ns)) => thread::sleep(Duration::from_nanos(*ns)),
            Op::SleepUntil(at_ns) => sleep_until(start_ns + at_ns),
            Op::Yield => sched_yield(),
            Op::Wait { channel } => _ = read(&channels[*channel].reader, &mut [0; 1])?,
            Op::Send { channel, .. } => _ = write(&channels[*channel].writer, &[0])?,
            Op::Repeat { times: Some(times), body } => {
                (0..*times).try_for_each(|_| run(body, channels, start_ns))?;
            }
            Op::Repeat { times: None, body } => loop {
                run(body, channels, start_ns)?;
            },
            // For the simulator; not needed here.
            Op::Count { .. } => {}
            other => bail!("{other:?} was not refused"),
        }
    }
    Ok(())
}

fn sleep_until(at_ns: u64) {
    let at = Timespec { tv_sec: (at_ns / 1_000_000_000) as i64, tv_nsec: (at_ns % 1_000_000_000) as _ };
    while clock_nanosleep_absolute(ClockId::Monotonic, &at).is_err() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn set(ops: &str) -> Result<Set> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("scenario.toml");
        let text = format!(
            "length = \"1s\"\nmachine = \"xeon-e5620-2s\"\n[programs.a]\nops = [{ops}]\n\
             [programs.b]\nops = [{{ repeat = {{ times = 40, body = [{{ wait = \"there\" }}] }} }}]\n\
             [[processes]]\ngroup = \"g\"\nmemory = \"1MiB\"\nthreads = true\n\
             process = [{{ program = \"a\" }}, {{ program = \"b\" }}]\n"
        );
        fs::write(&file, text).unwrap();
        Set::read(&file, 0)
    }

    #[test]
    fn a_program_ends_when_all_its_operations_are_done() {
        let send = "{ repeat = { times = 40, body = [{ compute = \"1us\" }, \"yield\", \
                    { send = { channel = \"there\", capacity = 4 } }] } }, { sleep = \"1us\" }";
        set(send).unwrap().perform(0).unwrap();
    }

    #[test]
    fn a_channel_has_the_scenarios_capacity() {
        let set = set("{ send = { channel = \"there\", capacity = 4 } }").unwrap();
        let channel = &set.channels[0];
        rustix::fs::fcntl_setfl(&channel.writer, rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::DIRECT)
            .unwrap();
        assert_eq!((0..9).take_while(|_| write(&channel.writer, &[0]).is_ok()).count(), 4);
        assert_eq!(read(&channel.reader, &mut [0; 9]).unwrap(), 1, "one token is taken at a time");
        assert_eq!((0..9).take_while(|_| write(&channel.writer, &[0]).is_ok()).count(), 1);
    }

    #[test]
    fn what_has_no_counterpart_is_refused() {
        for ops in [
            "{ signal = \"there\" }",
            "{ send = { channel = \"there\", capacity = 4 } }, { compute = { exponential = \"1ms\" } }",
        ] {
            let error = format!("{:#}", set(ops).err().unwrap());
            assert!(error.contains("g-0 cannot be done by a real kernel"), "{error}");
        }
    }
}
