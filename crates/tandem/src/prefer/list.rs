//! Lists of CPUs or nodes, as taskset takes them: `0-3,8`, and with a step, `0-7:2`.

use std::str::FromStr;
use tandem_machine::{MAX_NUMBER, parse_cpulist};

/// Numbers in ascending order, each once; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List(pub Vec<u32>);

impl FromStr for List {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Parts may name the same numbers again and again.
        let mut is_named = vec![false; MAX_NUMBER as usize + 1];
        for part in text.split(',') {
            let (range, step) = part.split_once(':').unwrap_or((part, "1"));
            let range = parse_cpulist(range).map_err(|error| error.to_string())?;
            let step: usize = step.parse().ok().filter(|&step| step > 0).ok_or_else(|| {
                format!("`{part:.40}` has no step such as that of 0-7:2, which is every second from 0 to 7")
            })?;
            for number in range.into_iter().step_by(step) {
                is_named[number as usize] = true;
            }
        }
        let numbers: Vec<u32> =
            (0..).zip(is_named).filter_map(|(number, is_named)| is_named.then_some(number)).collect();
        match numbers.is_empty() {
            true => Err("it names none; a list looks like 0-3,8 or 0-7:2".into()),
            false => Ok(Self(numbers)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists_as_taskset_does() {
        let cases: [(&str, &[u32]); 4] =
            [("3", &[3]), ("0-3,8", &[0, 1, 2, 3, 8]), ("0-7:2", &[0, 2, 4, 6]), ("4,0-6:3", &[0, 3, 4, 6])];
        for (text, expected) in cases {
            assert_eq!(text.parse(), Ok(List(expected.to_vec())), "{text}");
        }
    }

    #[test]
    fn refuses_what_names_none() {
        for text in ["", ",", " "] {
            let error = text.parse::<List>().unwrap_err();
            assert_eq!(error, "it names none; a list looks like 0-3,8 or 0-7:2", "{text:?}");
        }
        for text in ["a", "3-1", "0-7:0", "0-7:", "0-7:x", "-1", "99999999"] {
            assert!(text.parse::<List>().is_err(), "{text:?}");
        }
    }
}
