//! A reader, and its replacement if it does not answer.

use super::channel::{Channel, LOOK_INTERVAL};
use super::question::Question;
use crate::users::behind;
use crate::vms::read_stat;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Most helpers that were killed and have not ended.
pub const LEFT_MAX: usize = 64;
/// How long a helper may wait within the kernel: much longer than a file of `/proc` waits for the process's
/// own calls.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer may take in all. For `numa_maps` the kernel visits each page, 10 ns each: 20 s for 8
/// TiB.
const LONGEST: Duration = Duration::from_secs(20);
/// How long a user whose file did not answer gets no questions; doubled each time.
const SILENCE_MIN: Duration = Duration::from_secs(60);
const SILENCE_MAX: Duration = Duration::from_secs(3600);
/// How long all answers about a user's processes together may take in [`SILENCE_MIN`]: page tables of
/// terabytes take so long that they resemble a file that never answers. Root's may take any time.
const SHARE: Duration = Duration::from_secs(10);

/// A helper, and the remains of earlier ones.
#[derive(Debug)]
pub(super) struct Guard {
    start: fn() -> Command,
    patience: Duration,
    helper: Option<Channel>,
    left: Vec<Child>,
    silences: HashMap<u32, Silence>,
    /// Since when, and how long answers about a user took.
    spent: HashMap<u32, (Instant, Duration)>,
}

/// Until when a user gets no questions, and for how long that was.
#[derive(Clone, Copy, Debug)]
struct Silence {
    until: Instant,
    length: Duration,
}

impl Guard {
    /// A guard that starts its helpers with `start`.
    pub fn new(start: fn() -> Command) -> Self {
        Self {
            start,
            patience: PATIENCE,
            helper: None,
            left: Vec::new(),
            silences: HashMap::new(),
            spent: HashMap::new(),
        }
    }

    /// A helper's answer to a question about a process of this user.
    pub fn ask(&mut self, question: &Question, user: u32) -> Option<Vec<u8>> {
        self.left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        // A user with subordinate users would cost some seconds with each of them.
        let user = behind(Path::new("/"), user);
        let now = Instant::now();
        if self.left.len() >= LEFT_MAX || self.silences.get(&user).is_some_and(|silence| now < silence.until)
        {
            return None;
        }
        let mut helper = match self.helper.take() {
            Some(helper) => helper,
            None => Channel::start((self.start)()).ok()?,
        };
        let mut wait = Wait { patience: self.patience, deadline: Instant::now() + LONGEST };
        match helper.ask(question, question.max_bytes(), |child| wait.go_on(is_waiting(child))) {
            Ok(answer) => {
                self.helper = Some(helper);
                match user != 0 && self.has_used_its_share(user, now) {
                    true => self.silence(user),
                    false => _ = self.silences.remove(&user),
                }
                answer
            }
            Err(error) => {
                if error.kind() == ErrorKind::TimedOut {
                    self.silence(user);
                }
                let _ = helper.child.kill();
                self.left.push(helper.child);
                None
            }
        }
    }

    fn silence(&mut self, user: u32) {
        let length = self.silences.get(&user).map_or(SILENCE_MIN, |old| (2 * old.length).min(SILENCE_MAX));
        self.silences.insert(user, Silence { until: Instant::now() + length, length });
    }

    /// Whether answers about a user have taken too long recently, including the one that was requested at
    /// `asked`.
    fn has_used_its_share(&mut self, user: u32, asked: Instant) -> bool {
        let (since, spent) = self.spent.entry(user).or_insert((asked, Duration::ZERO));
        if asked.duration_since(*since) >= SILENCE_MIN {
            (*since, *spent) = (asked, Duration::ZERO);
        }
        *spent += asked.elapsed();
        *spent > SHARE
    }
}

/// Whether a process waits for something other than a CPU.
fn is_waiting(child: &Child) -> bool {
    let directory = format!("/proc/{}", child.id());
    read_stat(Path::new(&directory)).is_some_and(|stat| stat.state != b'R')
}

/// How long to wait for an answer.
#[derive(Debug)]
struct Wait {
    /// The remaining time in which the helper may wait within the kernel.
    patience: Duration,
    deadline: Instant,
}

