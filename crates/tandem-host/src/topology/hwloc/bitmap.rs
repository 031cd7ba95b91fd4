//! Sets of numbers as hwloc writes them: `0x0000000f,,0xffffffff`.
//!
//! Words of 32 bits in hexadecimal, the highest first; an empty word is zero; a first word of `0xf...f` means
//! that all higher numbers are in the set, too.

use tandem_machine::MAX_NUMBER;

/// Most words that are read: enough for every number that a CPU or node may have.
const MAX_WORDS: usize = (MAX_NUMBER as usize + 1) / 32;

/// A set of CPU or node numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bitmap {
    /// The lowest word first.
    words: Vec<u32>,
    /// Whether every number above the words is in the set.
    endless: bool,
}

impl Bitmap {
    /// The set that this text describes; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (endless, text) = match text.strip_prefix("0xf...f") {
            Some("") => return Some(Self::everything()),
            Some(rest) => (true, rest.strip_prefix(',')?),
            None => (false, text),
        };
        if text.is_empty() {
            return None;
        }
        let mut words = Vec::new();
        for word in text.rsplit(',') {
            if words.len() == MAX_WORDS {
                return None;
            }
            let digits = word.trim();
            let digits = digits.strip_prefix("0x").unwrap_or(digits);
            words.push(match digits {
                "" => 0,
                _ if digits.starts_with('+') => return None,
                _ => u32::from_str_radix(digits, 16).ok()?,
            });
        }
        Some(Self { words, endless })
    }

    pub fn nothing() -> Self {
        Self { words: Vec::new(), endless: false }
    }

    pub fn everything() -> Self {
        Self { words: Vec::new(), endless: true }
    }

    /// The lowest number in the set.
    pub fn first(&self) -> Option<u32> {
        (0..=MAX_NUMBER).find(|&number| self.contains(number))
    }

    pub fn contains(&self, number: u32) -> bool {
        match self.words.get(number as usize / 32) {
            Some(word) => word >> (number % 32) & 1 == 1,
            None => self.endless,
        }
    }

    pub fn is_empty(&self) -> bool {
        !self.endless && self.words.iter().all(|&word| word == 0)
    }

    /// The size of the set; an endless one is larger than any other.
    pub fn count(&self) -> usize {
        match self.endless {
            true => usize::MAX,
            false => self.words.iter().map(|word| word.count_ones() as usize).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_hwloc_writes() {
        let cases: [(&str, &[u32], &[u32]); 6] = [
            ("0x0", &[], &[0, 31, 32, 9999]),
            ("0x00000005", &[0, 2], &[1, 3, 32]),
            ("0x00000100,0x00000001", &[0, 40], &[8, 32, 72]),
            ("0x00000001,,0x01000000", &[24, 64], &[0, 32, 56, 96]),
            ("0xf...f", &[0, 12345], &[]),
            ("0xf...f,0x00000002", &[1, 32, 12345], &[0, 2, 31]),
        ];
        for (text, inside, outside) in cases {
            let set = Bitmap::parse(text).unwrap();
            assert!(inside.iter().all(|&number| set.contains(number)), "{text}");
            assert!(!outside.iter().any(|&number| set.contains(number)), "{text}");
            assert_eq!(set.is_empty(), inside.is_empty(), "{text}");
        }
    }

    #[test]
    fn refuses_what_hwloc_does_not_write() {
        let long = ",0x1".repeat(MAX_WORDS + 1);
        for text in ["", "0xg", "0x100000000", "-1", "+1", "0xf...f0x1", "0-3", &long] {
            assert_eq!(Bitmap::parse(text), None, "{text:.40}");
        }
    }
}
