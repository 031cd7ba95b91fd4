//! The results of a leg, and how they are printed.

use super::qemu::{End, Run};
use crate::leg::Case;
use crate::report::{Event, Failure};
use std::fmt;

/// How many of the last lines of the console are shown when something went wrong.
const CONSOLE_LINES: usize = 60;

/// What came out of a leg.
pub struct Outcome {
    /// The release of the guest's kernel, if it came up.
    pub release: Option<String>,
    leg: &'static str,
    results: Vec<CaseResult>,
    /// Why the leg as a whole went wrong, and the end of its console.
    trouble: Option<Failure>,
    /// By the machine's clock.
    seconds: f64,
    /// CPU time of QEMU.
    cpu_seconds: f64,
}

struct CaseResult {
    name: &'static str,
    notes: Vec<String>,
    seconds: f64,
    failure: Option<Failure>,
}

impl Outcome {
    /// Combines the guest's reports about these cases; a case without a report has failed.
    pub fn new(leg: &'static str, cases: &[&'static Case], run: &Run) -> Self {
        let mut release = None;
        let mut results: Vec<CaseResult> =
            cases.iter().map(|case| CaseResult::unreported(case.name)).collect();
        let mut current = None;
        let mut ended = false;
        for event in &run.events {
            match event {
                Event::Booted(kernel) => release = Some(kernel.clone()),
                Event::Started(name) => {
                    current = results.iter_mut().find(|result| result.name == name);
                    if let Some(result) = &mut current {
                        result.failure = Some(failure("it did not end"));
                    }
                }
                Event::Note(note) => {
                    if let Some(result) = &mut current {
                        result.notes.push(note.clone());
                    }
                }
                // Not for the text; other readers take these from the events.
                Event::Took { .. } | Event::Recorded(_) => {}
                Event::Finished { seconds, failure } => {
                    if let Some(result) = current.take() {
                        result.seconds = *seconds;
                        result.failure.clone_from(failure);
                    }
                }
                Event::End => ended = true,
            }
        }
        let trouble = match &run.end {
            End::Left(status) if ended && status.success() => None,
            End::Left(status) => Some(format!("the guest did not reach its end; QEMU left with {status}")),
            End::GivenUp(limit) => Some(format!("the guest was stopped after {limit}")),
            End::LostWakeUp(after) => {
                Some(format!("a CPU slept through an interrupt, seen after {} s", after.as_secs()))
            }
            End::NeverBooted(limit) => Some(format!("the guest had not come up after {limit}")),
        };
        let trouble = trouble.map(|why| Failure { why, dmesg: last_lines(&run.console) });
        let [seconds, cpu_seconds] = [run.duration, run.cpu_time].map(|time| time.as_secs_f64());
        Self { release, leg, results, trouble, seconds, cpu_seconds }
    }

    /// How many cases passed.
    pub fn passed(&self) -> usize {
        self.results.len() - self.results.iter().filter(|result| result.failure.is_some()).count()
    }

    /// How many failed; a leg that went wrong after all its cases passed counts as one.
    pub fn failed(&self) -> usize {
        let failed = self.results.len() - self.passed();
        failed.max(usize::from(self.trouble.is_some()))
    }
}

impl CaseResult {
    fn unreported(name: &'static str) -> Self {
        Self { name, notes: Vec::new(), seconds: 0.0, failure: Some(failure("it never began")) }
    }
}

fn failure(why: &str) -> Failure {
    Failure { why: why.into(), dmesg: Vec::new() }
}