impl Wait {
    /// Accounts for another interval; fails with `TimedOut` if the helper has waited for too long, with
    /// `WouldBlock` if it had too little of a CPU.
    fn go_on(&mut self, is_waiting: bool) -> io::Result<()> {
        if is_waiting {
            self.patience = self.patience.saturating_sub(LOOK_INTERVAL);
        }
        match self.patience.is_zero() {
            true => Err(ErrorKind::TimedOut.into()),
            false if Instant::now() >= self.deadline => Err(ErrorKind::WouldBlock.into()),
            false => Ok(()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A helper that waits for an untrusted file does not end by itself.
        self.left.extend(self.helper.take().map(|helper| helper.child));
        for child in &mut self.left {
            let _ = child.kill();
            let _ = child.try_wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::question::{ProcessFile, What};
    use super::*;

    const SHORT: Duration = Duration::from_millis(300);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn question() -> Question {
        Question { process: "/proc/self".into(), what: What::OfProcess(ProcessFile::Cmdline) }
    }

    /// Answers each line with three bytes.
    fn answers() -> Command {
        shell(r"while read line; do printf '\003\000\000\000\000\000\000\000abc'; done")
    }

    #[test]
    fn a_helper_answers_one_question_after_another() {
        let mut guard = Guard::new(answers);
        for _ in 0..3 {
            assert_eq!(guard.ask(&question(), 1000).as_deref(), Some(&b"abc"[..]));
        }
        assert!(guard.left.is_empty() && guard.silences.is_empty());
    }

    #[test]
    fn one_that_hangs_is_left_and_its_user_not_asked_about_for_a_while() {
        let mut guard = Guard::new(|| shell("exec sleep 1000"));
        guard.patience = SHORT;
        assert_eq!(guard.ask(&question(), 1000), None);
        assert_eq!(guard.silences[&1000].length, SILENCE_MIN);
        guard.start = answers;
        assert_eq!(guard.ask(&question(), 1000), None, "that user gets no questions");
        assert!(guard.ask(&question(), 1001).is_some(), "other users do");

        // The silence is over, and the helper hangs again.
        guard.helper = None;
        guard.start = || shell("exec sleep 1000");
        guard.silences.get_mut(&1000).unwrap().until = Instant::now();
        assert_eq!(guard.ask(&question(), 1000), None);
        assert_eq!(guard.silences[&1000].length, 2 * SILENCE_MIN);
        guard.start = answers;
        guard.silences.get_mut(&1000).unwrap().until = Instant::now();
        assert!(guard.ask(&question(), 1000).is_some());
        assert!(guard.silences.is_empty(), "it has answered");
    }

    #[test]
    fn one_that_lies_or_ends_is_replaced() {
        let liars: [fn() -> Command; 4] = [
            || shell("exit"),
            || shell(r"read line; printf '\003\000\000'"),
            || shell(r"read line; printf '\003\000\000\000\000\000\000\000ab'"),
            || shell(r"read line; printf '\377\377\377\377\377\377\000\000'; exec sleep 1000"),
        ];
        for liar in liars {
            let mut guard = Guard::new(liar);
            assert_eq!(guard.ask(&question(), 1000), None);
            assert!(guard.silences.is_empty(), "the user is not to blame");
            guard.start = answers;
            assert!(guard.ask(&question(), 1000).is_some());
        }
    }

    #[test]
    fn a_helper_without_a_cpu_gets_more_time() {
        let mut wait = Wait { patience: SHORT, deadline: Instant::now() + LONGEST };
        assert!((0..1000).all(|_| wait.go_on(false).is_ok()));
        let looks = (1..).find(|_| wait.go_on(true).is_err());
        assert_eq!(looks, Some(6));
        let mut late = Wait { patience: SHORT, deadline: Instant::now() };
        assert_eq!(late.go_on(false).unwrap_err().kind(), ErrorKind::WouldBlock);
        // Busy without an answer: the guard gives it up, and does not blame the user.
        let mut helper = Channel::start(shell("while :; do :; done")).unwrap();
        std::thread::sleep(SHORT);
        assert!(!is_waiting(&helper.child));
        let _ = helper.child.kill();
    }

    #[test]
    fn so_many_are_left_and_no_more() {
        let mut guard = Guard::new(answers);
        guard.left.extend((0..LEFT_MAX).map(|_| shell("exec sleep 1000").spawn().unwrap()));
        assert_eq!(guard.ask(&question(), 1000), None);
        for child in &mut guard.left {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(guard.ask(&question(), 1000).is_some());
    }

    #[test]
    fn a_user_whose_files_take_long_again_and_again_is_silenced() {
        let mut guard = Guard::new(answers);
        guard.spent.insert(1000, (Instant::now(), SHARE));
        guard.spent.insert(0, (Instant::now(), SHARE));
        assert!(guard.ask(&question(), 1000).is_some());
        assert_eq!(guard.ask(&question(), 1000), None, "it has used its share");
        assert!((0..2).all(|_| guard.ask(&question(), 0).is_some()), "root is trusted");
        assert!(guard.ask(&question(), 1001).is_some(), "other users are unaffected");
    }
}
