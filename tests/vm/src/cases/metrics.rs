//! The metrics: they cover the scheduler and VMs, come and go with the settings, and no user keeps others
//! from them.

use super::control_socket::{READER, USER, connect, read_line, write_users};
use super::succeeds;
use crate::guest::tandem::{Tandem, agent, counters};
use crate::guest::vm::Vm;
use crate::guest::{Guest, sched_ext, wait};
use anyhow::{Context, Result, anyhow, ensure};
use rustix::thread::set_thread_uid;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

const ADDRESS: &str = "127.0.0.1:9764";
/// Settings with metrics, for which [`start_loopback`] is needed as well.
pub const LISTEN: &str = "[metrics]\nlisten = \"127.0.0.1:9764\"\n";
/// Scans every second: times at home are as old as the last scan.
const QUICK: &str = "[agent]\nlook_interval = \"1 s\"\n";
/// A safety net against a service that hangs. It closes silent connections after seconds by itself.
const READ_TIME_MAX: Duration = Duration::from_secs(600);
/// As many as an attacker opens.
const CONNECTIONS: usize = 900;
/// How often this client asks beside them, at most.
const TRIES: u32 = 3;
/// As many as the service has at a time: see its documentation.
const CONNECTIONS_MAX: usize = 64;

/// Lets metrics be asked for.
pub fn start_loopback() -> Result<()> {
    let up = Command::new("busybox").args(["ifconfig", "lo", "127.0.0.1", "up"]).output()?;
    ensure!(up.status.success(), "the loopback interface: {}", String::from_utf8_lossy(&up.stderr));
    Ok(())
}

/// The number of the agent's scans since it began.
pub fn agents_steps() -> Result<u64> {
    Ok(value(&page()?, "tandem_agent_looks_total ")? as u64)
}

/// A scheduler with metrics, on a system with users.
fn scheduler_with_metrics() -> Result<Tandem> {
    start_loopback()?;
    write_users()?;
    Tandem::run_with(&format!("{QUICK}{LISTEN}"))
}

/// A connection to the port.
pub fn client() -> Result<TcpStream> {
    let stream = TcpStream::connect(ADDRESS).with_context(|| format!("cannot connect to {ADDRESS}"))?;
    stream.set_read_timeout(Some(READ_TIME_MAX))?;
    Ok(stream)
}

