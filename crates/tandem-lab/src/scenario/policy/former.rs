//! The former spelling of policies, in which settings of a scheduler stood beside its name. It is not read any more: a file
//! that has it gets an error that shows the present spelling.

use std::ops::Range;
use tandem_file::file_error::FileError;
use tandem_file::located::SourceFile;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Longest value that an error repeats, in bytes.
const VALUE_MAX: usize = 80;

/// The error about a file that could not be read; if the file has the former spelling, one that shows the present one.
pub fn explain(error: FileError, source: &SourceFile) -> FileError {
    let Ok(file) = DeTable::parse(source.text()) else { return error };
    let table = |key: &str| file.get_ref().get(key).and_then(|value| value.get_ref().as_table());
    let variants = table("variants").into_iter().flat_map(|variants| variants.values());
    let policies = variants.filter_map(|variant| variant.get_ref().as_table()).chain(table("policy"));
    let former = policies.flat_map(|policy| former(policy, source.text()));
    match former.min_by_key(|(span, _)| span.start) {
        Some((span, message)) => source.error(span, message),
        None => error,
    }
}

/// What has the former spelling in a policy, with what to write instead.
fn former(policy: &DeTable<'_>, text: &str) -> Vec<(Range<usize>, String)> {
    let mut found = settings("host", policy, policy.get("host"), text);
    if let Some(value) = policy.get("host")
        && let Named::Object(path) = Named::by(Some(value))
        && value.get_ref().is_str()
    {
        found.push((value.span(), format!("write host = {{ object = \"{path}\" }}")));
    }
    // The present tables of guests have some of the former keys.
    let is_present =
        |guest: &DeTable<'_>| ["linux", "tandem", "object"].iter().any(|it| guest.contains_key(*it));
    if let Some(guest) = policy.get("guest").and_then(|guest| guest.get_ref().as_table()) {
        let scheduler = guest.get("scheduler");
        if scheduler.is_some() || !is_present(guest) {
            found.extend(settings("guest", guest, scheduler, text));
        }
        if let Some(value) = scheduler {
            let table = match Named::by(Some(value)) {
                Named::Object(path) => format!("{{ object = \"{path}\" }}"),
                _ => shown(value, text),
            };
            found.push((value.span(), format!("write guest = {table}")));
        }
    }
    found
}

/// Settings that stand in a table without a scheduler's table around them.
fn settings(
    level: &str,
    table: &DeTable<'_>,
    scheduler: Option<&Spanned<DeValue<'_>>>,
    text: &str,
) -> Vec<(Range<usize>, String)> {
    let named = Named::by(scheduler);
    let moved = |(key, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
        let name: &str = key.get_ref();
        let (owner, present) = named.owner(name, value.get_ref().as_str())?;
        let setting = format!("{present} = {}", shown(value, text));
        let table = match owner {
            Named::Object(path) => format!("{{ object = \"{path}\", {setting} }}"),
            Named::Other(owner) => format!("{{ {owner} = {{ {setting} }} }}"),
        };
        let message = format!("`{name}` belongs in a scheduler's table: write {level} = {table}");
        Some((key.span(), message))
    };
    table.iter().filter_map(moved).collect()
}

/// A scheduler as a file names it.
#[derive(Clone, Copy)]
enum Named<'a> {
    /// By a word; it is empty if there is none.
    Other(&'a str),
    /// By the path of its object file.
    Object(&'a str),
}

impl<'a> Named<'a> {
    /// What the value of `host`, or of a guest's `scheduler`, names.
    fn by(value: Option<&'a Spanned<DeValue<'_>>>) -> Self {
        let word = match value.map(Spanned::get_ref) {
            Some(DeValue::Table(table)) => match table.get("object").and_then(|path| path.get_ref().as_str())
            {
                Some(path) => return Self::Object(path),
                None => table.keys().next().map(|key| -> &str { key.get_ref() }),
            },
            value => value.and_then(DeValue::as_str),
        };
        let word = word.unwrap_or_default();
        word.strip_prefix("file:").map_or(Self::Other(word), Self::Object)
    }

    /// The scheduler that a former key was a setting of, and the present key.
    fn owner(self, key: &str, value: Option<&str>) -> Option<(Self, &'static str)> {
        let compiled = match self {
            Self::Object(_) => self,
            Self::Other(_) => Self::Other("tandem"),
        };
        let (linux, xen) = (Self::Other("linux"), Self::Other("xen-credit"));
        Some(match (key, self) {
            ("era", Self::Object(_) | Self::Other("tandem")) => (self, "kernel"),
            ("era", Self::Other("linux" | "xen-credit")) => (self, "version"),
            ("era", _) => match value {
                Some("4.3" | "4.5" | "4.9") => (xen, "version"),
                Some("7.3") => (compiled, "kernel"),
                _ => (linux, "version"),
            },
            ("tick_hz", Self::Object(_) | Self::Other("tandem")) => (self, "tick_hz"),
            ("tick_hz", _) => (linux, "tick_hz"),
            ("domains", _) => (linux, "domains"),
            ("spin_locks", _) => (linux, "spin_locks"),
            ("soft_affinity", _) => (linux, "soft_affinity"),
            ("numa_balancing", _) => (linux, "numa_balancing"),
            ("steal_clock", _) => (linux, "steal_clock"),
            ("timeslice", _) => (xen, "timeslice"),
            ("ratelimit", _) => (xen, "ratelimit"),
            ("migration_delay", _) => (xen, "migration_delay"),
            ("rate_control", _) => (xen, "rate_control"),
            ("tandem", _) => (Self::Other("tandem"), "settings"),
            ("settings", Self::Object(_)) => (self, "settings"),
            ("settings", _) => (Self::Object("PATH"), "settings"),
            ("watchdog_timeout", _) => (compiled, "watchdog_timeout"),
            ("tick_delay_max", _) => (compiled, "tick_delay_max"),
            ("timer_delay_max", _) => (compiled, "timer_delay_max"),
            ("timer_failure_pct", _) => (compiled, "timer_failure_pct"),
            ("storage_failure_pct", _) => (compiled, "storage_failure_pct"),
            _ => return None,
        })
    }
}

/// A value as the file has it, in one line; a table or a list that is long is left out.
fn shown(value: &Spanned<DeValue<'_>>, text: &str) -> String {
    let written = text.get(value.span()).unwrap_or_default();
    let written = written.split_whitespace().collect::<Vec<_>>().join(" ");
    match value.get_ref() {
        DeValue::Table(_) if written.len() > VALUE_MAX || !written.starts_with('{') => "{ ... }".into(),
        DeValue::Array(_) if written.len() > VALUE_MAX => "[ ... ]".into(),
        _ => written,
    }
}
