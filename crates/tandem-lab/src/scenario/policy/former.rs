//! The former spelling of policies, in which settings of a scheduler stood beside its name.
//!
//! Problem: files in it are not read any more, and their users need to know how each key is spelled now.
//!
//! Approach: for each policy in the former spelling, an error shows the whole table to write, with all that
//! the file says about the scheduler. A setting that the named scheduler never had is refused, as it was
//! before. A variant that names no scheduler changes that of its scenario, which is in another file: where
//! several schedulers have its keys, the error says so.

use std::ops::Range;
use tandem_file::file_error::FileError;
use tandem_file::located::SourceFile;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};

/// Longest value that an error repeats, in bytes.
const VALUE_MAX: usize = 80;

const LINUX: &str = "linux";
const XEN: &str = "xen-credit";
const TANDEM: &str = "tandem";
/// Stands for a scheduler in an object file.
const OBJECT: &str = "object";

/// A former key, the schedulers that had it, and its present name.
type Key = (&'static str, &'static [&'static str], &'static str);

const KEYS: &[Key] = &[
    ("era", &[LINUX, XEN], "version"),
    ("era", &[TANDEM, OBJECT], "kernel"),
    ("tick_hz", &[LINUX, TANDEM, OBJECT], "tick_hz"),
    ("domains", &[LINUX], "domains"),
    ("spin_locks", &[LINUX], "spin_locks"),
    ("soft_affinity", &[LINUX], "soft_affinity"),
    ("numa_balancing", &[LINUX], "numa_balancing"),
    ("steal_clock", &[LINUX], "steal_clock"),
    ("timeslice", &[XEN], "timeslice"),
    ("ratelimit", &[XEN], "ratelimit"),
    ("migration_delay", &[XEN], "migration_delay"),
    ("rate_control", &[XEN], "rate_control"),
    ("tandem", &[TANDEM], "settings"),
    ("settings", &[OBJECT], "settings"),
    ("watchdog_timeout", &[TANDEM, OBJECT], "watchdog_timeout"),
    ("tick_delay_max", &[TANDEM, OBJECT], "tick_delay_max"),
    ("timer_delay_max", &[TANDEM, OBJECT], "timer_delay_max"),
    ("timer_failure_pct", &[TANDEM, OBJECT], "timer_failure_pct"),
    ("storage_failure_pct", &[TANDEM, OBJECT], "storage_failure_pct"),
];

/// The error about a file that could not be read; if the file has the former spelling, one that shows the
/// present one.
pub fn explain(error: FileError, source: &SourceFile) -> FileError {
    let Ok(file) = DeTable::parse(source.text()) else { return error };
    let table = |key: &str| file.get_ref().get(key).and_then(|value| value.get_ref().as_table());
    let variants = table("variants").into_iter().flat_map(|variants| variants.values());
    let variants = variants.filter_map(|variant| variant.get_ref().as_table()).map(|policy| (policy, true));
    let policies = variants.chain(table("policy").map(|policy| (policy, false)));
    let former = policies.flat_map(|(policy, is_variant)| {
        let (host, guest) = (policy.get("host"), policy.get("guest"));
        let guest = guest.and_then(|guest| guest.get_ref().as_table()).filter(|guest| is_former_guest(guest));
        let text = source.text();
        let host = former("host", policy, host, (!is_variant).then_some(XEN), text);
        let guest = guest.map(|guest| {
            former("guest", guest, guest.get("scheduler"), (!is_variant).then_some(LINUX), text)
        });
        [host, guest.flatten()].into_iter().flatten()
    });
    match former.min_by_key(|(span, _)| span.start) {
        Some((span, message)) => source.error(span, message),
        None => error,
    }
}

/// Whether the table of a guest is in the former spelling; present ones have some of the same keys.
fn is_former_guest(guest: &DeTable<'_>) -> bool {
    let is_present = [LINUX, TANDEM, OBJECT].iter().any(|scheduler| guest.contains_key(*scheduler));
    guest.contains_key("scheduler") || !is_present
}

/// What is wrong with a table in the former spelling, and where; `None` if it is not. The scheduler is that
/// of `value`, or else the default.
fn former(
    level: &str,
    table: &DeTable<'_>,
    value: Option<&Spanned<DeValue<'_>>>,
    default: Option<&'static str>,
    text: &str,
) -> Option<(Range<usize>, String)> {
    let named = value.and_then(Named::by);
    let mut moved: Vec<_> = table
        .iter()
        .filter(|(key, _)| KEYS.iter().any(|(former, ..)| **former == **key.get_ref()))
        .map(|(key, value)| Moved { span: key.span(), key: key.get_ref(), value: shown(value, text) })
        .collect();
    moved.sort_by_key(|moved| moved.span.start);
    let value_is_former = || value.filter(|_| level == "guest" || named.is_some_and(|named| named.is_former));
    let span =
        moved.first().map(|first| first.span.clone()).or_else(|| value_is_former().map(Spanned::span))?;

    let Some(scheduler) = named.map(|named| named.scheduler).or(default) else {
        return Some((span, of_scenario(level, &moved)));
    };
    if let Some(foreign) = moved.iter().find(|moved| moved.present(scheduler).is_none()) {
        let message = format!("`{}` is not a setting of {level} `{scheduler}`; remove it", foreign.key);
        return Some((foreign.span.clone(), message));
    }
    let settings = named.map_or_else(Vec::new, |named| named.settings(text));
    let table = written(scheduler, settings, &moved);
    let why = match moved.len() {
        0 => String::new(),
        1 => format!("{} belongs in the scheduler's table: ", keys(&moved)),
        _ => format!("{} belong in the scheduler's table: ", keys(&moved)),
    };
    Some((span, format!("{why}write {level} = {table}")))
}

/// The sentence about settings of a variant that leaves the scheduler to the scenario.
fn of_scenario(level: &str, moved: &[Moved<'_>]) -> String {
    let has_all = |scheduler: &&str| moved.iter().all(|moved| moved.present(scheduler).is_some());
    let possible: Vec<_> = [LINUX, XEN, TANDEM, OBJECT].into_iter().filter(has_all).collect();
    let keys = keys(moved);
    let Some(&scheduler) = possible.first() else {
        return format!("{keys} are settings of different schedulers; keep those of the scenario's {level}");
    };
    let path = (scheduler == OBJECT).then(|| "object = \"PATH\"".to_owned());
    let table = written(scheduler, path.into_iter().collect(), moved);
    match possible.len() {
        1 => format!("settings belong in the scheduler's table ({keys}): write {level} = {table}"),
        _ => format!(
            "settings belong in the table of the scenario's scheduler ({keys}): if that is {scheduler}, write {level} = {table}"
        ),
    }
}

/// A setting that stands beside the name of a scheduler.
struct Moved<'a> {
    span: Range<usize>,
    key: &'a str,
    /// As a file may have it.
    value: String,
}

impl Moved<'_> {
    /// The present name of the key, if the scheduler had it.
    fn present(&self, scheduler: &str) -> Option<&'static str> {
        let known = KEYS.iter().find(|(former, of, _)| *former == self.key && of.contains(&scheduler))?;
        Some(known.2)
    }
}

