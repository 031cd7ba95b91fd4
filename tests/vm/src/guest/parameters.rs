//! The machine's input to the guest: parameters on the kernel's command line, which the kernel itself
//! ignores.

use anyhow::{Context, Result};
use std::fmt;

const LEG: &str = "vm.leg=";
const CASES: &str = "vm.cases=";
const CHURN: &str = "vm.churn_s=";
const OBJECT: &str = "vm.object=";

/// What to do in the guest.
#[derive(Debug, Default, PartialEq)]
pub struct Parameters {
    /// The leg that this is.
    pub leg: String,
    /// Its cases to run; none: all.
    pub cases: Vec<String>,
    /// Length of the churn, seconds.
    pub churn_s: u64,
    /// The scheduler of cases that take any, by the name of its object file.
    pub object: Option<String>,
}

impl Parameters {
    /// Finds the parameters in a command line of the kernel.
    pub fn parse(command_line: &str) -> Result<Self> {
        let value = |key| command_line.split_whitespace().find_map(|word| word.strip_prefix(key));
        Ok(Self {
            leg: value(LEG).with_context(|| format!("no {LEG} on the kernel's command line"))?.to_owned(),
            cases: value(CASES).map_or_else(Vec::new, |names| names.split(',').map(str::to_owned).collect()),
            churn_s: value(CHURN)
                .and_then(|seconds| seconds.parse().ok())
                .with_context(|| format!("no {CHURN} with a number on the kernel's command line"))?,
            object: value(OBJECT).map(str::to_owned),
        })
    }
}

impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LEG}{} {CHURN}{}", self.leg, self.churn_s)?;
        if !self.cases.is_empty() {
            write!(f, " {CASES}{}", self.cases.join(","))?;
        }
        self.object.iter().try_for_each(|name| write!(f, " {OBJECT}{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_survive_the_command_line() {
        for cases in [&[][..], &["boots"], &["boots", "ends"]] {
            let cases = cases.iter().map(|&name| name.to_owned()).collect();
            let mut parameters = Parameters { leg: "base".into(), cases, churn_s: 60, object: None };
            for object in [None, Some("fifo".to_owned())] {
                parameters.object = object;
                let line = format!("console=ttyS0 {parameters} quiet\n");
                assert_eq!(Parameters::parse(&line).unwrap(), parameters);
            }
        }
        assert!(Parameters::parse("console=ttyS0 vm.leg=base").is_err());
    }
}
