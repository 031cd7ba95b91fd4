//! `tandem top` in a terminal: keys, signals, and a terminal that goes away.

use assert_cmd::cargo::cargo_bin;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The last resort: what takes longer does not come. On a busy machine some of it has taken seconds.
const PATIENCE: Duration = Duration::from_secs(600);

/// The command in a terminal of 80 x 24, and the terminal's other end.
struct Session {
    terminal: File,
    command: Child,
}

impl Session {
    /// Starts the command, and waits until it shows the machine.
    fn start() -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let inner = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let end = || Stdio::from(OwnedFd::from(inner.try_clone().unwrap()));
        let command = Command::new(cargo_bin("tandem"))
            .args(["top", "--interval", "200ms"])
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let mut session = Self { terminal: File::from(terminal), command };
        session.read_until("node");
        session
    }

    /// Reads until the command has written that word. Of a text only letters that were not there before are
    /// written.
    fn read_until(&mut self, word: &str) {
        let mut all = Vec::new();
        let mut part = [0; 4096];
        while !String::from_utf8_lossy(&all).contains(word) {
            let timeout = Timespec::try_from(PATIENCE).unwrap();
            let mut fds = [PollFd::new(&self.terminal, PollFlags::IN)];
            let ready = poll(&mut fds, Some(&timeout)).unwrap();
            assert_ne!(ready, 0, "{word} is missing in {}", String::from_utf8_lossy(&all).escape_debug());
            let length = self.terminal.read(&mut part).expect("the command writes");
            all.extend_from_slice(&part[..length]);
        }
    }

    fn press(&mut self, key: &str) {
        self.terminal.write_all(key.as_bytes()).unwrap();
    }

    /// Waits for the end of the command, with its terminal still there or not.
    fn status(command: &mut Child) -> ExitStatus {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(status) = command.try_wait().unwrap() {
                return status;
            }
            thread::sleep(Duration::from_millis(10));
        }
        command.kill().unwrap();
        command.wait().unwrap()
    }
}

#[test]
fn a_key_quits_and_gives_the_terminal_back() {
    let mut session = Session::start();
    session.press("?");
    session.read_until("Keys:");
    session.press("xq");
    // Leaves the other screen, and shows the cursor again.
    session.read_until("\u{1b}[?1049l");
    assert!(Session::status(&mut session.command).success());
}

#[test]
fn a_signal_gives_the_terminal_back() {
    let mut session = Session::start();
    let pid = rustix::process::Pid::from_child(&session.command);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    session.read_until("\u{1b}[?1049l");
    assert!(Session::status(&mut session.command).success());
}

#[test]
fn a_terminal_that_goes_away_ends_it() {
    let Session { terminal, mut command } = Session::start();
    drop(terminal);
    let status = Session::status(&mut command);
    assert_ne!(status.signal(), Some(9), "it went on without a terminal");
}

#[test]
fn without_a_terminal_it_says_what_there_is_instead() {
    let output = Command::new(cargo_bin("tandem")).arg("top").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8(output.stderr).unwrap();
    let expected = "tandem: `top` needs a terminal; for files and pipes there are `tandem vms --json`";
    assert!(message.starts_with(expected), "{message}");
}
