//! The scheduler of a kernel: a name, or a table of its settings.
//!
//! A name alone stands for that scheduler with its defaults. A table says by its key which scheduler it is
//! of, as in `{ linux = { version = "6.12" } }`; one with the key `object` is of a scheduler in an object
//! file.

use super::credit::CreditTable;
use super::credit2::Credit2Table;
use super::linux::{LinuxGuestTable, LinuxHostTable};
use super::sched_ext::{ObjectTable, TandemTable};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, IntoDeserializer, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::mem::discriminant;
use std::ops::Range;
use std::path::{Path, PathBuf};
use tandem_file::file_error::FileError;
use tandem_file::located::SourceFile;
use tandem_machine::Machine;
use tandem_sim::policy::linux::LinuxEra;
use tandem_sim::policy::pause_loop::PauseLoop;
use tandem_sim::scenario::PolicySettings;

/// A scheduler by its name: "xen-credit", "xen-credit2", "linux", "tandem", or an object file, which the
/// command line names as "object:PATH".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulerName {
    /// Xen's credit scheduler.
    XenCredit,
    /// Xen's credit2 scheduler.
    XenCredit2,
    /// Linux's fair scheduler.
    Linux,
    /// Tandem's own scheduler, as `tandem run` loads it.
    Tandem,
    /// Another scheduler for sched_ext.
    Object(PathBuf),
}

impl SchedulerName {
    /// The scheduler that an argument of the command line names.
    ///
    /// # Errors
    /// What is allowed, if it names none.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let object = || text.strip_prefix("object:").filter(|path| !path.is_empty());
        Self::of_word(text)
            .or_else(|| object().map(|path| Self::Object(path.into())))
            .ok_or("\"xen-credit\", \"xen-credit2\", \"linux\", \"tandem\" or \"object:\" and the path of an object file")
    }

    /// The scheduler that has this word in files.
    fn of_word(word: &str) -> Option<Self> {
        match word {
            "xen-credit" => Some(Self::XenCredit),
            "xen-credit2" => Some(Self::XenCredit2),
            "linux" => Some(Self::Linux),
            "tandem" => Some(Self::Tandem),
            _ => None,
        }
    }

    /// The same, with a path that begins in a directory.
    pub fn in_directory(self, directory: &Path) -> Self {
        match self {
            Self::Object(path) => Self::Object(directory.join(path)),
            other => other,
        }
    }

    /// Whether it is a compiled scheduler for sched_ext.
    pub fn is_compiled(&self) -> bool {
        matches!(self, Self::Tandem | Self::Object(_))
    }
}

/// The scheduler of a host, with its settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(remote = "Self", rename_all = "kebab-case")]
pub enum HostScheduler {
    /// Xen's credit scheduler.
    XenCredit(CreditTable),
    /// Xen's credit2 scheduler.
    #[serde(rename = "xen-credit2")]
    XenCredit2(Credit2Table),
    /// Linux's fair scheduler, as under KVM: each vCPU is a task.
    Linux(LinuxHostTable),
    /// Tandem's own scheduler, compiled for a real kernel.
    Tandem(Box<TandemTable>),
    /// Another such scheduler.
    #[serde(skip)]
    Object(Box<ObjectTable>),
}

/// The scheduler of guests, with its settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(remote = "Self", rename_all = "kebab-case")]
pub enum GuestScheduler {
    /// Linux's fair scheduler.
    Linux(LinuxGuestTable),
    /// Tandem's own scheduler, in guest mode.
    Tandem(Box<TandemTable>),
    /// Another compiled scheduler.
    #[serde(skip)]
    Object(Box<ObjectTable>),
}

impl Default for HostScheduler {
    fn default() -> Self {
        Self::XenCredit(CreditTable::default())
    }
}

impl Default for GuestScheduler {
    fn default() -> Self {
        Self::Linux(LinuxGuestTable::default())
    }
}

