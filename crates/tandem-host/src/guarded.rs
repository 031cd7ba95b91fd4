//! Reads files that may never answer, by a process that can be killed.
//!
//! **Problem.** Some files of a process wait for its memory: `/proc/PID/cmdline`, `maps` and `numa_maps`. Whoever backs a page of it with a
//! file system of its own (FUSE), and does not answer, holds up all who read them, and a file that a stranger has named may be on such a
//! file system itself. A thread that waits there cannot be ended.
//!
//! **Approach.** They are read by a helper, which has a pipe for questions and one for answers. One that is seen to wait within the
//! kernel for too long is killed and left, another one takes its place, and the user in question is not asked about for a while: a
//! minute, then two, up to an hour. So a hostile user costs others some seconds, ever more rarely. One that could run and has no CPU is
//! waited for much longer: that is nobody's doing. Whoever has no helper, as tests and libraries, reads directly.
//!
//! **Limits.** One file at a time. A killed helper that does not end keeps its memory; [`LEFT_MAX`] of them are left at most, and nothing
//! is read beyond that.

use crate::untrusted;
use crate::users::behind;
use crate::vms::read_stat;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Helpers that were killed and have not ended.
pub const LEFT_MAX: usize = 64;
/// How often a helper is looked at, and for how long it may be seen to wait: much longer than a file of `/proc` waits for the process's own
/// calls.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer may take in all. The kernel looks at each page for `numa_maps`, 10 ns each: 20 s for 8 TiB.
const LONGEST: Duration = Duration::from_secs(20);
/// How long nothing is asked about a user whose file did not answer; doubled each time.
const SILENCE_MIN: Duration = Duration::from_secs(60);
const SILENCE_MAX: Duration = Duration::from_secs(3600);
/// How long answers about a user's processes may take in [`SILENCE_MIN`], all together: page tables of terabytes take their time, and are as
/// good as a file that never answers. Root's may take any time.
const SHARE: Duration = Duration::from_secs(10);
/// The length of an answer where there is none.
const NOTHING: u64 = u64::MAX;

/// What is to be read, `max_bytes` of it at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Question {
    /// A file of `/proc`, or the folder where a path begins that a process has named.
    path: PathBuf,
    named: Option<Named>,
    max_bytes: u64,
}

/// A path of a process's, and whose process it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Named {
    path: String,
    user: u32,
}

impl Question {
    fn answer(&self) -> Option<Vec<u8>> {
        if let Some(named) = &self.named {
            return untrusted::read_file(&self.path, &named.path, named.user, self.max_bytes);
        }
        let mut bytes = Vec::new();
        File::open(&self.path).ok()?.take(self.max_bytes).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }
}

/// Reads a file of `/proc/PID`, whose process is `user`'s.
pub fn read_of_process(path: &Path, user: u32, max_bytes: u64) -> Option<Vec<u8>> {
    ask(Question { path: path.to_owned(), named: None, max_bytes }, user)
}

/// Reads a file that a process of `user` has named, from a folder on: [`untrusted::read_file`].
pub fn read_named(start: &Path, path: &str, user: u32, max_bytes: u64) -> Option<Vec<u8>> {
    let named = Some(Named { path: path.to_owned(), user });
    ask(Question { path: start.to_owned(), named, max_bytes }, user)
}

/// From now on such files are read by a helper, which this starts: a process that calls [`serve`].
pub fn guard_with(helper: fn() -> Command) {
    *lock() = Some(Guard::new(helper));
}

/// Answers questions on standard input until it is closed: what a helper does.
///
/// # Errors
/// If who asks is gone, or asks nonsense.
pub fn serve() -> io::Result<()> {
    let mut output = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let question: Question = serde_json::from_str(&line?)?;
        match question.answer() {
            Some(bytes) => {
                output.write_all(&(bytes.len() as u64).to_ne_bytes())?;
                output.write_all(&bytes)?;
            }
            None => output.write_all(&NOTHING.to_ne_bytes())?,
        }
        output.flush()?;
    }
    Ok(())
}

static GUARD: Mutex<Option<Guard>> = Mutex::new(None);

fn lock() -> std::sync::MutexGuard<'static, Option<Guard>> {
    // Each question leaves it whole, or without a helper.
    GUARD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ask(question: Question, user: u32) -> Option<Vec<u8>> {
    match &mut *lock() {
        None => question.answer(),
        Some(guard) => guard.ask(&question, user),
    }
}

