//! Lists of CPU or node numbers in the notation of Linux: `0-3,8,10-11`.

use std::fmt::Write;
use thiserror::Error;

/// Largest number that a list may contain. Firmware may number CPUs with gaps, so it is larger than the
/// number of CPUs allowed.
pub const MAX_NUMBER: u32 = 65_535;

/// Why a text is not a list of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{part}` is not a number or range from 0 to {MAX_NUMBER}; a list looks like 0-3,8,10-11")]
pub struct CpuListError {
    part: String,
}

/// The numbers of a list, in ascending order and each once. An empty text is an empty list.
///
/// ```
/// use tandem_machine::parse_cpulist;
/// assert_eq!(parse_cpulist("0-2,8")?, [0, 1, 2, 8]);
/// # Ok::<(), tandem_machine::CpuListError>(())
/// ```
pub fn parse_cpulist(text: &str) -> Result<Vec<u32>, CpuListError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut ranges = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (parse_number(first), parse_number(last)) {
            (Some(first), Some(last)) if first <= last => ranges.push((first, last)),
            _ => {
                return Err(CpuListError { part: part.chars().take(40).collect() });
            }
        }
    }
    // A text may repeat numbers: each counts once.
    ranges.sort_unstable();
    let mut numbers: Vec<u32> = Vec::new();
    for (first, last) in ranges {
        let unnamed = numbers.last().map_or(first, |&before| first.max(before + 1));
        numbers.extend(unnamed..=last);
    }
    Ok(numbers)
}

fn parse_number(text: &str) -> Option<u32> {
    let text = text.trim();
    let digits_only = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits_only.then(|| text.parse().ok()).flatten().filter(|&number| number <= MAX_NUMBER)
}

/// The list of these numbers, which must be in ascending order.
///
/// ```
/// use tandem_machine::format_cpulist;
/// assert_eq!(format_cpulist([0, 1, 2, 8]), "0-2,8");
/// ```
pub fn format_cpulist(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut text = String::new();
    let mut numbers = numbers.into_iter().peekable();
    while let Some(first) = numbers.next() {
        let mut last = first;
        while let Some(next) = numbers.next_if(|&next| Some(next) == last.checked_add(1)) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let _ = match last - first {
            0 => write!(text, "{comma}{first}"),
            _ => write!(text, "{comma}{first}-{last}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_lists() {
        let cases: [(&str, &[u32]); 6] = [
            ("", &[]),
            ("\n", &[]),
            ("0", &[0]),
            ("0-2,8\n", &[0, 1, 2, 8]),
            ("8, 0-1,1", &[0, 1, 8]),
            ("255-257", &[255, 256, 257]),
        ];
        for (text, numbers) in cases {
            assert_eq!(parse_cpulist(text).unwrap(), numbers, "{text:?}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_list() {
        for text in ["a", "1-", "-1", "3-1", "1,,2", "0-1-2", "+1", "0-4294967295", "65536", "0x1"] {
            assert!(parse_cpulist(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_long_text_takes_no_more_than_its_numbers() {
        let text = vec!["0-65535"; 100_000].join(",");
        assert_eq!(parse_cpulist(&text).unwrap(), (0..=MAX_NUMBER).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn ranges_may_overlap(ranges in prop::collection::vec((0..60u32, 0..9u32), 1..12)) {
            let ranges: Vec<_> = ranges.into_iter().map(|(first, more)| first..=first + more).collect();
            let parts: Vec<_> = ranges.iter().map(|range| format!("{}-{}", range.start(), range.end())).collect();
            let expected: Vec<_> = (0..70).filter(|number| ranges.iter().any(|range| range.contains(number))).collect();
            prop_assert_eq!(parse_cpulist(&parts.join(",")).unwrap(), expected);
        }

        #[test]
        fn a_formatted_list_reads_back(mut numbers in prop::collection::vec(0..300u32, 0..100)) {
            numbers.sort_unstable();
            numbers.dedup();
            prop_assert_eq!(parse_cpulist(&format_cpulist(numbers.iter().copied())).unwrap(), numbers);
        }
    }
}