/// The end of a console's text.
pub fn last_lines(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(CONSOLE_LINES)..];
    shown.iter().map(|line| line.trim_end().to_owned()).collect()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "leg {} ({:.1} s, {:.1} s of CPU time)", self.leg, self.seconds, self.cpu_seconds)?;
        for result in &self.results {
            let name = format_args!("{}/{}", self.leg, result.name);
            match &result.failure {
                None => writeln!(f, "ok {name} ({:.1} s)", result.seconds)?,
                Some(failure) => writeln!(f, "FAILED {name}: {}", failure.why)?,
            }
            for note in &result.notes {
                writeln!(f, "    {note}")?;
            }
            if let Some(failure) = &result.failure {
                write_log(f, "dmesg", &failure.dmesg)?;
            }
        }
        if let Some(trouble) = &self.trouble {
            writeln!(f, "FAILED {}: {}", self.leg, trouble.why)?;
            write_log(f, "console", &trouble.dmesg)?;
        }
        Ok(())
    }
}

fn write_log(f: &mut fmt::Formatter<'_>, name: &str, lines: &[String]) -> fmt::Result {
    lines.iter().try_for_each(|line| writeln!(f, "    {name}: {line}"))
}

#[cfg(test)]
mod tests {
    use super::super::qemu::Limit;
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    const fn case(name: &'static str) -> Case {
        Case { name, run: |_| Ok(()), is_long: false }
    }

    static CASES: [Case; 3] = [case("first"), case("second"), case("third")];

    fn outcome(events: Vec<Event>, end: End) -> Outcome {
        let [duration, cpu_time] = [9, 12].map(Duration::from_secs);
        let run = Run { events, end, console: "kernel panic\n".into(), duration, cpu_time };
        Outcome::new("base", &CASES.each_ref(), &run)
    }

    fn passed(name: &str) -> [Event; 2] {
        [Event::Started(name.into()), Event::Finished { seconds: 2.0, failure: None }]
    }

    fn success() -> End {
        End::Left(ExitStatus::from_raw(0))
    }

    #[test]
    fn a_leg_that_ends_well_has_no_failure() {
        let mut events = vec![Event::Booted("7.3".into())];
        events.extend(["first", "second", "third"].iter().flat_map(|name| passed(name)));
        events.insert(2, Event::Note("5 switches".into()));
        events.push(Event::End);
        let outcome = outcome(events, success());
        assert_eq!((outcome.passed(), outcome.failed()), (3, 0));
        assert_eq!(
            outcome.to_string(),
            "leg base (9.0 s, 12.0 s of CPU time)\nok base/first (2.0 s)\n    5 switches\nok base/second (2.0 s)\nok base/third (2.0 s)\n"
        );
        assert_eq!(outcome.release.as_deref(), Some("7.3"));
    }

    #[test]
    fn what_is_not_reported_has_failed() {
        let mut events = passed("first").to_vec();
        events.push(Event::Started("second".into()));
        let outcome = outcome(events, End::GivenUp(Limit::CpuTime(Duration::from_secs(60))));
        assert_eq!((outcome.passed(), outcome.failed()), (1, 2));
        let text = outcome.to_string();
        for line in [
            "FAILED base/second: it did not end",
            "FAILED base/third: it never began",
            "FAILED base: the guest was stopped after 60 s of CPU time",
            "    console: kernel panic",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_failure_includes_the_kernels_messages() {
        let mut events = passed("first").to_vec();
        events.push(Event::Started("second".into()));
        let failure = Failure { why: "no switches".into(), dmesg: vec!["WARNING: odd".into()] };
        events.push(Event::Finished { seconds: 1.0, failure: Some(failure) });
        events.extend(passed("third"));
        events.push(Event::End);
        let outcome = outcome(events, success());
        assert_eq!((outcome.passed(), outcome.failed()), (2, 1));
        assert!(
            outcome
                .to_string()
                .contains("FAILED base/second: no switches\n    dmesg: WARNING: odd\nok base/third")
        );
    }

    #[test]
    fn a_panic_after_the_last_case_is_a_failure() {
        let events = ["first", "second", "third"].iter().flat_map(|name| passed(name)).collect();
        let outcome = outcome(events, success());
        assert_eq!((outcome.passed(), outcome.failed()), (3, 1));
    }
}
