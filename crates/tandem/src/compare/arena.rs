//! Schedulers on several scenarios, each with a page of its own, and where they stand in all of them.

use super::{Args, Match, print, write};
use crate::reproduce::make_writable;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tandem_lab::compare::{Arena, Comparison, Runs};
use tandem_lab::tables;
use tandemd::error::BadInput;
use tandemd::text::to_json_text;

/// Runs one after the other. What is done when one is refused, or an interrupt comes, is written and printed.
pub(super) fn run(args: &Args, matches: &[Match], runs: Runs, cancel: &AtomicBool) -> anyhow::Result<()> {
    let mut done: Vec<(String, Comparison)> = Vec::new();
    let mut end = Ok(());
    for one in matches {
        let folder = folder_name(one, &done);
        let out = args.out.as_ref().map(|out| out.join(&folder));
        let made = out.as_deref().map_or(Ok(()), make);
        match made.and_then(|()| one.run(runs, out.as_deref(), cancel)) {
            Ok(Some(comparison)) => done.push((folder, comparison)),
            Ok(None) => {}
            Err(error) => end = Err(error),
        }
        if end.is_ok() && cancel.load(Ordering::Relaxed) {
            end = Err(anyhow::anyhow!("interrupted; {} of {} scenarios had run", done.len(), matches.len()));
        }
        if end.is_err() {
            break;
        }
    }
    if let Some(arena) = Arena::new(&done) {
        let json = to_json_text(&arena)?;
        if let Some(out) = &args.out {
            write(out, "index.html", &arena.html()?)?;
            write(out, "arena.json", &json)?;
        }
        let table = || tables::of_comparisons(done.iter().map(|(_, comparison)| comparison));
        print(args.format, &arena, &json, table)?;
    }
    end
}

fn make(folder: &Path) -> anyhow::Result<()> {
    make_writable(folder).map_err(|error| BadInput::new(format!("{}: {error}", folder.display())).into())
}

/// A name that no earlier one has, of the scenario and its machine, with no character that an address must not hold.
fn folder_name(one: &Match, done: &[(String, Comparison)]) -> String {
    let stem = Path::new(&one.scenario).file_stem().unwrap_or_default().to_string_lossy();
    let machine = one.contenders.first().map_or("", |(_, scenario)| scenario.machine.name());
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' };
    let name: String = format!("{stem}-{machine}").chars().map(plain).collect();
    let mut names = std::iter::once(name.clone()).chain((2..).map(|number| format!("{name}-{number}")));
    let is_free = |name: &String| done.iter().all(|(known, _)| known != name);
    names.find(is_free).unwrap_or(name)
}
