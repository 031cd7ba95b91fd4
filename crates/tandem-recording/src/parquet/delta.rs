//! Parquet's encoding DELTA_BINARY_PACKED: differences of neighbours, in blocks with as many bits as the
//! largest needs.
//!
//! Source: Apache Parquet, `Encodings.md`, "Delta Encoding".

use crate::bytes::{Bytes, push_varint, push_zigzag};
use crate::error::TraceError;

/// Values of a block, as other writers choose it.
const BLOCK: usize = 128;
/// Parts of a block, each with its own number of bits.
const PARTS: usize = 4;
/// Values of a part.
const PART: usize = BLOCK / PARTS;

/// Appends the values.
pub fn encode(values: &[i64], out: &mut Vec<u8>) {
    push_varint(out, BLOCK as u64);
    push_varint(out, PARTS as u64);
    push_varint(out, values.len() as u64);
    push_zigzag(out, values.first().copied().unwrap_or(0));
    let mut last = values.first().copied().unwrap_or(0);
    let mut steps = [0; BLOCK];
    for block in values.get(1..).unwrap_or_default().chunks(BLOCK) {
        for (step, &value) in steps.iter_mut().zip(block) {
            *step = value.wrapping_sub(last);
            last = value;
        }
        let steps = &mut steps[..block.len()];
        let least = steps.iter().copied().min().expect("chunks have values");
        push_zigzag(out, least);
        let mut widths = [0; PARTS];
        for (part, width) in steps.chunks(PART).zip(&mut widths) {
            let all = part.iter().fold(0, |all, step| all | step.wrapping_sub(least) as u64);
            *width = (u64::BITS - all.leading_zeros()) as u8;
        }
        out.extend(widths);
        for (part, width) in steps.chunks(PART).zip(widths) {
            let padded = part.iter().map(|step| step.wrapping_sub(least) as u64).chain(std::iter::repeat(0));
            pack(padded.take(PART), width, out);
        }
    }
}

/// Reads exactly `count` values.
///
/// # Errors
/// If there are more or fewer of them.
pub fn decode(bytes: &[u8], count: usize) -> Result<Vec<i64>, TraceError> {
    let mut bytes = Bytes::new(bytes);
    let header = [bytes.varint()?, bytes.varint()?, bytes.varint()?];
    if header != [BLOCK as u64, PARTS as u64, count as u64] {
        return Err(TraceError::damaged(0, format!("a column of {count} values has a head of {header:?}")));
    }
    let mut last = bytes.zigzag()?;
    // Each block has a head, so the memory is at most some hundred times the size of the bytes; `count` is
    // bounded as well.
    let mut values = Vec::new();
    if count > 0 {
        values.push(last);
    }
    while values.len() < count {
        let least = bytes.zigzag()?;
        let widths = bytes.take(PARTS as u64)?;
        for &width in widths {
            if values.len() == count {
                break;
            }
            if width > 64 {
                return Err(TraceError::damaged(bytes.position(), format!("a value has {width} bits")));
            }
            let packed = bytes.take(u64::from(width) * PART as u64 / 8)?;
            let wanted = PART.min(count - values.len());
            for at in 0..wanted {
                last = last.wrapping_add(least).wrapping_add(unpack(packed, at, width) as i64);
                values.push(last);
            }
        }
    }
    match bytes.is_empty() {
        true => Ok(values),
        false => Err(TraceError::damaged(bytes.position(), "a column has more values than rows")),
    }
}

/// Appends numbers of `width` bits, the first in the lowest bits; the last byte is filled up with zeros.
pub fn pack(numbers: impl Iterator<Item = u64>, width: u8, out: &mut Vec<u8>) {
    let (mut pending, mut bits) = (0_u128, 0);
    for number in numbers {
        pending |= u128::from(number) << bits;
        bits += u32::from(width);
        while bits >= 8 {
            out.push(pending as u8);
            pending >>= 8;
            bits -= 8;
        }
    }
    if bits > 0 {
        out.push(pending as u8);
    }
}

/// The number at a position among numbers that [`pack`] has written; bits after the end are zeros.
pub fn unpack(packed: &[u8], at: usize, width: u8) -> u64 {
    let bit = at * usize::from(width);
    let rest = packed.get(bit / 8..).unwrap_or_default();
    let mut word = [0; 16];
    let length = rest.len().min(word.len());
    word[..length].copy_from_slice(&rest[..length]);
    let number = u128::from_le_bytes(word) >> (bit % 8);
    (number & ((1_u128 << width) - 1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values near each other, with some that are not.
    fn values() -> impl Strategy<Value = Vec<i64>> {
        prop::collection::vec(prop_oneof![20 => 0..1000_i64, 1 => any::<i64>()], 0..600)
    }

    proptest! {
        #[test]
        fn values_come_back(values in values()) {
            let mut bytes = Vec::new();
            encode(&values, &mut bytes);
            prop_assert_eq!(decode(&bytes, values.len()), Ok(values.clone()));
            prop_assert!(decode(&bytes, values.len() + 1).is_err());
            prop_assert!(values.is_empty() || decode(&bytes[..bytes.len() - 1], values.len()).is_err());
        }

        #[test]
        fn any_bytes_are_values_or_an_error(bytes: Vec<u8>, count in 0..1000_usize) {
            let mut with_head = Vec::new();
            encode(&[], &mut with_head);
            let _ = decode(&bytes, count);
            with_head.extend(bytes);
            let _ = decode(&with_head, count);
        }
    }

    #[test]
    fn bytes_are_those_of_the_specification() {
        // `Encodings.md`, example 1, with blocks of this size: 1, 2, 3, 4, 5 differ by 1 each.
        let mut bytes = Vec::new();
        encode(&[1, 2, 3, 4, 5], &mut bytes);
        assert_eq!(bytes, [0x80, 1, 4, 5, 2, 2, 0, 0, 0, 0]);
        // Example 2: 7, 5, 3, 1, 2, 3, 4, 5: the least difference is -2, and the others need two bits.
        bytes.clear();
        encode(&[7, 5, 3, 1, 2, 3, 4, 5], &mut bytes);
        assert_eq!(bytes[..9], [0x80, 1, 4, 8, 14, 3, 2, 0, 0]);
        assert_eq!(bytes[10..], [0b1100_0000, 0b0011_1111, 0, 0, 0, 0, 0, 0]);
    }
}