/// A helper, and what became of those before it.
#[derive(Debug)]
struct Guard {
    start: fn() -> Command,
    patience: Duration,
    helper: Option<Helper>,
    left: Vec<Child>,
    silences: HashMap<u32, Silence>,
    /// Since when, and how long answers about a user took.
    spent: HashMap<u32, (Instant, Duration)>,
}

/// Until when nothing is asked about a user, and for how long that was.
#[derive(Clone, Copy, Debug)]
struct Silence {
    until: Instant,
    length: Duration,
}

#[derive(Debug)]
struct Helper {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Guard {
    fn new(start: fn() -> Command) -> Self {
        Self {
            start,
            patience: PATIENCE,
            helper: None,
            left: Vec::new(),
            silences: HashMap::new(),
            spent: HashMap::new(),
        }
    }

    fn ask(&mut self, question: &Question, user: u32) -> Option<Vec<u8>> {
        self.left.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        // Whoever has subordinate users would cost some seconds with each of them.
        let user = behind(Path::new("/"), user);
        let now = Instant::now();
        if self.left.len() >= LEFT_MAX || self.silences.get(&user).is_some_and(|silence| now < silence.until)
        {
            return None;
        }
        let mut helper = match self.helper.take() {
            Some(helper) => helper,
            None => Helper::start((self.start)()).ok()?,
        };
        match helper.ask(question, self.patience) {
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
}

impl Guard {
    fn silence(&mut self, user: u32) {
        let length = self.silences.get(&user).map_or(SILENCE_MIN, |old| (2 * old.length).min(SILENCE_MAX));
        self.silences.insert(user, Silence { until: Instant::now() + length, length });
    }

    /// Whether answers about a user have taken too long lately, the one that was asked for at `asked` included.
    fn has_used_its_share(&mut self, user: u32, asked: Instant) -> bool {
        let (since, spent) = self.spent.entry(user).or_insert((asked, Duration::ZERO));
        if asked.duration_since(*since) >= SILENCE_MIN {
            (*since, *spent) = (asked, Duration::ZERO);
        }
        *spent += asked.elapsed();
        *spent > SHARE
    }
}

impl Helper {
    fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Self { child, input, output }),
            _ => Err(ErrorKind::BrokenPipe.into()),
        }
    }

    /// The answer, of at most as many bytes as were asked for.
    fn ask(&mut self, question: &Question, patience: Duration) -> io::Result<Option<Vec<u8>>> {
        let mut line = serde_json::to_vec(question)?;
        line.push(b'\n');
        // It waits for questions, and a pipe holds more than one.
        self.input.write_all(&line)?;
        let mut wait = Wait { patience, deadline: Instant::now() + LONGEST };
        let mut length = [0; 8];
        self.read(&mut length, &mut wait)?;
        let length = match u64::from_ne_bytes(length) {
            NOTHING => return Ok(None),
            length if length <= question.max_bytes => length,
            _ => return Err(ErrorKind::InvalidData.into()),
        };
        let mut bytes = vec![0; length as usize];
        self.read(&mut bytes, &mut wait)?;
        Ok(Some(bytes))
    }

