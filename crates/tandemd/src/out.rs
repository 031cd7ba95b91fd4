//! Standard output, whose errors say that they are about it.

use std::io::{self, StdoutLock, Write};

/// Standard output. An error of a full disk, or of a device, says that it cannot be written.
pub struct Out(StdoutLock<'static>);

/// Standard output, until the value is dropped.
pub fn out() -> Out {
    Out(io::stdout().lock())
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(of_output)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(of_output)
    }
}

/// The error, of the same kind: a closed pipe is none to [`report`](crate::error::report).
pub(crate) fn of_output(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output cannot be written: {error}"))
}
