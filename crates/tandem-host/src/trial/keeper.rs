//! The processes between a trial and what it starts: one that keeps it, one that becomes it.

use nix::unistd::{Gid, Uid, User, initgroups, setgid, setuid};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, kill_process, kill_process_group, set_child_subreaper,
    set_parent_process_death_signal, wait,
};
use std::fs;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time between two checks of whether the process has ended.
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How long a process may take to end in an orderly way, and how long its killed remains may take.
const ENDING_MAX: Duration = Duration::from_secs(10);

/// Starts a command in a process group of its own, and waits until it ends or standard input is closed: then
/// ends it. Returns when none of the processes that it has started are left, with its exit status.
///
/// # Errors
/// If it cannot be started.
pub fn keep(command: &mut Command) -> io::Result<ExitStatus> {
    // What loses its parent becomes a child of this process.
    set_child_subreaper(Some(getpid()))?;
    let mut child = command.stdin(Stdio::null()).process_group(0).spawn()?;
    let status = wait_or_end(&mut child);
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    end_remains();
    status
}

fn wait_or_end(child: &mut Child) -> io::Result<ExitStatus> {
    let group = Pid::from_child(child);
    let mut asked: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        match asked {
            None => {
                let stdin = io::stdin();
                let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
                // Nobody writes: what happens there is its end. A signal ends the wait as well.
                if poll(&mut fds, Some(&POLL)).is_ok_and(|ready| ready > 0) {
                    asked = Some(Instant::now());
                    let _ = kill_process_group(group, Signal::TERM);
                }
            }
            Some(since) => {
                if since.elapsed() >= ENDING_MAX {
                    let _ = kill_process_group(group, Signal::KILL);
                    return child.wait();
                }
                sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Kills all children, of which there are none before one with children of its own is gone.
fn end_remains() {
    let begin = Instant::now();
    while begin.elapsed() < ENDING_MAX {
        for child in children() {
            let _ = kill_process(child, Signal::KILL);
        }
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => sleep(Duration::from_millis(2)),
            Err(_) => return,
        }
    }
}

fn children() -> Vec<Pid> {
    let own = getpid().as_raw_pid();
    let parent = |stat: &str| stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<i32>().ok();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |number: &i32| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        parent(&stat) == Some(own)
    };
    numbers.filter(is_child).filter_map(Pid::from_raw).collect()
}

/// The user that runs a command of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvokingUser {
    /// Its number.
    pub uid: u32,
    /// The number of its group.
    pub gid: u32,
}

impl InvokingUser {
    /// The user that invoked sudo; `None` without sudo. The variables are those that sudo(8) sets.
    pub fn behind_sudo(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name| variable(name)?.parse().ok();
        Some(Self { uid: number("SUDO_UID")?, gid: number("SUDO_GID")? })
    }
}

/// Becomes a command, as that user if there is one. The kernel kills it when its parent, whose number is
/// `parent`, ends. Returns only if that fails.
pub fn begin_as(command: &mut Command, user: Option<InvokingUser>, parent: u32) -> io::Error {
    let mut begin = || -> io::Result<()> {
        if let Some(user) = user {
            become_user(command, user)?;
        }
        // After the user, because the kernel forgets it when that changes.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        match getppid().is_some_and(|now| now.as_raw_pid() as u32 == parent) {
            true => Ok(()),
            false => Err(io::Error::other("its parent has ended")),
        }
    };
    match begin() {
        Ok(()) => command.exec(),
        Err(error) => error,
    }
}

fn become_user(command: &mut Command, user: InvokingUser) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let Some(known) = User::from_uid(uid)? else {
        return Err(io::Error::other(format!("there is no user {uid}")));
    };
    let name = std::ffi::CString::new(known.name.clone())?;
    initgroups(&name, gid)?;
    setgid(gid)?;
    setuid(uid)?;
    command.env("HOME", &known.dir).env("USER", &known.name).env("LOGNAME", &known.name);
    Ok(())
}

/// An exit status as a number that a process can end with: that of shells for a signal.
pub fn exit_code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_behind_sudo_has_two_numbers() {
        let variable = |name: &str| match name {
            "SUDO_UID" => Some("1000".to_owned()),
            "SUDO_GID" => Some("100".to_owned()),
            _ => None,
        };
        assert_eq!(InvokingUser::behind_sudo(variable), Some(InvokingUser { uid: 1000, gid: 100 }));
        assert_eq!(InvokingUser::behind_sudo(|_| None), None);
        assert_eq!(InvokingUser::behind_sudo(|_| Some("x".into())), None);
    }

    #[test]
    fn codes_are_those_of_a_shell() {
        let status = |script: &str| Command::new("sh").args(["-c", script]).status().unwrap();
        assert_eq!(exit_code(status("exit 3")), 3);
        assert_eq!(exit_code(status("kill -9 $$")), 137);
    }
}
