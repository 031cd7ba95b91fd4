//! Reading of bytes that a stranger wrote: each step checks that there is enough, and names where there is
//! not.

use crate::error::TraceError;

/// Bytes with a position. Numbers are little-endian.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    pub fn new(all: &'a [u8]) -> Self {
        Self { all, at: 0 }
    }

    /// At a position of the same bytes.
    ///
    /// # Errors
    /// If it is after their end.
    pub fn at(all: &'a [u8], at: u64) -> Result<Self, TraceError> {
        match usize::try_from(at) {
            Ok(at) if at <= all.len() => Ok(Self { all, at }),
            _ => Err(TraceError::damaged(all.len(), format!("it refers to byte {at}, after its end"))),
        }
    }

    pub fn position(&self) -> usize {
        self.at
    }

    pub fn left(&self) -> usize {
        self.all.len() - self.at
    }

    pub fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: u64) -> Result<&'a [u8], TraceError> {
        let taken = usize::try_from(count).ok().and_then(|count| self.all[self.at..].get(..count));
        let Some(taken) = taken else {
            return Err(TraceError::damaged(
                self.at,
                format!("{count} bytes are needed, {} left", self.left()),
            ));
        };
        self.at += taken.len();
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TraceError> {
        Ok(self.take(N as u64)?.try_into().expect("as many bytes were taken"))
    }

    pub fn u8(&mut self) -> Result<u8, TraceError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, TraceError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, TraceError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, TraceError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number of seven bits a byte, the lowest first, as Thrift, Parquet and Protocol Buffers write it.
    pub fn varint(&mut self) -> Result<u64, TraceError> {
        let start = self.at;
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(TraceError::damaged(start, "a number has more than 64 bits"))
    }

    /// A signed number, of which [`Bytes::varint`] has the sign in its lowest bit.
    pub fn zigzag(&mut self) -> Result<i64, TraceError> {
        let number = self.varint()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// The bytes before the next zero, after which it goes on.
    pub fn text(&mut self) -> Result<&'a [u8], TraceError> {
        let rest = &self.all[self.at..];
        let Some(length) = rest.iter().position(|&byte| byte == 0) else {
            return Err(TraceError::damaged(self.at, "a text does not end"));
        };
        self.at += length + 1;
        Ok(&rest[..length])
    }
}

/// Appends a number as [`Bytes::varint`] reads it.
pub(crate) fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a number as [`Bytes::zigzag`] reads it.
pub(crate) fn push_zigzag(out: &mut Vec<u8>, number: i64) {
    push_varint(out, (number << 1 ^ number >> 63) as u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(unsigned: u64, signed: i64, small in 0..300_u64) {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, unsigned);
            push_varint(&mut bytes, small);
            push_zigzag(&mut bytes, signed);
            let mut read = Bytes::new(&bytes);
            prop_assert_eq!(read.varint(), Ok(unsigned));
            prop_assert_eq!(read.varint(), Ok(small));
            prop_assert_eq!(read.zigzag(), Ok(signed));
            prop_assert!(read.is_empty());
        }
    }

    #[test]
    fn what_is_not_there_is_an_error_with_its_place() {
        let mut bytes = Bytes::new(&[1, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]);
        assert_eq!(bytes.u16(), Ok(0x201));
        assert_eq!(
            bytes.clone().take(u64::MAX).unwrap_err().to_string(),
            format!("is damaged at byte 2: {} bytes are needed, 10 left", u64::MAX)
        );
        assert_eq!(
            bytes.varint().unwrap_err().to_string(),
            "is damaged at byte 2: a number has more than 64 bits"
        );
        assert_eq!(
            Bytes::new(b"ab").text().unwrap_err().to_string(),
            "is damaged at byte 0: a text does not end"
        );
        assert!(Bytes::at(b"ab", 3).is_err());
    }
}
