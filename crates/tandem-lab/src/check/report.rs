//! Writes the findings of a search: a file a case, and a table.

use super::judge::{Finding, time};
use super::promises::{PROMISES, Promise};
use super::search::{FoundCase, Options, Outcome};
use std::fmt::{self, Display};
use tandem_file::shown::readable;

/// The name of a found case's file.
pub fn file_name(promise: Promise, case: u64) -> String {
    format!("{}-{case}.toml", promise.text().name)
}

/// A found case as a file that `tandem sim` runs, whose head says what it breaks.
pub fn file(found: &FoundCase, options: &Options) -> String {
    let text = found.finding.promise.text();
    let Finding { who, at_ns, seen, .. } = &found.finding;
    format!(
        "# Breaks {} ({}): {}\n# At {}, {who} {}.\n# Found by `tandem check --seed {}` as case {}, {}.\n\n{}",
        text.number,
        text.name,
        text.text,
        time(*at_ns),
        one_line(seen),
        options.seed,
        found.case,
        if found.is_small { "and made small" } else { "not made small to the end" },
        found.plan.to_toml(&options.host),
    )
}

/// The text without line breaks and other control characters, as a scheduler may have written a part of it.
fn one_line(text: &str) -> String {
    readable(&text.split_whitespace().collect::<Vec<_>>().join(" "), &[])
}

/// One line about a finding.
pub fn line(finding: &Finding) -> String {
    let text = finding.promise.text();
    format!(
        "{} {}: {} {}, at {}",
        text.number,
        text.name,
        finding.who,
        one_line(&finding.seen),
        time(finding.at_ns)
    )
}

/// The table of an outcome.
pub struct Table<'a>(pub &'a Outcome);

impl Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { cases, broken, found } = self.0;
        writeln!(f, "{:<5} {:<12} {:>8} {:>12}  made small", "", "promise", "broken", "first case")?;
        for text in PROMISES {
            let Some(of_promise) = broken.get(&text.promise) else {
                continue;
            };
            let small = found.iter().find(|found| found.promise == text.promise);
            let small = small.map_or("as another one".to_owned(), |found| line(&found.finding));
            let (count, first) = (of_promise.len(), of_promise[0]);
            writeln!(f, "{:<5} {:<12} {count:>8} {first:>12}  {small}", text.number, text.name)?;
        }
        let (broken, ending) = (broken.len(), if broken.len() == 1 { "" } else { "s" });
        writeln!(f, "{cases} cases, {broken} promise{ending} broken")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scheduler_says_stays_in_its_line() {
        let finding = Finding {
            promise: Promise::Runs,
            who: "the host".into(),
            at_ns: 0,
            seen: "failed:\n\u{1b}]0;title\u{7}".into(),
            excess: 1.0,
            over_ns: None,
        };
        assert!(line(&finding).contains("failed: \\u{1b}]0;title\\u{7}"), "{}", line(&finding));
    }
}
