//! `tandem run` as the service that the package's unit describes.

use super::hackbench;
use crate::guest::tandem::{self, Tandem, service};
use crate::guest::{Guest, capped, wait};
use anyhow::{Context, Result, ensure};
use std::cell::RefCell;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;

/// The unit that packages install.
const UNIT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/tandem.service"));
/// Where the service manager listens.
const SOCKET: &str = "/tmp/notify";
/// Time within which the manager expects a message of the service, us. As in a unit, it is longer than
/// loading takes.
const WATCHDOG_US: &str = "4000000";
/// The same while the scheduler is loaded again.
const LOADING_US: &str = "300000000";

/// A service manager hears that the scheduler is loaded, that it lives, that it is loaded again, and that it
/// ends.
pub fn notifies_manager(_: &Guest) -> Result<()> {
    let manager = Manager::listen()?;
    let mut run = service();
    let tandem = Tandem::start(run.env("NOTIFY_SOCKET", SOCKET).env("WATCHDOG_USEC", WATCHDOG_US))?;
    manager.hears("READY=1")?;
    manager.hears("WATCHDOG=1")?;
    manager.hears("WATCHDOG=1")?;

    for online in [false, true] {
        tandem.hotplug(3, online)?;
        manager.hears("RELOADING=1")?;
        manager.hears("READY=1")?;
    }
    tandem.stop()?;
    manager.hears("STOPPING=1")?;
    let later = manager.messages()?;
    ensure!(later.is_empty(), "after the end came {later:?}");

    let heard = manager.heard.borrow();
    let first = heard.first().context("there are messages")?;
    let status = "STATUS=Scheduling 4 CPUs, host mode, ";
    ensure!(first.starts_with("READY=1\n") && first.contains(status), "the first message is {first:?}");
    let readies = heard.iter().filter(|message| message.starts_with("READY=1\n")).count();
    ensure!(readies == 3, "it was ready {readies} times: {heard:?}");
    // While it is loaded again it may be silent for longer, and not afterwards.
    for (kind, timeout_us) in [("READY=1", WATCHDOG_US), ("RELOADING=1", LOADING_US)] {
        let told = format!("WATCHDOG_USEC={timeout_us}");
        let is_told = |message: &String| message.lines().any(|line| line == told);
        let mut of_kind = heard.iter().filter(|message| message.lines().next() == Some(kind));
        ensure!(of_kind.all(is_told), "not every {kind} has {told}: {heard:?}");
    }
    Ok(())
}

/// The capabilities that the unit leaves are those that it takes to load the scheduler and to steer it: with
/// one less than loading needs, the kernel refuses.
pub fn capabilities_suffice(guest: &Guest) -> Result<()> {
    let capabilities = UNIT.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let capabilities = capabilities.context("the unit limits capabilities")?;
    let tandem = Tandem::start(&mut capped::tandem_run(capabilities))?;
    let status = fs::read_to_string(format!("/proc/{}/status", tandem.process().pid()))?;
    let effective = status.lines().find(|line| line.starts_with("CapEff:")).context("it has capabilities")?;
    guest.note(format!("{capabilities}, {effective}"))?;
    tandem.hotplug(3, false)?;
    tandem.hotplug(3, true)?;
    hackbench()?;
    tandem::counters()?;
    let output = tandem.stop()?;
    ensure!(!output.contains("CONFIG_PROC_EVENTS"), "the agent gets no events: {output}");

    for needed in ["CAP_BPF", "CAP_PERFMON"] {
        ensure!(capabilities.contains(needed), "the unit does not leave {needed}");
        let output = capped::tandem_run(&capabilities.replace(needed, "")).output()?;
        ensure!(output.status.code() == Some(1), "without {needed}: {}", tandem::describe(&output));
    }
    Ok(())
}

/// A service manager's end of the socket.
struct Manager {
    socket: UnixDatagram,
    /// What came, in order.
    heard: RefCell<Vec<String>>,
}

impl Manager {
    fn listen() -> Result<Self> {
        let socket = UnixDatagram::bind(SOCKET).with_context(|| format!("cannot listen at {SOCKET}"))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, heard: RefCell::default() })
    }

    /// Waits for a message that begins with this assignment; others may come before.
    fn hears(&self, assignment: &str) -> Result<()> {
        wait::until(&format!("the message {assignment}"), || {
            let message = self.next()?;
            Ok(message.filter(|message| message.lines().next() == Some(assignment)).map(drop))
        })
    }

    /// All messages that came since the last one.
    fn messages(&self) -> Result<Vec<String>> {
        let mut messages = Vec::new();
        while let Some(message) = self.next()? {
            messages.push(message);
        }
        Ok(messages)
    }

    fn next(&self) -> Result<Option<String>> {
        let mut buffer = [0; 4096];
        let length = match self.socket.recv(&mut buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error).context("cannot listen"),
        };
        let message = String::from_utf8_lossy(&buffer[..length]).into_owned();
        self.heard.borrow_mut().push(message.clone());
        Ok(Some(message))
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = fs::remove_file(SOCKET);
    }
}
