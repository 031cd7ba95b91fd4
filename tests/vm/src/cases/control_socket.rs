//! The agent's process and its socket: users steer their own tasks and nothing else, and no user can keep
//! others out.

use super::succeeds;
use crate::guest::process::Process;
use crate::guest::tandem::{Tandem, agent, describe};
use crate::guest::{Guest, sched_ext, wait};
use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::set_thread_uid;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::thread;

/// Exit status for a refusal.
const FAILURE: i32 = 1;
/// A user of no group in particular.
pub const USER: u32 = 1000;
/// A user of the group `tandem`.
pub const READER: u32 = 1001;
/// Capabilities that the agent keeps.
const NONE: &str = "0000000000000000";
/// As many as a user may have: see the service's documentation.
const CONNECTIONS_OF_USER_MAX: usize = 16;
/// As many as an attacker opens.
const CONNECTIONS: usize = 1000;
/// Sets of CPUs that a user may have: `SETS_OF_USER` of the scheduler.
const SETS_OF_USER: usize = 32;

const PASSWD: &str = "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\nreader:x:1001:1001::/:/bin/sh\n";
const GROUP: &str = "root:x:0:\ntandem:x:990:reader\nuser:x:1000:\nreader:x:1001:\n";

/// Lets the system have these users.
pub fn write_users() -> Result<()> {
    fs::create_dir_all("/etc")?;
    fs::write("/etc/passwd", PASSWD)?;
    Ok(fs::write("/etc/group", GROUP)?)
}

/// A scheduler on a system with these users.
fn scheduler_with_users() -> Result<Tandem> {
    write_users()?;
    Tandem::run(&[])
}

fn as_user(user: u32, arguments: &[&str]) -> Result<Output> {
    let output = Command::new("tandem").args(arguments).uid(user).gid(user).output();
    output.context("cannot start tandem as another user")
}

/// The output of a command that must have succeeded.
fn succeeded(output: &Output) -> Result<String> {
    ensure!(output.status.success(), "a user's command: {}", describe(output));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn refused(output: &Output, message: &str) -> Result<()> {
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(FAILURE) && error.contains(message) && error.lines().count() == 1,
        "wanted is a refusal with `{message}`, not {}",
        describe(output)
    );
    Ok(())
}

fn sleep_as(user: u32) -> Result<Process> {
    Process::start(Command::new("busybox").args(["sleep", "1000"]).uid(user).gid(user))
}

/// Users set and read what their own tasks prefer; the group reads all; everything else is refused, and
/// logged.
pub fn users_steer_their_own(_: &Guest) -> Result<()> {
    let tandem = scheduler_with_users()?;
    let (own, roots) = (sleep_as(USER)?, sleep_as(0)?);
    let (own_pid, roots_pid) = (own.pid().to_string(), roots.pid().to_string());

    succeeded(&as_user(USER, &["prefer", "--cpus", "0-1", "--pid", &own_pid])?)?;
    let text = succeeded(&as_user(USER, &["prefer", "show", "--pid", &own_pid])?)?;
    ensure!(text.contains("CPUs 0-1"), "its own preference is not shown: {text}");
    succeeded(&as_user(USER, &["prefer", "--cpus", "2", "--", "true"])?)?;

    let others = "it belongs to another user";
    refused(&as_user(USER, &["prefer", "--cpus", "0", "--pid", &roots_pid])?, others)?;
    refused(&as_user(USER, &["prefer", "show", "--pid", &roots_pid])?, others)?;
    refused(&as_user(READER, &["prefer", "--cpus", "0", "--pid", &own_pid])?, others)?;
    refused(&as_user(USER, &["prefer", "--cpus", "0", "--cgroup", "."])?, others)?;
    refused(&as_user(USER, &["prefer", "--latency-critical", "--pid", &own_pid])?, "only root may exempt")?;
    refused(&as_user(USER, &["stat"])?, "members of the group `tandem`")?;
    succeeded(&as_user(READER, &["stat", "--json"])?)?;
    let text = succeeded(&as_user(READER, &["prefer", "show"])?)?;
    ensure!(text.contains(&format!("thread {own_pid} ")), "the group does not see the preferences: {text}");

    let text = succeeds(&["prefer", "show", "--pid", &roots_pid])?;
    ensure!(text.contains("no preference"), "a user changed a task of root: {text}");
    let output = tandem.stop()?;
    for user in [USER, READER] {
        let line = format!("tandem: refused user {user}, process ");
        ensure!(output.contains(&line), "no refusal of user {user} in the log: {output}");
    }
    Ok(())
}

