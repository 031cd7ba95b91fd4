//! Where a trace is written.

use std::io::{self, Write};

/// A writer that keeps its first error, because an observer cannot return it, and writes nothing after it.
pub(super) struct Output<W> {
    writer: W,
    error: Option<io::Error>,
}

impl<W: Write> Output<W> {
    pub fn new(writer: W) -> Self {
        Self { writer, error: None }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        if self.error.is_none() {
            self.error = self.writer.write_all(bytes).err();
        }
    }

    /// The writer, unless there was an error.
    pub fn finish(self) -> io::Result<W> {
        self.error.map_or(Ok(self.writer), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes some bytes and is full then.
    struct Disk {
        free: usize,
        attempts: usize,
    }

    impl Write for &mut Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.attempts += 1;
            self.free = self.free.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nothing_is_written_after_the_first_error() {
        let mut disk = Disk { free: 5, attempts: 0 };
        let mut output = Output::new(&mut disk);
        for _ in 0..4 {
            output.write(b"1234");
        }
        assert_eq!(output.finish().err().map(|error| error.kind()), Some(io::ErrorKind::StorageFull));
        assert_eq!(disk.attempts, 2);
    }
}
