//! Messages in the wire format of Protocol Buffers.
//!
//! A message is a list of fields, each a key and a value. The key is the number of the field and the type of
//! the value; numbers are in base 128, least significant digit first, with a bit in each byte that says
//! whether more follow.
//!
//! Source: Protocol Buffers documentation, "Encoding".

/// A value in base 128.
const VARINT: u64 = 0;
/// Eight bytes, least significant first.
const FIXED64: u64 = 1;
/// A length and as many bytes.
const BYTES: u64 = 2;

/// A message under construction. Cleared and used again, it does not allocate.
#[derive(Clone, Debug, Default)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// Removes all fields, and keeps the memory.
    pub fn clear(&mut self) -> &mut Self {
        self.bytes.clear();
        self
    }

    /// What has been written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a field that is an integer, an enumeration or a boolean.
    pub fn number(&mut self, field: u64, value: u64) -> &mut Self {
        self.key(field, VARINT).varint(value)
    }

    /// Adds a field that is an integer of fixed size.
    pub fn fixed64(&mut self, field: u64, value: u64) -> &mut Self {
        self.key(field, FIXED64).bytes.extend(value.to_le_bytes());
        self
    }

    /// Adds a field that is a text.
    pub fn text(&mut self, field: u64, value: &str) -> &mut Self {
        self.bytes_field(field, value.as_bytes())
    }

    /// Adds a field that is a message.
    pub fn message(&mut self, field: u64, value: &Message) -> &mut Self {
        self.bytes_field(field, &value.bytes)
    }

    fn bytes_field(&mut self, field: u64, value: &[u8]) -> &mut Self {
        self.key(field, BYTES).varint(value.len() as u64).bytes.extend(value);
        self
    }

    fn key(&mut self, field: u64, wire_type: u64) -> &mut Self {
        self.varint(field << 3 | wire_type)
    }

    fn varint(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields to write, and the expected bytes.
    type Case = (fn(&mut Message), &'static [u8]);

    #[test]
    fn values_are_as_the_documentation_has_them() {
        let cases: [Case; 6] = [
            (|m| _ = m.number(1, 150), &[0x08, 0x96, 0x01]),
            (|m| _ = m.number(1, 0), &[0x08, 0x00]),
            (|m| _ = m.number(16, 127), &[0x80, 0x01, 0x7f]),
            (|m| _ = m.text(2, "testing"), b"\x12\x07testing"),
            (|m| _ = m.fixed64(3, 0x0102), &[0x19, 0x02, 0x01, 0, 0, 0, 0, 0, 0]),
            (|m| _ = m.message(3, Message::default().number(1, 150)), &[0x1a, 0x03, 0x08, 0x96, 0x01]),
        ];
        for (write, expected) in cases {
            let mut message = Message::default();
            write(&mut message);
            assert_eq!(message.as_bytes(), expected);
        }
    }

    #[test]
    fn the_largest_number_takes_ten_bytes() {
        let mut message = Message::default();
        message.number(1, u64::MAX);
        assert_eq!(message.as_bytes().len(), 11);
        assert_eq!(message.as_bytes()[10], 1);
    }
}