impl From<SchedulerName> for HostScheduler {
    /// With defaults for all settings.
    fn from(name: SchedulerName) -> Self {
        match name {
            SchedulerName::XenCredit => Self::XenCredit(CreditTable::default()),
            SchedulerName::XenCredit2 => Self::XenCredit2(Credit2Table::default()),
            SchedulerName::Linux => Self::Linux(LinuxHostTable::default()),
            SchedulerName::Tandem => Self::Tandem(Box::default()),
            SchedulerName::Object(path) => Self::Object(ObjectTable::new(path).into()),
        }
    }
}

impl TryFrom<SchedulerName> for GuestScheduler {
    type Error = &'static str;

    /// With defaults for all settings; guests do not run Xen.
    fn try_from(name: SchedulerName) -> Result<Self, Self::Error> {
        match name {
            SchedulerName::XenCredit | SchedulerName::XenCredit2 => {
                Err("a guest's scheduler is \"linux\", \"tandem\" or an object file")
            }
            SchedulerName::Linux => Ok(Self::Linux(LinuxGuestTable::default())),
            SchedulerName::Tandem => Ok(Self::Tandem(Box::default())),
            SchedulerName::Object(path) => Ok(Self::Object(ObjectTable::new(path).into())),
        }
    }
}

impl HostScheduler {
    /// This scheduler; what its table leaves out is as in `base`, if that is of the same scheduler.
    pub(super) fn over(self, base: Self) -> Self {
        match (self, base) {
            (Self::XenCredit(top), Self::XenCredit(base)) => Self::XenCredit(top.over(base)),
            (Self::XenCredit2(top), Self::XenCredit2(base)) => Self::XenCredit2(top.over(base)),
            (Self::Linux(top), Self::Linux(base)) => Self::Linux(top.over(base)),
            (Self::Tandem(top), Self::Tandem(base)) => Self::Tandem(top.over(*base).into()),
            (Self::Object(top), Self::Object(base)) => Self::Object(top.over(*base).into()),
            (top, _) => top,
        }
    }

    /// Whether settings of the other one may be settings of this one.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        discriminant(self) == discriminant(other)
    }

    /// Checks each setting by itself.
    pub(super) fn check(&self, source: &SourceFile) -> Result<(), FileError> {
        match self {
            Self::XenCredit(table) => table.check(source),
            Self::XenCredit2(table) => table.check(source),
            Self::Linux(table) => table.check(source),
            Self::Tandem(table) => table.check(source),
            Self::Object(table) => table.check(source),
        }
    }

    /// What does not go together in a whole table, and where it stands.
    pub(super) fn problem(&self) -> Option<(Range<usize>, &'static str)> {
        match self {
            Self::Linux(table) => table.problem(),
            Self::XenCredit(_) | Self::XenCredit2(_) | Self::Tandem(_) | Self::Object(_) => None,
        }
    }

    /// The engine's form on a machine. Paths begin where the source lies.
    ///
    /// # Errors
    /// A sentence, if settings do not go together, or a compiled scheduler cannot be used.
    pub(super) fn settings(&self, machine: &Machine, source: &SourceFile) -> Result<PolicySettings, String> {
        if let Some((_, problem)) = self.problem() {
            return Err(problem.into());
        }
        Ok(match self {
            Self::XenCredit(table) => PolicySettings::Credit(table.settings()),
            Self::XenCredit2(table) => PolicySettings::Credit2(table.settings()),
            Self::Linux(table) => PolicySettings::Linux(table.settings()),
            Self::Tandem(table) => PolicySettings::SchedExt(table.settings(false, machine)?.into()),
            Self::Object(table) => PolicySettings::SchedExt(table.settings(false, machine, source)?.into()),
        })
    }

    /// Why the host does not poll for vCPUs that halt, if it never does.
    pub(super) fn without_halt_poll(&self) -> Option<&'static str> {
        match self {
            Self::XenCredit(_) => Some("`halt_poll` has no effect under the host `xen-credit`; remove it"),
            Self::XenCredit2(_) => Some("`halt_poll` has no effect under the host `xen-credit2`; remove it"),
            Self::Linux(table) if table.settings().era == LinuxEra::V3_6 => {
                Some("`halt_poll` begins with version \"4.2\" of the host; remove it, or set \"0us\"")
            }
            Self::Linux(_) | Self::Tandem(_) | Self::Object(_) => None,
        }
    }

    /// What an empty table of pause-loop exits stands for.
    pub(super) fn pause_loop(&self) -> PauseLoop {
        match self {
            Self::XenCredit(_) | Self::XenCredit2(_) => PauseLoop::XEN,
            Self::Linux(table) => super::pause_loop::of_kvm(table.settings().era),
            Self::Tandem(_) | Self::Object(_) => PauseLoop::V6_12,
        }
    }
}

