//! The settings with what their schema says about them: as the file that packages install, and for its manual page.

use serde_json::Value;
use std::fmt::Write;
use tandem_host::scheduler::{Settings, settings_schema};

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
    let mut table = Table { name: String::new(), description: String::new(), settings: Vec::new() };
    let mut tables = Vec::new();
    let mut properties = &schema["properties"];
    for line in Settings::default().to_toml().lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let property = &schema["properties"][name];
            properties = &definition(&schema, property)["properties"];
            let next = Table { name: name.into(), description: description(property), settings: Vec::new() };
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
    tables
}

/// The file that packages install: all settings are there, and none is set.
pub fn file() -> String {
    let mut text = HEAD.to_owned();
    for table in tables() {
        if !table.name.is_empty() {
            let _ = write!(text, "\n{}[{}]\n", comment(&table.description), table.name);
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
            assert!(!table.settings.is_empty(), "[{}]", table.name);
            for setting in table.settings {
                assert!(!setting.description.is_empty(), "{} of [{}]", setting.key, table.name);
            }
        }
        let mode = &tables()[0].settings[0];
        let words: Vec<_> = mode.words.iter().map(|(word, _)| word.as_str()).collect();
        assert_eq!((mode.key.as_str(), words), ("mode", vec!["host", "guest"]));
    }
}
