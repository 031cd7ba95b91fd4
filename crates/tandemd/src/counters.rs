//! How `tandem run` and `tandem stat` print the scheduler's counters.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::Duration;
use tandem_settings::{Counter, Counters};

/// Writes a line for each counter: name, value and description.
///
/// # Errors
/// If nothing can be written.
pub fn write_table(counters: &Counters, out: &mut impl Write) -> io::Result<()> {
    let width = |text: fn(&Counter) -> String| counters.iter().map(|counter| text(&counter).len()).max();
    let name_width = width(|counter| counter.name.to_owned()).unwrap_or(0);
    let value_width = width(|counter| counter.value.to_string()).unwrap_or(0);
    for Counter { name, description, value } in counters.iter() {
        writeln!(out, "{name:name_width$}  {value:>value_width$}  {description}")?;
    }
    Ok(())
}

/// Events per second in one line, without counters that did not change.
pub fn rates(counters: &Counters, time: Duration) -> String {
    let mut line = String::new();
    for Counter { name, value, .. } in counters.iter().filter(|counter| counter.value > 0) {
        let comma = if line.is_empty() { "" } else { ", " };
        let rate = value as f64 / time.as_secs_f64();
        let decimals = usize::from(rate < 10.0);
        let _ = write!(line, "{comma}{name} {rate:.decimals$}");
    }
    match line.as_str() {
        "" => "no events".into(),
        rates => format!("per second: {rates}"),
    }
}
