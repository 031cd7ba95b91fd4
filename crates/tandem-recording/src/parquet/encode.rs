//! Encodings of the values of a page.

use super::delta::pack;
use crate::bytes::push_varint;

/// `Type` of `parquet.thrift`.
pub mod physical {
    pub const INT32: i32 = 1;
    pub const INT64: i32 = 2;
    pub const DOUBLE: i32 = 5;
    pub const BYTE_ARRAY: i32 = 6;
}

/// `Encoding` of `parquet.thrift`.
pub mod encoding {
    pub const PLAIN: i32 = 0;
    pub const RLE: i32 = 3;
    pub const DELTA_BINARY_PACKED: i32 = 5;
    pub const RLE_DICTIONARY: i32 = 8;
}

/// Bits of the numbers of a dictionary with so many words; at least one, as readers expect.
pub const fn bits_for(words: usize) -> u8 {
    match words {
        0..=2 => 1,
        more => (usize::BITS - (more - 1).leading_zeros()) as u8,
    }
}

/// Appends texts as the page of a dictionary has them.
pub fn texts<'a>(texts: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
    for text in texts {
        out.extend((text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    }
}

/// Appends numbers of so many bits as one run in groups of eight, of which the last one is filled up with zeros.
pub fn packed_run(numbers: impl ExactSizeIterator<Item = u64>, bits: u8, out: &mut Vec<u8>) {
    let groups = numbers.len().div_ceil(8);
    push_varint(out, (groups as u64) << 1 | 1);
    pack(numbers.chain(std::iter::repeat(0)).take(8 * groups), bits, out);
}

/// Appends which values of a column there are, as the page of a column that may lack some begins.
pub fn presence(is_there: impl ExactSizeIterator<Item = bool>, out: &mut Vec<u8>) {
    let mut levels = Vec::new();
    packed_run(is_there.map(u64::from), 1, &mut levels);
    out.extend((levels.len() as u32).to_le_bytes());
    out.extend(levels);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_dictionary_have_as_many_bits_as_they_need() {
        for (words, bits) in [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (256, 8), (257, 9)] {
            assert_eq!(bits_for(words), bits, "{words}");
        }
    }

    #[test]
    fn bytes_are_those_of_the_specification() {
        // `Encodings.md`, "Run Length Encoding / Bit-Packing Hybrid": 0 to 7 in three bits.
        let mut bytes = Vec::new();
        packed_run((0..8_u64).collect::<Vec<_>>().into_iter(), 3, &mut bytes);
        assert_eq!(bytes, [1 << 1 | 1, 0b1000_1000, 0b1100_0110, 0b1111_1010]);
        // Definition levels have their length before them.
        bytes.clear();
        presence([true, false, true].into_iter(), &mut bytes);
        assert_eq!(bytes, [2, 0, 0, 0, 1 << 1 | 1, 0b101]);
        bytes.clear();
        texts(["ab", ""].into_iter(), &mut bytes);
        assert_eq!(bytes, [2, 0, 0, 0, b'a', b'b', 0, 0, 0, 0]);
    }
}
