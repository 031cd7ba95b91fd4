//! The arms of a trial, as the command line names them.

use std::ffi::OsString;
use std::path::Path;
use tandem_host::trial::ArmScheduler;
use tandem_lab::switchback::record::ArmRecord;
use tandem_settings::Settings;
use tandemd::error::BadInput;

/// Longest name of an arm, bytes.
const NAME_MAX: usize = 40;
/// Most arms: each has a table.
const ARMS_MAX: usize = 8;

/// An arm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Its name, which no other has.
    pub name: String,
    /// What it loads.
    pub scheduler: ArmScheduler,
}

impl Arm {
    /// What the state file and reports say of it.
    pub fn record(&self) -> ArmRecord {
        let command = match &self.scheduler {
            ArmScheduler::Kernel => None,
            ArmScheduler::Program(words) => {
                let words: Vec<_> = words[1..].iter().map(|word| word.to_string_lossy()).collect();
                Some(format!("tandem {}", words.join(" ")))
            }
            ArmScheduler::Shell(line) => Some(line.clone()),
        };
        ArmRecord { name: self.name.clone(), command }
    }
}

/// The arms of `--arms` and `--arm`, in their order; files of settings are read, to find mistakes.
///
/// # Errors
/// If they are not arms, have one name, are fewer than two, or have a file with a mistake.
pub fn parse(list: &[String], commands: &[String]) -> Result<Vec<Arm>, BadInput> {
    let tandems = list.iter().filter(|item| item.starts_with("tandem")).count();
    let mut arms = Vec::new();
    for item in list {
        arms.push(parse_item(item.trim(), tandems > 1)?);
    }
    for command in commands {
        arms.push(parse_command(command)?);
    }
    for (at, arm) in arms.iter().enumerate() {
        if arms[..at].iter().any(|other| other.name == arm.name) {
            return Err(BadInput::new(format!("two arms have the name `{}`; each needs its own", arm.name)));
        }
    }
    match arms.len() {
        0 | 1 => Err(BadInput::new("a trial compares at least two arms, as in --arms kernel,tandem")),
        2..=ARMS_MAX => Ok(arms),
        _ => Err(BadInput::new(format!("a trial compares at most {ARMS_MAX} arms"))),
    }
}

fn parse_item(item: &str, are_several: bool) -> Result<Arm, BadInput> {
    let run = |config: &[&str]| {
        let words = [&["/proc/self/exe", "run", "--interval", "0"], config].concat();
        ArmScheduler::Program(words.into_iter().map(OsString::from).collect())
    };
    match (item, item.strip_prefix("tandem:")) {
        ("kernel", _) => Ok(Arm { name: "kernel".into(), scheduler: ArmScheduler::Kernel }),
        ("tandem", _) => Ok(Arm { name: "tandem".into(), scheduler: run(&[]) }),
        (_, Some(file)) => {
            Settings::read(Path::new(file)).map_err(BadInput::new)?;
            let name = if are_several { item } else { "tandem" };
            Ok(Arm { name: checked_name(name)?, scheduler: run(&["--config", file]) })
        }
        _ => Err(BadInput::new(format!(
            "`{item}` is no arm; allowed are kernel, tandem and tandem:FILE, and --arm NAME=COMMAND for others"
        ))),
    }
}

fn parse_command(text: &str) -> Result<Arm, BadInput> {
    match text.split_once('=') {
        Some((name, command)) if !command.trim().is_empty() => {
            Ok(Arm { name: checked_name(name)?, scheduler: ArmScheduler::Shell(command.trim().to_owned()) })
        }
        _ => Err(BadInput::new(format!("`{text}` is no arm; write --arm NAME=COMMAND"))),
    }
}

/// A name that fits into a table and cannot steer a terminal.
fn checked_name(name: &str) -> Result<String, BadInput> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-:/".contains(c);
    match !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(is_allowed) {
        true => Ok(name.to_owned()),
        false => Err(BadInput::new(format!(
            "`{}` cannot name an arm; allowed are up to {NAME_MAX} letters, digits, and any of . _ - : /",
            name.escape_debug()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str], commands: &[&str]) -> Result<Vec<String>, String> {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let arms = parse(&own(list), &own(commands)).map_err(|error| error.to_string())?;
        Ok(arms.into_iter().map(|arm| arm.name).collect())
    }

    #[test]
    fn arms_have_names_and_commands() {
        assert_eq!(names(&["kernel", "tandem"], &[]).unwrap(), ["kernel", "tandem"]);
        assert_eq!(names(&["kernel"], &["lavd=scx_lavd --performance"]).unwrap(), ["kernel", "lavd"]);
        let arms = parse(&["kernel".into(), "tandem".into()], &["b=x y=1".into()]).unwrap();
        let commands: Vec<_> = arms.iter().map(|arm| arm.record().command).collect();
        assert_eq!(commands, [None, Some("tandem run --interval 0".into()), Some("x y=1".into())]);
    }

    #[test]
    fn settings_make_an_arm_and_name_it_if_there_are_several() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        std::fs::write(&file, "mode = \"guest\"\n").unwrap();
        let item = format!("tandem:{}", file.display());
        assert_eq!(names(&["kernel", &item], &[]).unwrap(), ["kernel", "tandem"]);
        assert_eq!(names(&["tandem", &item], &[]).unwrap(), ["tandem", &item]);
        std::fs::write(&file, "mode = \"ghost\"\n").unwrap();
        assert!(names(&["kernel", &item], &[]).unwrap_err().contains("a.toml:1"));
    }

    #[test]
    fn mistakes_are_explained() {
        for (list, commands, says) in [
            (&["kernel"][..], &[][..], "at least two arms"),
            (&["kernel", "kernel"], &[], "two arms have the name `kernel`"),
            (
                &["kernel", "scx_lavd"],
                &[],
                "`scx_lavd` is no arm; allowed are kernel, tandem and tandem:FILE",
            ),
            (&["kernel", "tandem:"], &[], "No such file"),
            (&["kernel"], &["lavd"], "write --arm NAME=COMMAND"),
            (&["kernel"], &["lavd= "], "write --arm NAME=COMMAND"),
            (&["kernel"], &["\u{1b}[1m=true"], "`\\u{1b}[1m` cannot name an arm"),
        ] {
            let error = names(list, commands).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
