//! Progress of verbs that take long.
//!
//! **Problem.** Nobody should wonder for more than a few seconds whether a verb does anything, on a terminal or in the
//! log of a job, however long a single step of it takes.
//!
//! **Approach.** A thread shows the bar after [`SHOWN_AFTER`], and writes a line each [`LINE_EVERY`] where there is no
//! terminal. The work only counts.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tandem_lab::runner::Progress;

/// Time between two lines of progress where there is no terminal.
pub const LINE_EVERY: Duration = Duration::from_secs(15);
/// What takes less needs no bar, which would only flash.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// Time between two looks at the clock on a terminal.
const TICK_EVERY: Duration = Duration::from_millis(500);

/// How far runs are, on standard error: a bar on a terminal, lines elsewhere.
pub struct Bar {
    shown: Shown,
    /// Dropped to end the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What is shown, of the bar and of its thread.
#[derive(Clone)]
struct Shown {
    bar: ProgressBar,
    /// What is counted, such as runs; `None` where nothing is.
    unit: Option<&'static str>,
}

impl Bar {
    /// A bar of that name that counts these.
    pub fn new(name: &str, unit: &'static str) -> Self {
        let template = format!("{{prefix}} {{wide_bar}} {{pos}}/{{len}} {unit}{{msg}}, {{eta}} left");
        Self::start(name, Some(unit), &template, ProgressBar::hidden())
    }

    /// Says that something goes on whose end nobody knows, in words such as "reading".
    pub fn busy(name: &str, words: &'static str) -> Self {
        let bar = ProgressBar::hidden().with_message(words);
        Self::start(name, None, "{prefix}: {msg} {spinner} {elapsed}", bar)
    }

    fn start(name: &str, unit: Option<&'static str>, template: &str, bar: ProgressBar) -> Self {
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = bar.with_style(style).with_prefix(name.to_owned());
        if unit.is_some() {
            bar.set_length(0);
        }
        let shown = Shown { bar, unit };
        let (end, ended) = channel();
        let of_thread = shown.clone();
        let thread = std::thread::Builder::new().spawn(move || of_thread.follow(&ended));
        // Without a thread there is no progress to be seen, and the work is done all the same.
        Self { shown, end: Some(end), thread: thread.ok() }
    }

    /// Prints where the runs are, unless there is a bar.
    pub fn line(&self) {
        self.shown.line();
    }

    /// So many are done, and these words are to follow.
    pub fn reach(&self, done: u64, words: String) {
        self.shown.bar.set_message(words);
        self.shown.bar.set_position(done);
    }
}

impl Shown {
    /// Shows it until the end.
    fn follow(&self, ended: &Receiver<()>) {
        let goes_on = |time| ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        if !io::stderr().is_terminal() {
            while goes_on(LINE_EVERY) {
                self.line();
            }
        } else if goes_on(SHOWN_AFTER) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.bar.tick();
            while goes_on(TICK_EVERY) {
                self.bar.tick();
            }
        }
    }

    fn line(&self) {
        if io::stderr().is_terminal() {
            return;
        }
        let (name, message) = (self.bar.prefix(), self.bar.message());
        let line = match self.unit {
            Some(unit) => {
                let (done, planned) = (self.bar.position(), self.bar.length().unwrap_or_default());
                format!("{done} of {planned} {unit}{message}")
            }
            None => format!("{message}, {} s", self.bar.elapsed().as_secs()),
        };
        // Nothing is left to be done if standard error is closed.
        let _ = writeln!(io::stderr(), "tandem: {name}: {line}");
    }
}

impl Progress for Bar {
    fn planned(&self, runs: usize) {
        self.shown.bar.inc_length(runs as u64);
    }

    fn done(&self) {
        self.shown.bar.inc(1);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.end = None;
        // It ends now; if it has failed, there is nothing to tell.
        let _ = self.thread.take().map(JoinHandle::join);
        self.shown.bar.finish_and_clear();
    }
}