/// What comes back for a request.
fn ask(request: &[u8]) -> Result<String> {
    let mut stream = client()?;
    // The service may have refused before it has received everything.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    // What came before the connection was reset is there.
    let _ = stream.read_to_end(&mut answer);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The page of metrics.
pub fn page() -> Result<String> {
    let answer = ask(format!("GET /metrics HTTP/1.1\r\nHost: {ADDRESS}\r\n\r\n").as_bytes())?;
    let (head, page) = answer.split_once("\r\n\r\n").with_context(|| format!("no answer: {answer}"))?;
    ensure!(head.starts_with("HTTP/1.1 200 OK\r\n"), "the answer begins with {head}");
    Ok(page.to_owned())
}

/// The value of the first metric whose line begins so.
pub fn value(page: &str, begin: &str) -> Result<f64> {
    let line = page.lines().find(|line| line.starts_with(begin));
    let line = line.with_context(|| format!("the page has no {begin}: {page}"))?;
    line.rsplit(' ').next().unwrap_or_default().parse().with_context(|| format!("{line} has no value"))
}

/// Asks the control socket for the VMs, as a user.
pub fn vms_as(user: u32) -> Result<String> {
    let asked = thread::spawn(move || {
        set_thread_uid(rustix::fs::Uid::from_raw(user))?;
        let mut stream = connect()?;
        stream.write_all(b"\"vms\"\n")?;
        read_line(&stream)
    });
    asked.join().map_err(|_| anyhow!("the client panicked"))?
}

/// Metrics have the scheduler's counters and the VMs, whose times at home rise; the group may read the same
/// by the socket; and the settings switch them off without loading the scheduler again.
pub fn tell_of_a_vm(guest: &Guest) -> Result<()> {
    let tandem = scheduler_with_metrics()?;
    let vm = Vm::start("measured", 2)?;
    let home = vm.wait_for_home()?;
    let labels = format!("{{vm=\"measured\",pid=\"{}\"", vm.process().pid());
    let at_home = format!("tandem_vm_home_seconds_total{labels}");
    let first =
        wait::until("times at home", || Ok(value(&page()?, &at_home).ok().filter(|&home| home > 0.0)))?;
    let text = wait::until("that they rise", || {
        Ok(Some(page()?).filter(|page| value(page, &at_home).is_ok_and(|home| home > first)))
    })?;
    ensure!(value(&text, "tandem_scheduler_up")? == 1.0, "the scheduler is not up: {text}");
    ensure!(text.contains("tandem_scheduler_info{mode=\"host\""), "the mode is missing: {text}");
    let expired = value(&text, "tandem_expired_total ")?;
    ensure!(expired > 0.0 && expired <= counters()?["expired"] as f64, "expired is {expired}");
    // An agent that has examined it between the start of its first vCPU and its second does so again after a
    // minute.
    wait::until("that its two vCPUs are reported", || {
        Ok((value(&page()?, &format!("tandem_vm_vcpus{labels}"))? == 2.0).then_some(()))
    })?;
    ensure!(value(&text, &format!("tandem_vm_home{labels},node=\"{}\"", home.home[0]))? == 1.0);
    for metric in ["cpu", "vcpu"] {
        ensure!(
            value(&text, &format!("tandem_vm_{metric}_seconds_total{labels}"))? > 0.0,
            "no {metric} time"
        );
    }
    for metric in ["steal_seconds_total", "memory_bytes", "memory_resident_bytes", "away_seconds_total"] {
        guest.note(format!("{metric}: {}", value(&text, &format!("tandem_vm_{metric}{labels}"))?))?;
    }
    ensure!(value(&text, "tandem_cpu_seconds_total{node=\"1\"")? > 0.0, "CPUs have done nothing");

    let told = vms_as(READER)?;
    ensure!(told.contains("\"name\":\"measured\"") && told.contains("\"home_ns\":"), "the group gets {told}");
    let told = vms_as(USER)?;
    ensure!(told.contains("\"refused\"") && !told.contains("measured"), "another user gets {told}");

    let loadings = sched_ext::loadings()?;
    tandem.reload(QUICK)?;
    wait::until("that metrics are off", || Ok(client().is_err().then_some(())))?;
    tandem.reload(&format!("{QUICK}{LISTEN}"))?;
    wait::until("metrics", || Ok(page().ok()))?;
    ensure!(sched_ext::loadings()? == loadings, "the scheduler was loaded again for its metrics");
    drop(vm);
    wait::until("that the VM is no longer reported", || Ok((!page()?.contains(&labels)).then_some(())))?;
    tandem.stop()?;
    Ok(())
}

/// How many files and threads the agent has.
fn files_and_threads(agent: u32) -> Result<(usize, usize)> {
    let entries =
        |folder: &str| Ok::<_, anyhow::Error>(fs::read_dir(format!("/proc/{agent}/{folder}"))?.count());
    Ok((entries("fd")?, entries("task")?))
}

/// Nothing that a user sends keeps others from the metrics, or costs the agent more than it can spare.
pub fn hostile_user(guest: &Guest) -> Result<()> {
    let tandem = scheduler_with_metrics()?;
    wait::until("metrics", || Ok(page().ok()))?;
    let agent_before = agent()?;
    let (files_before, threads_before) = files_and_threads(agent_before)?;
    let streams = thread::spawn(attack).join().map_err(|_| anyhow!("the attacker panicked"))??;
    // The service drops a client that has sent nothing for 2 s; on a busy machine this one may be stopped for
    // as long.
    (0..TRIES).find_map(|_| page().ok()).context("there is no page while there are silent clients")?;
    let (files, threads) = files_and_threads(agent_before)?;
    guest.note(format!("{} connections: {files} files and {threads} threads in the agent", streams.len()))?;
    ensure!(files <= files_before + CONNECTIONS_MAX + 8, "the agent had {files_before} files before");
    ensure!(threads <= threads_before + 1, "the agent had {threads_before} threads before");
    succeeds(&["stat"])?;
    drop(streams);
    page()?;
    ensure!(agent()? == agent_before, "the agent has ended");
    let output = tandem.stop()?;
    ensure!(output.lines().count() < 100, "the log has {output}");
    Ok(())
}

/// As the user: garbage, and then many clients that are slow, silent, or do not read; they stay.
fn attack() -> Result<Vec<TcpStream>> {
    set_thread_uid(rustix::fs::Uid::from_raw(USER))?;
    let huge = vec![b'x'; 1 << 20];
    let many = "GET /metrics HTTP/1.1\r\n".to_owned() + &"A: b\r\n".repeat(1_000) + "\r\n";
    let elsewhere = b"GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n\r\n";
    for garbage in
        [&b"\0\0\0\0\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01\r\n\r\n", &huge, many.as_bytes(), elsewhere]
    {
        let answer = ask(garbage)?;
        ensure!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "garbage was answered with {answer}");
    }
    (0..CONNECTIONS)
        .map(|number| {
            let mut stream = client()?;
            let begin: &[u8] = match number % 3 {
                0 => b"",
                1 => b"GET /metrics HTTP/1.1\r\nHost: loc",
                _ => b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
            };
            let _ = stream.write_all(begin);
            Ok(stream)
        })
        .collect()
}
