//! The setting of soft affinity: a word, or a table of tunables.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;
use tandem_sim::policy::linux::SoftAffinity;

/// What a Linux host makes of soft affinities.
#[derive(Clone, Copy, Debug)]
pub enum SoftAffinitySetting {
    /// "ignored": nothing, as every release of Linux.
    Ignored,
    /// "work-conserving": a task waits where it prefers to be, but uses any CPU that idles.
    WorkConserving,
    /// As in the patches of 2019, with these tunables.
    Tunables(TunablesTable),
}

/// The tunables of the patches.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunablesTable {
    /// Factor of how much a CPU is used that the task does not prefer (`sched_allowed`), 1 to 1000000; 100 if
    /// absent.
    pub allowed: Option<u32>,
    /// Factor of how much one is used that it does (`sched_preferred`), 1 to 1000000; 1 if absent.
    pub preferred: Option<u32>,
}

impl From<SoftAffinitySetting> for SoftAffinity {
    fn from(setting: SoftAffinitySetting) -> Self {
        match setting {
            SoftAffinitySetting::Ignored => Self::Ignored,
            SoftAffinitySetting::WorkConserving => Self::WorkConserving,
            SoftAffinitySetting::Tunables(table) => Self::Tunables {
                allowed: table.allowed.unwrap_or(Self::POSTED_ALLOWED),
                preferred: table.preferred.unwrap_or(Self::POSTED_PREFERRED),
            },
        }
    }
}

// Not an untagged enum, for the same reason as the switch of a table.
impl<'de> Deserialize<'de> for SoftAffinitySetting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SettingVisitor)
    }
}

struct SettingVisitor;

impl<'de> Visitor<'de> for SettingVisitor {
    type Value = SoftAffinitySetting;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"ignored\", \"work-conserving\" or a table of tunables")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        match text {
            "ignored" => Ok(SoftAffinitySetting::Ignored),
            "work-conserving" => Ok(SoftAffinitySetting::WorkConserving),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        TunablesTable::deserialize(MapAccessDeserializer::new(map)).map(SoftAffinitySetting::Tunables)
    }
}

impl JsonSchema for SoftAffinitySetting {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "SoftAffinitySetting".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<TunablesTable>();
        json_schema!({ "anyOf": [{ "const": "ignored" }, { "const": "work-conserving" }, table] })
    }
}
