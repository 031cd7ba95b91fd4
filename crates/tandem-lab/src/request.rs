//! What the command or a Python program asks of a simulation: a scenario with values for its parameters, and schedulers.

use crate::results::Key;
use crate::scenario::policy::PolicyTable;
use crate::scenario::policy::scheduler::{GuestScheduler, HostScheduler, SchedulerName};
use crate::scenario::{Parameters, ScenarioSource};
use crate::summary::scenario_hash;
use std::path::Path;
use tandem_file::file_error::FileError;
use tandem_file::shown::one_line;
use tandem_sim::scenario::Scenario;

/// A scenario that is to run.
#[derive(Clone, Debug)]
pub struct Request {
    /// What results call the scenario.
    pub name: String,
    /// The scenario.
    pub source: ScenarioSource,
    /// Values of its parameters.
    pub parameters: Parameters,
}

/// Why a request cannot run.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RequestError {
    /// The scenario is wrong, or does not fit the parameters or the schedulers.
    #[error(transparent)]
    File(#[from] FileError),
    /// A scheduler for guests has no effect.
    #[error("a scheduler of guests has no effect: no VM of the scenario has a guest kernel; remove it")]
    NoGuests,
    /// Two contenders are the same. Each is the position of a policy; `None` is the scenario's own.
    #[error("two policies are the same, which leaves nothing to compare")]
    Same {
        /// The earlier one.
        one: Option<usize>,
        /// The later one.
        other: usize,
    },
}

/// Whose scheduler, and which.
#[derive(Clone, Debug)]
pub enum Level {
    /// The host's.
    Host(HostScheduler),
    /// That of all guests.
    Guest(GuestScheduler),
}

impl Level {
    /// That scheduler and no other.
    pub fn alone(self) -> PolicyTable {
        let nothing = PolicyTable::default();
        match self {
            Self::Host(host) => PolicyTable { host: Some(host), ..nothing },
            Self::Guest(guest) => PolicyTable { guest: Some(guest), ..nothing },
        }
    }
}

/// The name of a scheduler. The path of an object begins in the current folder.
///
/// # Errors
/// A sentence: what is allowed.
pub fn parse_scheduler(text: &str) -> Result<SchedulerName, String> {
    // Paths begin here, not where the scenario lies.
    let here =
        std::env::current_dir().map_err(|error| format!("the current folder cannot be read: {error}"))?;
    scheduler_in(&here, text)
}

/// The name of a scheduler. The path of an object begins in this folder.
pub(crate) fn scheduler_in(folder: &Path, text: &str) -> Result<SchedulerName, String> {
    let name = SchedulerName::parse(text);
    let name = name.map_err(|expected| format!("'{text}' is no scheduler; it is {expected}"))?;
    Ok(name.in_directory(folder))
}

/// A level and the name of its scheduler: host=NAME or guest=NAME.
///
/// # Errors
/// A sentence: what is allowed.
pub fn parse_level(text: &str) -> Result<Level, String> {
    match text.split_once('=').ok_or("write host=NAME or guest=NAME")? {
        ("host", name) => Ok(Level::Host(parse_scheduler(name)?.into())),
        ("guest", name) => Ok(Level::Guest(parse_scheduler(name)?.try_into()?)),
        (level, _) => Err(format!("'{level}' has no scheduler; write host=NAME or guest=NAME")),
    }
}

/// The name of a scheduler of the host, or a level and a name.
///
/// # Errors
/// A sentence: what is allowed.
pub fn parse_policy(text: &str) -> Result<Level, String> {
    // A path may hold an equals sign.
    match text.starts_with("host=") || text.starts_with("guest=") {
        true => parse_level(text),
        false => Ok(Level::Host(parse_scheduler(text)?.into())),
    }
}

impl Request {
    /// The scenario under these schedulers.
    ///
    /// # Errors
    /// If it does not fit the parameters or the schedulers.
    pub fn scenario(&self, policy: &PolicyTable) -> Result<Scenario, RequestError> {
        let scenario = self.source.build(&self.parameters, policy)?;
        match policy.guest.is_some() && !self.source.has_guests() {
            true => Err(RequestError::NoGuests),
            false => Ok(scenario),
        }
    }

    /// Lets it run on another machine: a name, or the path of a machine file, which begins in the current folder.
    /// Whether its parameters named no machine before.
    pub fn set_machine(&mut self, machine: &str) -> bool {
        let path = Path::new(machine);
        // A path begins here, not where the scenario lies.
        let file = path.is_file().then(|| path.canonicalize().ok()?.to_str().map(str::to_owned)).flatten();
        let machine = file.unwrap_or_else(|| machine.to_owned());
        self.parameters.insert("machine".into(), Key::Text(machine)).is_none()
    }