/// Nothing that a user sends keeps others from the service.
pub fn hostile_user(guest: &Guest) -> Result<()> {
    let tandem = scheduler_with_users()?;
    let streams = thread::spawn(attack).join().map_err(|_| anyhow!("the attacker panicked"))??;
    succeeded(&as_user(READER, &["stat"])?)?;
    succeeds(&["stat"])?;
    // Answers to later clients prove that: no wait is needed.
    let mut turned_away = 0;
    for stream in &streams {
        stream.set_nonblocking(true)?;
        if read_line(stream).is_ok_and(|line| line.contains("too many connections")) {
            turned_away += 1;
        }
    }
    guest.note(format!("of {CONNECTIONS} connections {turned_away} were turned away"))?;
    ensure!(turned_away == CONNECTIONS - CONNECTIONS_OF_USER_MAX, "that is another number than it should be");
    drop(streams);

    let many = (0..=SETS_OF_USER).map(|_| sleep_as(USER)).collect::<Result<Vec<_>>>()?;
    let tids: Vec<u32> = many.iter().map(|process| process.pid()).collect();
    let (sets, answer) =
        thread::spawn(move || take_sets(&tids)).join().map_err(|_| anyhow!("the attacker panicked"))??;
    ensure!(sets == SETS_OF_USER && answer.contains("as many different sets"), "{sets} sets, then {answer}");
    let roots = sleep_as(0)?;
    succeeds(&["prefer", "--cpus", "0-1", "--pid", &roots.pid().to_string()])?;
    drop(many);

    let own = sleep_as(USER)?;
    succeeded(&as_user(USER, &["prefer", "--cpus", "0", "--pid", &own.pid().to_string()])?)?;
    let output = tandem.stop()?;
    let lines = output.lines().filter(|line| line.contains(&format!("refused user {USER}"))).count();
    ensure!((1..10).contains(&lines), "the log has {lines} lines about the user");
    Ok(())
}

/// As the user: nonsense, huge lines, and then many connections at once, which stay open.
fn attack() -> Result<Vec<UnixStream>> {
    set_thread_uid(rustix::fs::Uid::from_raw(USER))?;
    let huge = vec![b'x'; 1 << 20];
    let deep = [vec![b'['; 60_000], vec![b'\n']].concat();
    for nonsense in [&b"\n"[..], b"{}\n", b"\xff\x00\n", &deep, &huge] {
        let mut stream = connect()?;
        // The service closes the connection before it has read all of a line that is too long.
        let _ = stream.write_all(nonsense);
        let answer = read_line(&stream)?;
        ensure!(answer.contains("bad_request"), "nonsense was answered with {answer}");
    }
    (0..CONNECTIONS).map(|_| connect()).collect()
}

/// As the user: as many different sets of CPUs as the service allows, for a task each; returns how many that
/// were, and the last answer.
fn take_sets(tids: &[u32]) -> Result<(usize, String)> {
    set_thread_uid(rustix::fs::Uid::from_raw(USER))?;
    let mut stream = connect()?;
    for (cpu, tid) in (1..).zip(tids) {
        let request = format!(
            r#"{{"prefer":{{"whom":{{"task":{tid}}},"place":{{"cpus":[0,{cpu}]}},"latency_critical":false}}}}"#
        );
        writeln!(stream, "{request}")?;
        let answer = read_line(&stream)?;
        if !answer.contains("done") {
            return Ok((cpu - 1, answer));
        }
    }
    Ok((tids.len(), String::new()))
}

/// A connection to the service.
pub fn connect() -> Result<UnixStream> {
    UnixStream::connect("/run/tandem/tandem.sock").context("cannot connect")
}

/// A line that the service sends.
pub fn read_line(stream: &UnixStream) -> Result<String> {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}

/// The agent has given up its capabilities; when it is killed, or hangs, the scheduler continues, and another
/// agent takes over.
pub fn agent_is_killed(_: &Guest) -> Result<()> {
    let tandem = scheduler_with_users()?;
    let first = agent()?;
    let status = fs::read_to_string(format!("/proc/{first}/status"))?;
    for line in [format!("CapEff:\t{NONE}"), format!("CapBnd:\t{NONE}"), "NoNewPrivs:\t1".into()] {
        ensure!(status.contains(&line), "the agent's status has no `{line}`: {status}");
    }
    let own = sleep_as(USER)?;
    let own_pid = own.pid().to_string();
    succeeded(&as_user(USER, &["prefer", "--cpus", "1", "--pid", &own_pid])?)?;

    let loadings = sched_ext::loadings()?;
    kill_process(Pid::from_raw(first as i32).context("a process has a number")?, Signal::KILL)?;
    let second = wait::until("another agent", || Ok(agent().ok().filter(|&pid| pid != first)))?;
    ensure!(second != first && sched_ext::state()? == "enabled" && sched_ext::loadings()? == loadings);
    wait::until("the service", || Ok(as_user(USER, &["prefer", "show"])?.status.success().then_some(())))?;
    let text = succeeded(&as_user(USER, &["prefer", "show", "--pid", &own_pid])?)?;
    ensure!(text.contains("CPUs 1"), "the preference is gone: {text}");

    kill_process(Pid::from_raw(second as i32).context("a process has a number")?, Signal::STOP)?;
    let third = wait::until("an agent in the place of one that is silent", || {
        Ok(agent().ok().filter(|&pid| pid != second))
    })?;
    ensure!(third != first && sched_ext::state()? == "enabled" && sched_ext::loadings()? == loadings);
    wait::until("the service", || Ok(as_user(USER, &["prefer", "show"])?.status.success().then_some(())))?;
    let output = tandem.stop()?;
    ensure!(output.contains("was silent for 30 s"), "its silence is not logged: {output}");
    ensure!(output.contains("the agent ended"), "its end is not logged: {output}");
    ensure!(agent().is_err(), "the agent is still there");
    Ok(())
}