/// The former keys, for a sentence.
fn keys(moved: &[Moved<'_>]) -> String {
    moved.iter().map(|moved| format!("`{}`", moved.key)).collect::<Vec<_>>().join(", ")
}

/// A scheduler with settings as a file has it now: those that it has already, and those that moved.
fn written(scheduler: &str, mut settings: Vec<String>, moved: &[Moved<'_>]) -> String {
    let present =
        moved.iter().filter_map(|moved| Some(format!("{} = {}", moved.present(scheduler)?, moved.value)));
    settings.extend(present);
    match &settings[..] {
        [] => format!("\"{scheduler}\""),
        _ if scheduler == OBJECT => format!("{{ {} }}", settings.join(", ")),
        _ => format!("{{ {scheduler} = {{ {} }} }}", settings.join(", ")),
    }
}

/// A scheduler as a file names it, in either spelling.
#[derive(Clone, Copy)]
struct Named<'a> {
    scheduler: &'static str,
    /// The path of its object file, in the former spelling.
    path: Option<&'a str>,
    /// The table that it has, in the present spelling.
    table: Option<&'a DeTable<'a>>,
    /// Whether the name itself is spelled in another way now.
    is_former: bool,
}

impl<'a> Named<'a> {
    /// What the value of `host`, or of a guest's `scheduler`, names; `None` if that is no scheduler.
    fn by(value: &'a Spanned<DeValue<'a>>) -> Option<Self> {
        let word = |word: &str| [LINUX, XEN, TANDEM].into_iter().find(|scheduler| *scheduler == word);
        let (path, table) = (None, None);
        match value.get_ref() {
            DeValue::Table(all) if all.contains_key(OBJECT) => {
                Some(Self { scheduler: OBJECT, path, table: Some(all), is_former: false })
            }
            DeValue::Table(all) => {
                let (key, table) = all.iter().next()?;
                let table = table.get_ref().as_table();
                Some(Self { scheduler: word(key.get_ref())?, path, table, is_former: false })
            }
            value => {
                let name = value.as_str()?;
                let path = name.strip_prefix("file:").filter(|path| !path.is_empty());
                let scheduler = path.map(|_| OBJECT).or_else(|| word(name))?;
                Some(Self { scheduler, path, table, is_former: path.is_some() })
            }
        }
    }

    /// The settings that it has already, as a file has them now.
    fn settings(self, text: &str) -> Vec<String> {
        let path = self.path.map(|path| format!("object = {}", Value::from(path)));
        let table = self.table.into_iter().flat_map(DeTable::iter);
        path.into_iter()
            .chain(table.map(|(key, value)| format!("{} = {}", key.get_ref(), shown(value, text))))
            .collect()
    }
}

/// A value as a file may have it, in one line; a long one is left out.
fn shown(value: &Spanned<DeValue<'_>>, text: &str) -> String {
    let file = text.get(value.span()).unwrap_or_default();
    let fits = file.len() <= VALUE_MAX && !file.contains(['\n', '#']);
    match value.get_ref() {
        DeValue::String(value) if value.len() <= VALUE_MAX => Value::from(&**value).to_string(),
        DeValue::String(_) => "\"...\"".into(),
        DeValue::Table(_) if !fits || !file.starts_with('{') => "{ ... }".into(),
        DeValue::Array(_) if !fits => "[ ... ]".into(),
        _ => file.to_owned(),
    }
}