impl GuestScheduler {
    /// This scheduler; what its table leaves out is as in `base`, if that is of the same scheduler.
    pub(super) fn over(self, base: Self) -> Self {
        match (self, base) {
            (Self::Linux(top), Self::Linux(base)) => Self::Linux(top.over(base)),
            (Self::Tandem(top), Self::Tandem(base)) => Self::Tandem(top.over(*base).into()),
            (Self::Object(top), Self::Object(base)) => Self::Object(top.over(*base).into()),
            (top, _) => top,
        }
    }

    /// Checks each setting by itself.
    pub(super) fn check(&self, source: &SourceFile) -> Result<(), FileError> {
        match self {
            Self::Linux(table) => table.check(source),
            Self::Tandem(table) => table.check(source),
            Self::Object(table) => table.check(source),
        }
    }

    /// What does not go together in a whole table, and where it stands.
    pub(super) fn problem(&self) -> Option<(Range<usize>, &'static str)> {
        match self {
            Self::Linux(table) => table.problem(),
            Self::Tandem(_) | Self::Object(_) => None,
        }
    }

    /// The engine's form, for CPUs as the guest sees them. Paths begin where the source lies.
    ///
    /// # Errors
    /// A sentence, if settings do not go together, or a compiled scheduler cannot be used.
    pub(in crate::scenario) fn settings(
        &self,
        topology: &Machine,
        source: &SourceFile,
    ) -> Result<PolicySettings, String> {
        if let Some((_, problem)) = self.problem() {
            return Err(problem.into());
        }
        Ok(match self {
            Self::Linux(table) => PolicySettings::Linux(table.settings()),
            Self::Tandem(table) => PolicySettings::SchedExt(table.settings(true, topology)?.into()),
            Self::Object(table) => PolicySettings::SchedExt(table.settings(true, topology, source)?.into()),
        })
    }
}

/// What the readers of a host's and of a guest's scheduler need.
trait Schedulers: Sized {
    /// What may be written, for errors.
    const EXPECTED: &'static str;

    /// The scheduler of that name with its defaults.
    fn named(name: SchedulerName) -> Option<Self>;

    /// The scheduler that the one key of a table names.
    fn keyed<'de, D: Deserializer<'de>>(table: D) -> Result<Self, D::Error>;

    /// The scheduler of an object file.
    fn object(table: ObjectTable) -> Self;
}

impl Schedulers for HostScheduler {
    const EXPECTED: &'static str = "\"xen-credit\", \"xen-credit2\", \"linux\", \"tandem\", or a table such as { linux = {} } or { object = \"scheduler.bpf.o\" }";

    fn named(name: SchedulerName) -> Option<Self> {
        Some(name.into())
    }

    fn keyed<'de, D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
        Self::deserialize(table)
    }

    fn object(table: ObjectTable) -> Self {
        Self::Object(table.into())
    }
}

impl Schedulers for GuestScheduler {
    const EXPECTED: &'static str =
        "\"linux\", \"tandem\", or a table such as { linux = {} } or { object = \"scheduler.bpf.o\" }";

    fn named(name: SchedulerName) -> Option<Self> {
        name.try_into().ok()
    }

    fn keyed<'de, D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
        Self::deserialize(table)
    }

    fn object(table: ObjectTable) -> Self {
        Self::Object(table.into())
    }
}

impl<'de> Deserialize<'de> for HostScheduler {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SchedulerVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for GuestScheduler {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SchedulerVisitor(PhantomData))
    }
}

