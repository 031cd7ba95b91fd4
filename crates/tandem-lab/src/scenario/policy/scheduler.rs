//! Which scheduler a kernel has, and what a compiled one is told.

use super::compiled::{SettingValue, TandemTable};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tandem_sim::policy::sched_ext::KernelVersion;

/// The scheduler of a kernel: "xen-credit" (hosts only), "linux", "tandem", or "file:PATH", an object file with a scheduler for
/// sched_ext. A path that is not absolute begins where the file lies that names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SchedulerName {
    /// Xen's credit scheduler.
    #[default]
    XenCredit,
    /// Linux's fair scheduler; on a host as under KVM: each vCPU is a task.
    Linux,
    /// Tandem's own scheduler, as `tandem run` loads it.
    Tandem,
    /// Another scheduler for sched_ext.
    File(PathBuf),
}

const EXPECTED: &str = "\"xen-credit\", \"linux\", \"tandem\" or \"file:\" and the path of an object file";

impl SchedulerName {
    /// The scheduler that a text names.
    ///
    /// # Errors
    /// What is allowed, if it names none.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "xen-credit" => Ok(Self::XenCredit),
            "linux" => Ok(Self::Linux),
            "tandem" => Ok(Self::Tandem),
            _ => match text.strip_prefix("file:") {
                Some(path) if !path.is_empty() => Ok(Self::File(path.into())),
                _ => Err(EXPECTED),
            },
        }
    }

    /// The same, with a path that begins in a directory.
    pub fn in_directory(self, directory: &Path) -> Self {
        match self {
            Self::File(path) => Self::File(directory.join(path)),
            other => other,
        }
    }

    /// Whether settings of the other one may be settings of this one.
    pub fn is_like(&self, other: &Self) -> bool {
        self == other || matches!((self, other), (Self::File(_), Self::File(_)))
    }

    /// Whether it is a compiled scheduler for sched_ext.
    pub fn is_compiled(&self) -> bool {
        matches!(self, Self::Tandem | Self::File(_))
    }
}

/// What a compiled scheduler is told before it starts.
pub struct Told<'a> {
    /// Tandem's settings.
    pub tandem: Option<&'a TandemTable>,
    /// Those of another one.
    pub variables: Option<&'a BTreeMap<String, SettingValue>>,
    /// The kernel that it runs on.
    pub kernel: KernelVersion,
    /// Ticks a second.
    pub tick_hz: Option<u32>,
    /// It runs in a guest.
    pub is_guest: bool,
}

impl<'de> Deserialize<'de> for SchedulerName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(|expected| D::Error::invalid_value(Unexpected::Str(&text), &expected))
    }
}

impl JsonSchema for SchedulerName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "SchedulerName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(xen-credit|linux|tandem|file:.+)$" })
    }
}
