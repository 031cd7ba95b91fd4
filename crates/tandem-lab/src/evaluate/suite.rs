//! Suites: the cases by which candidates are judged.
//!
//! A case is a scenario that a generator draws from ranges, with its seed. The three splits of a suite have seeds and
//! machines that no other split has, so that what a candidate knows of one helps it nowhere else. Two kinds of cases make
//! a suite: *scored* ones, loads of hosts on which candidates differ, and *guards*, small cases in which the
//! promises are judged over a long time.

use super::{Options, draw, guard};
use crate::check::generate::Dice;
use crate::scenario::ScenarioSource;
use serde::{Deserialize, Serialize};
use std::path::Path;
use tandem_file::shown::one_line;
use tandem_sim::scenario::{PolicySettings, Scenario};

/// A suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Suite {
    /// Hosts of two sockets with some 20 VMs, whose vCPUs the candidate schedules.
    Hosts,
    /// Guests on a busy host, whose tasks the candidate schedules.
    Guests,
    /// Machines without VMs, whose tasks the candidate schedules.
    Tasks,
}

impl Suite {
    /// All suites.
    pub const ALL: [Self; 3] = [Self::Hosts, Self::Guests, Self::Tasks];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Guests => "guests",
            Self::Tasks => "tasks",
        }
    }

    /// The suite of that name.
    ///
    /// # Errors
    /// A sentence: which there are.
    pub fn named(name: &str) -> Result<Self, String> {
        of_name("suite", &Self::ALL.map(|suite| (suite.name(), suite)), name)
    }

    /// The cases of a split, always the same for the same seed.
    pub fn cases(self, options: Options) -> Vec<Case> {
        let Options { split, seed } = options;
        let scored = (0..SCORED_CASES).map(|number| {
            let mut dice = self.dice(options, number);
            Case {
                name: format!("{}-{}-{seed}-{number}", self.name(), split.name()),
                role: Role::Scored,
                seed: dice.from_to(1, u32::MAX.into()),
                text: draw::text(self, split, &mut dice),
            }
        });
        let guards = guard::ALL.iter().enumerate().map(|(number, kind)| {
            let mut dice = self.dice(options, SCORED_CASES + number as u64);
            Case {
                name: format!("{}-{seed}-{}", split.name(), kind.name()),
                role: Role::Guard(*kind),
                seed: dice.from_to(1, u32::MAX.into()),
                text: guard::text(*kind, split, &mut dice),
            }
        });
        // Guards first: they are cheap, and say best what is wrong.
        guards.chain(scored).collect()
    }

    /// Random choices of a case, which no other suite, split or seed has.
    fn dice(self, Options { split, seed }: Options, number: u64) -> Dice {
        let stream = (self as u64) << 32 | (split as u64) << 16 | number;
        Dice::of_case(seed ^ SUITE_VERSION.rotate_left(32), stream)
    }
}

/// Scored cases of a suite.
const SCORED_CASES: u64 = 3;
/// Changes whenever the suites change: results before and after do not compare.
const SUITE_VERSION: u64 = 1;

/// A part of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// What a search sees.
    Train,
    /// What it chooses between its finds by.
    Validation,
    /// What nobody looks at before the end.
    Test,
}

impl Split {
    /// All splits.
    pub const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::Test];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }

    /// The split of that name.
    ///
    /// # Errors
    /// A sentence: which there are.
    pub fn named(name: &str) -> Result<Self, String> {
        of_name("split", &Self::ALL.map(|split| (split.name(), split)), name)
    }
}

/// The one of that name.
fn of_name<T: Copy>(what: &str, all: &[(&str, T)], name: &str) -> Result<T, String> {
    all.iter().find(|(known, _)| *known == name).map(|&(_, one)| one).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(known, _)| *known).collect();
        format!("there is no {what} `{}`; there are {}", one_line(name), names.join(", "))
    })
}

/// What a case is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its measures are compared with those under Linux.
    Scored,
    /// It is judged by the promises alone.
    Guard(guard::Kind),
}

/// A scenario with its seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its name, by suite, split and number.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// The seed of its run.
    pub seed: u64,
    /// The scenario file, with Linux at both levels. Only a compiled scheduler can run some guards.
    pub text: String,
}

impl Case {
    /// The file, as read.
    ///
    /// # Errors
    /// By a mistake of the generator.
    pub fn source(&self) -> Result<ScenarioSource, String> {
        ScenarioSource::parse(Path::new(&self.name), &self.text).map_err(|error| error.to_string())
    }

    /// The scenario under Linux, or under another host scheduler, without the threads of the host's own kernel: promises are
    /// made to what it lists.
    ///
    /// # Errors
    /// By a mistake of the generator.
    pub fn scenario(&self, host: Option<PolicySettings>) -> Result<Scenario, String> {
        let scenario = self.source()?.build_under(&Default::default(), &Default::default(), host);
        let mut scenario = scenario.map_err(|error| error.to_string())?;
        scenario.remove_kernel_threads();
        Ok(scenario)
    }
}