// Not an untagged enum, for the same reason as the switch of a table.
struct SchedulerVisitor<S>(PhantomData<S>);

impl<'de, S: Schedulers> Visitor<'de> for SchedulerVisitor<S> {
    type Value = S;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(S::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<S, E> {
        let scheduler = SchedulerName::of_word(text).and_then(S::named);
        scheduler.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut rest: A) -> Result<S, A::Error> {
        let none = || A::Error::custom(format!("the table names no scheduler, expected {}", S::EXPECTED));
        let first: String = rest.next_key()?.ok_or_else(none)?;
        let is_object = ObjectTable::KEYS.contains(&first.as_str());
        if !is_object && SchedulerName::of_word(&first).and_then(S::named).is_none() {
            rest.next_value::<IgnoredAny>()?;
            while let Some((key, _)) = rest.next_entry::<String, IgnoredAny>()? {
                if key == ObjectTable::KEYS[0] {
                    return Err(A::Error::unknown_field(&first, &ObjectTable::KEYS));
                }
                // The reader may give keys in another order than the file.
                if SchedulerName::of_word(&key).and_then(S::named).is_some() {
                    return Err(beside(&first));
                }
            }
            let expected = S::EXPECTED;
            return Err(A::Error::custom(format!("there is no scheduler `{first}`, expected {expected}")));
        }
        let table = MapAccessDeserializer::new(Table { first: Some(first), rest: &mut rest });
        if is_object {
            return ObjectTable::deserialize(table).map(S::object);
        }
        let scheduler = S::keyed(table)?;
        match rest.next_key::<String>()? {
            None => Ok(scheduler),
            Some(key) => Err(beside(&key)),
        }
    }
}

/// The error about a key beside the name of a scheduler.
fn beside<E: Error>(key: &str) -> E {
    let is_scheduler = SchedulerName::of_word(key).is_some() || key == ObjectTable::KEYS[0];
    E::custom(match is_scheduler {
        true => format!("the table names a second scheduler, `{key:.60}`; keep one"),
        false => format!(
            "`{key:.60}` stands beside the name of a scheduler; write it into the scheduler's own table"
        ),
    })
}

/// A table whose first key was read to see what it is.
struct Table<'a, A> {
    first: Option<String>,
    rest: &'a mut A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Table<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(first) => seed.deserialize(first.into_deserializer()).map(Some),
            None => self.rest.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.rest.next_value_seed(seed)
    }
}

impl JsonSchema for HostScheduler {
    fn schema_name() -> Cow<'static, str> {
        "HostScheduler".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schema([
            named::<CreditTable>("xen-credit", "Xen's credit scheduler.", generator),
            named::<Credit2Table>("xen-credit2", "Xen's credit2 scheduler.", generator),
            named::<LinuxHostTable>(
                "linux",
                "Linux's fair scheduler, as under KVM: each vCPU is a task.",
                generator,
            ),
            named::<TandemTable>("tandem", "Tandem's own scheduler, compiled for a real kernel.", generator),
            [generator.subschema_for::<ObjectTable>()].into(),
        ])
    }
}

impl JsonSchema for GuestScheduler {
    fn schema_name() -> Cow<'static, str> {
        "GuestScheduler".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        schema([
            named::<LinuxGuestTable>("linux", "Linux's fair scheduler.", generator),
            named::<TandemTable>("tandem", "Tandem's own scheduler, in guest mode.", generator),
            [generator.subschema_for::<ObjectTable>()].into(),
        ])
    }
}

/// One of several forms.
fn schema<const SCHEDULERS: usize>(forms: [Vec<Schema>; SCHEDULERS]) -> Schema {
    json_schema!({ "anyOf": forms.concat() })
}

/// A scheduler's name alone, and a table with it as the key.
fn named<T: JsonSchema>(name: &str, about: &str, generator: &mut SchemaGenerator) -> Vec<Schema> {
    let table = generator.subschema_for::<T>();
    vec![
        json_schema!({ "const": name, "description": about }),
        json_schema!({
            "type": "object",
            "properties": { name: table },
            "required": [name],
            "additionalProperties": false,
        }),
    ]
}
