//! Machines of equal packages, and the short text that names one: `2x96x2:llcs=12,nodes=4`.
//!
//! The text is PACKAGESxCORESxTHREADS: packages, cores in each package, threads in each core. Behind a colon
//! stand how many last-level caches (`llcs=`) and NUMA nodes (`nodes=`) a package has, where that is not one
//! node with one cache. A package with several nodes has one cache in each, if `llcs=` does not say another
//! number; `llcs=0` is a machine that reports no last-level cache. What a [`Shape`] does not say is assumed by
//! [`MachineBuilder::of_shape`](super::MachineBuilder::of_shape).

use super::{MAX_CPUS, MAX_NODES, MachineError};
use std::fmt;
use std::str::FromStr;

/// How many parts a machine of equal packages has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Packages.
    pub packages: u32,
    /// Cores of a package.
    pub cores: u32,
    /// Threads of a core.
    pub threads: u32,
    /// Last-level caches of a package; 0 if none is reported.
    pub llcs: u32,
    /// NUMA nodes of a package.
    pub nodes: u32,
}

/// Why a text does not name a machine of equal packages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// It is not of the form.
    #[error(
        "`{0}` is not of the form PACKAGESxCORESxTHREADS, such as 2x64x2, or with the last-level caches and \
         NUMA nodes of each package 2x96x2:llcs=12,nodes=4"
    )]
    Form(String),
    /// There is no machine without this part.
    #[error("a machine of 0 {0} does not exist; at least 1 is needed")]
    Zero(&'static str),
    /// The machine is larger than Linux allows.
    #[error(transparent)]
    TooLarge(MachineError),
    /// Cores do not divide evenly.
    #[error("the {cores} cores of a package do not divide evenly among {parts} {what}; {advice} would do")]
    Uneven {
        /// Cores of a package.
        cores: u32,
        /// The number of parts.
        parts: u32,
        /// The parts.
        what: &'static str,
        /// Numbers of them that fit.
        advice: String,
    },
    /// Caches do not divide evenly.
    #[error(
        "the {llcs} last-level caches of a package do not divide evenly among its {nodes} NUMA nodes; {advice} \
         would do"
    )]
    SplitCaches {
        /// Caches of a package.
        llcs: u32,
        /// Its NUMA nodes.
        nodes: u32,
        /// Numbers of caches that fit.
        advice: String,
    },
}

impl Shape {
    /// Packages that are one NUMA node with one last-level cache each.
    pub const fn new(packages: u32, cores: u32, threads: u32) -> Self {
        Self { packages, cores, threads, llcs: 1, nodes: 1 }
    }

    /// With as many last-level caches and NUMA nodes in each package.
    pub const fn split(self, llcs: u32, nodes: u32) -> Self {
        Self { llcs, nodes, ..self }
    }

    /// Whether a text means to be one, rather than the name of a preset or a file: a number, an `x`, a number.
    pub fn is_meant_by(text: &str) -> bool {
        let behind_number = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let digit_follows = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
        let starts_so =
            behind_number.len() < text.len() && behind_number.strip_prefix('x').is_some_and(digit_follows);
        starts_so && !text.contains('/') && !text.ends_with(".toml")
    }

    /// Checks what the text form promises: bounds, and parts of equal size.
    fn check(&self) -> Result<(), ShapeError> {
        let parts = [
            ("packages", self.packages),
            ("cores", self.cores),
            ("threads", self.threads),
            ("NUMA nodes", self.nodes),
        ];
        if let Some((what, _)) = parts.iter().find(|(_, number)| *number == 0) {
            return Err(ShapeError::Zero(what));
        }
        let product =
            |numbers: &[u32]| numbers.iter().fold(1_usize, |all, &n| all.saturating_mul(n as usize));
        let cpus = product(&[self.packages, self.cores, self.threads]);
        if cpus > MAX_CPUS {
            return Err(ShapeError::TooLarge(MachineError::TooManyCpus(cpus)));
        }
        let nodes = product(&[self.packages, self.nodes]);
        if nodes > MAX_NODES {
            return Err(ShapeError::TooLarge(MachineError::TooManyNodes(nodes)));
        }
        let cores = self.cores;
        for (what, parts) in [("NUMA nodes", self.nodes), ("last-level caches", self.llcs.max(1))] {
            if !cores.is_multiple_of(parts) {
                let advice = nearest(parts, 1..=cores, |parts| cores.is_multiple_of(parts));
                return Err(ShapeError::Uneven { cores, parts, what, advice });
            }
        }
        let (llcs, nodes) = (self.llcs, self.nodes);
        if !llcs.is_multiple_of(nodes) {
            let fits = |llcs: u32| llcs.is_multiple_of(nodes) && cores.is_multiple_of(llcs);
            return Err(ShapeError::SplitCaches { llcs, nodes, advice: nearest(llcs, 1..=cores, fits) });
        }
        Ok(())
    }
}

/// The numbers that fit next below and next above one that does not, in words. The bounds of CPUs bound the
/// range, too.
fn nearest(number: u32, range: std::ops::RangeInclusive<u32>, fits: impl Fn(u32) -> bool) -> String {
    let below = range.clone().rev().find(|&other| other < number && fits(other));
    let above = range.clone().find(|&other| other > number && fits(other));
    match (below, above) {
        (Some(below), Some(above)) => format!("{below} or {above}"),
        (Some(one), None) | (None, Some(one)) => one.to_string(),
        (None, None) => "1".to_owned(),
    }
}

impl FromStr for Shape {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Self, ShapeError> {
        let wrong = || ShapeError::Form(text.chars().take(64).collect());
        // `u32::from_str` would take a sign, too.
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse::<u32>().map_err(|_| wrong()),
            false => Err(wrong()),
        };
        let (counts, parts) = match text.split_once(':') {
            None => (text, None),
            Some((counts, parts)) => (counts, Some(parts)),
        };
        let counts = counts.split('x').map(number).collect::<Result<Vec<_>, _>>()?;
        let [packages, cores, threads] = counts[..] else {
            return Err(wrong());
        };
        let (mut llcs, mut nodes) = (None, None);
        for part in parts.into_iter().flat_map(|parts| parts.split(',')) {
            let (slot, digits) = match part.split_once('=') {
                Some(("llcs", digits)) => (&mut llcs, digits),
                Some(("nodes", digits)) => (&mut nodes, digits),
                _ => return Err(wrong()),
            };
            if slot.replace(number(digits)?).is_some() {
                return Err(wrong());
            }
        }
        let nodes = nodes.unwrap_or(1);
        let shape = Self::new(packages, cores, threads).split(llcs.unwrap_or(nodes), nodes);
        shape.check()?;
        Ok(shape)
    }
}

/// The shortest text that is read as this shape.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packages, cores, threads, llcs, nodes } = self;
        write!(f, "{packages}x{cores}x{threads}")?;
        match (llcs == nodes, *nodes == 1) {
            (true, true) => Ok(()),
            (true, false) => write!(f, ":nodes={nodes}"),
            (false, true) => write!(f, ":llcs={llcs}"),
            (false, false) => write!(f, ":llcs={llcs},nodes={nodes}"),
        }
    }
}