    /// The scenario under each of these policies, of which the words are kept that it was asked for by where they say
    /// more than its name. The scenario's own comes first if there is one policy alone.
    ///
    /// # Errors
    /// If a policy does not fit, or is the same as another.
    pub fn contenders(
        &self,
        policies: &[(String, Level)],
    ) -> Result<Vec<(Option<String>, Scenario)>, RequestError> {
        let mut contenders = Vec::new();
        let is_own_first = policies.len() == 1;
        if is_own_first {
            contenders.push((None, self.source.build(&self.parameters, &PolicyTable::default())?));
        }
        for (text, level) in policies {
            if matches!(level, Level::Guest(_)) && !self.source.has_guests() {
                return Err(RequestError::NoGuests);
            }
            // Two objects may have the same name.
            let word = text.contains("object:").then(|| one_line(text));
            contenders.push((word, self.source.build(&self.parameters, &level.clone().alone())?));
        }
        let hashes: Vec<u64> = contenders.iter().map(|(_, scenario)| scenario_hash(scenario)).collect();
        for (at, hash) in hashes.iter().enumerate() {
            if let Some(before) = hashes[..at].iter().position(|other| other == hash) {
                let own = usize::from(is_own_first);
                return Err(RequestError::Same { one: before.checked_sub(own), other: at - own });
            }
        }
        Ok(contenders)
    }

    /// What of the scenario does not hold under these schedulers, in a sentence without its full stop; `None` if all of it
    /// does.
    pub fn left_out(&self, policies: &[PolicyTable]) -> Option<String> {
        let mut left_out: Vec<_> =
            policies.iter().flat_map(|policy| self.source.left_out_by(policy)).collect();
        left_out.sort_unstable();
        left_out.dedup();
        (!left_out.is_empty()).then(|| {
            format!(
                "`{}` is for the scenario's own host scheduler and does not hold under another one; \
                 to keep it, change `host` in a copy of the scenario",
                left_out.join("` and `")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "length = \"5ms\"\nmachine = \"$machine\"\n[parameters]\nmachine = \"1x2x1\"\n[policy]\nhost = \"linux\"\n\
        [programs.hog]\nops = [{ forever = [{ compute = \"1ms\" }] }]\n\
        [[vm]]\ngroup = \"hogs\"\nvcpus = 2\nmemory = \"1GiB\"\nprograms = [\"hog\"]\n";

    fn request() -> Request {
        let source = ScenarioSource::parse(Path::new("s.toml"), TEXT).unwrap();
        Request { name: "s.toml".into(), source, parameters: Parameters::new() }
    }

    fn contenders(words: &[&str]) -> Result<usize, RequestError> {
        let policies: Vec<_> =
            words.iter().map(|word| ((*word).to_owned(), parse_policy(word).unwrap())).collect();
        request().contenders(&policies).map(|contenders| contenders.len())
    }

    #[test]
    fn one_policy_is_compared_with_the_scenarios_own() {
        assert_eq!(contenders(&["xen-credit"]).unwrap(), 2);
        assert_eq!(contenders(&["xen-credit", "linux", "host=tandem"]).unwrap(), 3);
        let same = |words: &[&str]| match contenders(words).unwrap_err() {
            RequestError::Same { one, other } => (one, other),
            other => panic!("{other}"),
        };
        assert_eq!(same(&["linux"]), (None, 0));
        assert_eq!(same(&["tandem", "linux", "linux"]), (Some(1), 2));
        assert!(matches!(contenders(&["guest=linux"]), Err(RequestError::NoGuests)));
    }

    #[test]
    fn words_that_name_no_scheduler_are_refused() {
        for (word, says) in [
            ("cfs", "'cfs' is no scheduler; it is \"xen-credit\""),
            ("guest=xen-credit", "a guest's scheduler is \"linux\""),
            ("host=", "'' is no scheduler"),
        ] {
            let error = parse_policy(word).unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
        assert_eq!(
            parse_level("vm=linux").unwrap_err(),
            "'vm' has no scheduler; write host=NAME or guest=NAME"
        );
        let object = parse_scheduler("object:a=b.o").unwrap();
        let here = std::env::current_dir().unwrap();
        assert_eq!(object, SchedulerName::Object(here.join("a=b.o")));
    }

    #[test]
    fn a_machine_is_set_once() {
        let mut request = request();
        assert!(request.set_machine("1x4x1"));
        assert_eq!(request.scenario(&PolicyTable::default()).unwrap().machine.name(), "1x4x1");
        assert!(!request.set_machine("1x8x1"));
    }
}