    fn read(&mut self, mut bytes: &mut [u8], wait: &mut Wait) -> io::Result<()> {
        let timeout = Timespec::try_from(LOOK_INTERVAL).map_err(|_| ErrorKind::InvalidInput)?;
        while !bytes.is_empty() {
            match poll(&mut [PollFd::new(&self.output, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => wait.go_on(self.is_waiting())?,
                Ok(_) => match self.output.read(bytes)? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    length => bytes = &mut bytes[length..],
                },
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether it waits for something else than a CPU.
    fn is_waiting(&self) -> bool {
        let directory = format!("/proc/{}", self.child.id());
        read_stat(Path::new(&directory)).is_some_and(|stat| stat.state != b'R')
    }
}

/// How long an answer is waited for.
#[derive(Debug)]
struct Wait {
    /// What is left of the time in which the helper may be seen to wait.
    patience: Duration,
    deadline: Instant,
}

impl Wait {
    /// Another look interval has passed; fails with `TimedOut` if the helper has waited for too long, with `WouldBlock` if it has had too
    /// little of a CPU.
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
        // Who waits for a file of somebody's does not end by itself.
        self.left.extend(self.helper.take().map(|helper| helper.child));
        for child in &mut self.left {
            let _ = child.kill();
            let _ = child.try_wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(300);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn question(max_bytes: u64) -> Question {
        Question { path: "/proc/self/comm".into(), named: None, max_bytes }
    }

    /// Answers each line with three bytes.
    fn answers() -> Command {
        shell(r"while read line; do printf '\003\000\000\000\000\000\000\000abc'; done")
    }

    #[test]
    fn a_helper_answers_one_question_after_another() {
        let mut guard = Guard::new(answers);
        for _ in 0..3 {
            assert_eq!(guard.ask(&question(3), 1000).as_deref(), Some(&b"abc"[..]));
        }
        assert!(guard.left.is_empty() && guard.silences.is_empty());
    }

    #[test]
    fn one_that_hangs_is_left_and_its_user_not_asked_about_for_a_while() {
        let mut guard = Guard::new(|| shell("exec sleep 1000"));
        guard.patience = SHORT;
        assert_eq!(guard.ask(&question(3), 1000), None);
        assert_eq!(guard.silences[&1000].length, SILENCE_MIN);
        guard.start = answers;
        assert_eq!(guard.ask(&question(3), 1000), None, "nothing is asked about that user");
        assert!(guard.ask(&question(3), 1001).is_some(), "others are");

        // The silence is over, and it hangs again.
        guard.helper = None;
        guard.start = || shell("exec sleep 1000");
        guard.silences.get_mut(&1000).unwrap().until = Instant::now();
        assert_eq!(guard.ask(&question(3), 1000), None);
        assert_eq!(guard.silences[&1000].length, 2 * SILENCE_MIN);
        guard.start = answers;
        guard.silences.get_mut(&1000).unwrap().until = Instant::now();
        assert!(guard.ask(&question(3), 1000).is_some());
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
            assert_eq!(guard.ask(&question(3), 1000), None);
            assert!(guard.silences.is_empty(), "that is not the user's doing");
            guard.start = answers;
            assert!(guard.ask(&question(3), 1000).is_some());
        }
    }

    #[test]
    fn who_has_no_cpu_is_waited_for() {
        let mut wait = Wait { patience: SHORT, deadline: Instant::now() + LONGEST };
        assert!((0..1000).all(|_| wait.go_on(false).is_ok()));
        let looks = (1..).find(|_| wait.go_on(true).is_err());
        assert_eq!(looks, Some(6));
        let mut late = Wait { patience: SHORT, deadline: Instant::now() };
        assert_eq!(late.go_on(false).unwrap_err().kind(), ErrorKind::WouldBlock);
        // Busy, and no answer: it is given up, and that is not the user's doing.
        let helper = Helper::start(shell("while :; do :; done")).unwrap();
        std::thread::sleep(SHORT);
        assert!(!helper.is_waiting());
        let _ = { helper }.child.kill();
    }

    #[test]
    fn so_many_are_left_and_no_more() {
        let mut guard = Guard::new(answers);
        guard.left.extend((0..LEFT_MAX).map(|_| shell("exec sleep 1000").spawn().unwrap()));
        assert_eq!(guard.ask(&question(3), 1000), None);
        for child in &mut guard.left {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(guard.ask(&question(3), 1000).is_some());
    }

    #[test]
    fn who_takes_long_again_and_again_is_silenced() {
        let mut guard = Guard::new(answers);
        guard.spent.insert(1000, (Instant::now(), SHARE));
        guard.spent.insert(0, (Instant::now(), SHARE));
        assert!(guard.ask(&question(3), 1000).is_some());
        assert_eq!(guard.ask(&question(3), 1000), None, "it has had its share");
        assert!((0..2).all(|_| guard.ask(&question(3), 0).is_some()), "root is trusted");
        assert!(guard.ask(&question(3), 1001).is_some(), "others are not concerned");
    }

    #[test]
    fn without_a_helper_files_are_read_directly() {
        let path = Path::new("/proc/self/cmdline");
        assert_eq!(read_of_process(path, 0, 3).map(|bytes| bytes.len()), Some(3));
        assert_eq!(read_of_process(Path::new("/proc/self/none"), 0, 3), None);
    }
}
