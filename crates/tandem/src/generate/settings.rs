//! The settings with what their schema says about them: as the file that packages install, and for its manual
//! page.

use serde_json::Value;
use std::fmt::Write;
use tandem_settings::{Settings, settings_schema};

/// What the installed file begins with.
const HEAD: &str = "# Settings of the scheduler that `tandem run` loads: tandem.toml(5).\n\
    # Lines that begin with # and no space are the defaults. `systemctl reload tandem` makes a change take effect.\n";

/// Settings that belong together.
pub struct Table {
    /// Its name; empty for those that are in none.
    pub name: String,
    /// What it is about; empty without a name.
    pub description: String,
    /// The settings, in the order in which they print.
    pub settings: Vec<Setting>,
    /// It may be there more than once, or not at all: what stands for defaults are examples.
    pub is_repeated: bool,
}

impl Table {
    /// As it begins in the file; empty for settings that are in no table.
    pub fn heading(&self) -> String {
        match (self.name.as_str(), self.is_repeated) {
            ("", _) => String::new(),
            (name, false) => format!("[{name}]"),
            (name, true) => format!("[[{name}]]"),
        }
    }
}

/// A setting.
pub struct Setting {
    /// Its name.
    pub key: String,
    /// The default, in TOML.
    pub default: String,
    /// What it is, and what it may be.
    pub description: String,
    /// Words that it may be, each with what it means; none if it is a number, a time or a switch.
    pub words: Vec<(String, String)>,
}

/// All settings: in the order and with the defaults of `tandem run --print-config`.
pub fn tables() -> Vec<Table> {
    let schema = Value::from(settings_schema());
    let empty = |name: &str, description: String| Table {
        name: name.into(),
        description,
        settings: Vec::new(),
        is_repeated: false,
    };
    let mut table = empty("", String::new());
    let mut tables = Vec::new();
    let mut properties = &schema["properties"];
    for line in Settings::default().to_toml().lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let property = &schema["properties"][name];
            properties = &definition(&schema, property)["properties"];
            let next = empty(name, description(property));
            tables.push(std::mem::replace(&mut table, next));
        } else if let Some((key, default)) = line.split_once(" = ") {
            let property = &properties[key];
            table.settings.push(Setting {
                key: key.into(),
                default: default.into(),
                description: description(property),
                words: words(definition(&schema, property)),
            });
        }
    }
    tables.push(table);
    tables.push(table_of_vms(&schema));
    tables
}

/// Exceptions for single VMs, of which there are none by default.
fn table_of_vms(schema: &Value) -> Table {
    let name = "vm";
    let property = &schema["properties"][name];
    let rule = definition(schema, &property["items"]);
    let required =
        |key: &str| rule["required"].as_array().is_some_and(|keys| keys.iter().any(|one| one == key));
    let mut properties: Vec<_> = rule["properties"].as_object().into_iter().flatten().collect();
    properties.sort_by_key(|(key, _)| !required(key));
    let settings = properties.into_iter().map(|(key, property)| {
        // Lists may be absent, for which the schema has the type null besides.
        let is = |kind: &str| property["type"] == kind || property["type"][0] == kind;
        let default = if let Some(example) = property["examples"].get(0) {
            &example.to_string()
        } else if is("string") {
            "\"db*\""
        } else if is("array") {
            "[1]"
        } else {
            "true"
        };
        Setting {
            key: key.clone(),
            default: default.into(),
            description: description(property),
            words: Vec::new(),
        }
    });
    Table {
        name: name.into(),
        description: description(property),
        settings: settings.collect(),
        is_repeated: true,
    }
}

/// The file that packages install: all settings are there, and none is set.
pub fn file() -> String {
    let mut text = HEAD.to_owned();
    for table in tables() {
        if !table.name.is_empty() {
            let mark = if table.is_repeated { "#" } else { "" };
            let _ = write!(text, "\n{}{mark}{}\n", comment(&table.description), table.heading());
        }
        for setting in &table.settings {
            let _ = write!(text, "\n{}", comment(&setting.description));
            for (word, meaning) in &setting.words {
                text += &comment(&format!("\"{word}\": {meaning}"));
            }
            let _ = writeln!(text, "#{} = {}", setting.key, setting.default);
        }
    }
    text
}

fn comment(text: &str) -> String {
    text.lines().map(|line| format!("# {line}\n")).collect()
}

/// The part of the schema that a property refers to; the property itself if it refers to none.
fn definition<'a>(schema: &'a Value, property: &'a Value) -> &'a Value {
    let pointer = property["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
    pointer.and_then(|pointer| schema.pointer(pointer)).unwrap_or(property)
}

fn description(property: &Value) -> String {
    property["description"].as_str().unwrap_or_default().into()
}

fn words(definition: &Value) -> Vec<(String, String)> {
    let choices = definition["oneOf"].as_array().into_iter().flatten();
    choices.filter_map(|choice| Some((choice["const"].as_str()?.into(), description(choice)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_described() {
        for table in tables() {
            assert_eq!(table.name.is_empty(), table.description.is_empty(), "[{}]", table.name);
            assert!(!table.settings.is_empty(), "{}", table.heading());
            for setting in table.settings {
                assert!(!setting.description.is_empty(), "{} of [{}]", setting.key, table.name);
            }
        }
        let mode = &tables()[0].settings[0];
        let words: Vec<_> = mode.words.iter().map(|(word, _)| word.as_str()).collect();
        assert_eq!((mode.key.as_str(), words), ("mode", vec!["host", "guest"]));
        let last = tables().pop().unwrap();
        let keys: Vec<_> = last.settings.iter().map(|setting| setting.key.as_str()).collect();
        assert_eq!((last.heading().as_str(), keys[0], keys.len()), ("[[vm]]", "name", 9));
    }
}
