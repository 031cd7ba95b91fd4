//! The client's end of the socket.

use super::SOCKET;
use super::protocol::{Answer, ErrorKind, ErrorTold, Request};
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Longest line that a client reads, bytes: a VM takes some 600, so this is room for 25,000 of them.
const ANSWER_MAX: u64 = 16 << 20;
/// How long the service may take for an answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Why the service did not do what was asked.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No service is running.
    #[error("{}: {cause}; is `tandem run` running?", socket.display())]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// It answered with something unexpected.
    #[error("{}: the service is of another version of tandem; restart the service, or use the tandem of its version", socket.display())]
    OtherVersion {
        /// The socket.
        socket: PathBuf,
    },
    /// It refused.
    #[error("{}", .0.message)]
    Told(ErrorTold),
}

impl ClientError {
    /// The kind of a refusal; `None` for other errors.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Told(told) => Some(told.kind),
            Self::Unreachable { .. } | Self::OtherVersion { .. } => None,
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    stream: RefCell<BufReader<UnixStream>>,
}

impl Client {
    /// Connects to the service of this machine.
    ///
    /// # Errors
    /// If no service is running.
    pub fn connect() -> Result<Self, ClientError> {
        Self::connect_to(Path::new(SOCKET))
    }

    /// Connects to a service at `socket`.
    ///
    /// # Errors
    /// If no service is running.
    pub fn connect_to(socket: &Path) -> Result<Self, ClientError> {
        let connected = UnixStream::connect(socket).and_then(|stream| {
            stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
            stream.set_write_timeout(Some(ANSWER_TIME_MAX))?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => {
                Ok(Self { socket: socket.to_owned(), stream: RefCell::new(BufReader::new(stream)) })
            }
            Err(cause) => Err(ClientError::Unreachable { socket: socket.to_owned(), cause }),
        }
    }

    /// Sends a request, and waits for the answer; a refusal is an error.
    ///
    /// # Errors
    /// If the service refuses, or is gone.
    pub fn ask(&self, request: &Request) -> Result<Answer, ClientError> {
        let line = self.exchange(request);
        let line = line.map_err(|cause| ClientError::Unreachable { socket: self.socket.clone(), cause })?;
        match serde_json::from_slice(&line) {
            Ok(Answer::Error(told)) => Err(ClientError::Told(told)),
            Ok(answer) => Ok(answer),
            Err(_) => Err(self.other_version()),
        }
    }

    /// The error for an unexpected answer.
    pub fn other_version(&self) -> ClientError {
        ClientError::OtherVersion { socket: self.socket.clone() }
    }

    fn exchange(&self, request: &Request) -> io::Result<Vec<u8>> {
        let mut stream = self.stream.borrow_mut();
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        // A service that refused the connection has sent the reason, and closed it.
        let written = stream.get_mut().write_all(&line);
        line.clear();
        let length = (&mut *stream).take(ANSWER_MAX).read_until(b'\n', &mut line)?;
        match length {
            0 => Err(written.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())),
            _ => Ok(line),
        }
    }
}
