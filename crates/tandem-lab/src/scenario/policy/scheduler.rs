//! Which scheduler a kernel has.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

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
