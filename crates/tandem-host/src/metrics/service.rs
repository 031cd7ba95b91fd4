//! Serves the page over HTTP on a loopback address.
//!
//! **Problem.** Every user of the machine may connect, and may send slowly, nothing, or a thousand requests
//! at once.
//!
//! **Approach.** One thread waits for all connections at once, so that no client blocks the others. There are
//! few connections: a new one replaces the one that has been idle for longest, so silent clients keep nobody
//! out. Each has a deadline for its request and for its answer. A page is generated at most once per second
//! and shared by all clients.
//!
//! **Limits.** A client that sends requests without a pause keeps this thread busy with sending, never with
//! more than one CPU.

use super::http::{Page, REQUEST_MAX, parse};
use super::{Exporter, Format};
use crate::log_entry::{Level, LogEntry};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Most connections.
pub const CONNECTIONS_MAX: usize = 64;
/// How many connections are accepted before existing ones have their turn.
const ACCEPTED_MAX: usize = 16;
/// How long a request may take.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(2);
/// How long a client may take to read the answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// How long the service waits for a client to close the connection: a client that is still sending may not
/// receive the answer otherwise.
const END_TIME_MAX: Duration = Duration::from_secs(1);
/// How long a page is reused; Prometheus asks every 5 to 60 s.
const PAGE_AGE_MAX: Duration = Duration::from_secs(1);
/// Pause before another attempt to listen at an address that is not available.
const BIND_PAUSE: Duration = Duration::from_secs(10);
/// Pause after the system had no room for a connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);

/// Writes lines to the log.
type Log = dyn Fn(&LogEntry) + Send;

/// The metrics at an address.
pub struct Service {
    exporter: Exporter,
    /// How long a request may take, beginning with the connection.
    request_time_max: Duration,
    connections: Vec<Connection>,
    /// In either format, with the time when it was generated.
    pages: [Option<(Instant, Arc<str>)>; 2],
}

impl Service {
    /// Begins to serve at an address. If the address is not available, logs that, and tries again until it
    /// is. Serves until the process ends.
    ///
    /// # Errors
    /// If no thread can be started for it.
    pub fn start(address: SocketAddr, exporter: Exporter, log: Box<Log>) -> io::Result<()> {
        let serve = move || {
            let listener = listen(address, BIND_PAUSE, &log);
            log(&entry(Level::Info, format!("metrics are at http://{address}/metrics")));
            let error = Self::new(exporter).serve(&listener);
            log(&entry(Level::Error, format!("metrics are no longer served: {error}")));
        };
        thread::Builder::new().name("metrics".into()).spawn(serve).map(drop)
    }

    fn new(exporter: Exporter) -> Self {
        Self { exporter, request_time_max: REQUEST_TIME_MAX, connections: Vec::new(), pages: [None, None] }
    }

    /// Serves until the system reports an error.
    fn serve(mut self, listener: &TcpListener) -> io::Error {
        if let Err(error) = listener.set_nonblocking(true) {
            return error;
        }
        loop {
            if let Err(error) = self.serve_once(listener) {
                return error;
            }
        }
    }

    /// Waits until there is something to do, and does it.
    fn serve_once(&mut self, listener: &TcpListener) -> io::Result<()> {
        let next = self.connections.iter().map(|connection| connection.deadline).min();
        // Rounded up, so that it does not wake before the deadline.
        let wait = next.map(|next| next.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
        let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
        fds.extend(self.connections.iter().map(|one| PollFd::new(&one.stream, one.stage.waits_for())));
        match poll(&mut fds, wait.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut are_ready = fds.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>().into_iter();
        let is_new = are_ready.next().unwrap_or(false);
        let now = Instant::now();
        for mut connection in std::mem::take(&mut self.connections) {
            let is_ready = are_ready.next().unwrap_or(false);
            if self.advance(&mut connection, is_ready, now) {
                self.connections.push(connection);
            }
        }
        if is_new {
            self.accept(listener, now);
        }
        Ok(())
    }

    /// Takes new connections.
    fn accept(&mut self, listener: &TcpListener, now: Instant) {
        for _ in 0..ACCEPTED_MAX {
            match listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    if self.connections.len() >= CONNECTIONS_MAX {
                        let longest =
                            self.connections.iter().enumerate().min_by_key(|(_, one)| one.progressed);
                        if let Some((longest, _)) = longest {
                            self.connections.swap_remove(longest);
                        }
                    }
                    let stage = Stage::Request(Vec::new());
                    let deadline = now + self.request_time_max;
                    self.connections.push(Connection { stream, deadline, progressed: now, stage });
                }
                // The client is gone already.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return thread::sleep(NO_ROOM_PAUSE),
            }
        }
    }

    /// Advances a connection as far as possible without waiting; returns whether there is more to do.
    fn advance(&mut self, connection: &mut Connection, is_ready: bool, now: Instant) -> bool {
        let is_late = now >= connection.deadline;
        match &mut connection.stage {
            Stage::Request(bytes) if is_ready => {
                let Ok(length) = read(&connection.stream, bytes) else { return false };
                if length > 0 {
                    connection.progressed = now;
                }
                match parse(bytes) {
                    Some(wanted) => self.answer(connection, wanted.page, wanted.head_only, now),
                    None if is_late => self.answer(connection, Page::TIMEOUT, false, now),
                    None => true,
                }
            }
            Stage::Request(_) if is_late => self.answer(connection, Page::TIMEOUT, false, now),
            Stage::Answer(answer) if is_ready => match answer.write(&connection.stream) {
                Ok(true) => connection.end(now),
                Ok(false) => {
                    connection.progressed = now;
                    !is_late
                }
                Err(_) => false,
            },
            // What a client still sends is discarded.
            Stage::End if is_ready => read(&connection.stream, &mut Vec::new()).is_ok() && !is_late,
            Stage::Request(_) | Stage::Answer(_) | Stage::End => !is_late,
        }
    }

    fn answer(&mut self, connection: &mut Connection, page: Page, head_only: bool, now: Instant) -> bool {
        let body: Arc<str> = match page {
            Page::Metrics(format) => self.page(format, now),
            Page::Text(_, text) => text.into(),
        };
        let head = page.head(body.len());
        let mut answer = Answer { head, body: if head_only { "".into() } else { body }, written: 0 };
        connection.deadline = now + ANSWER_TIME_MAX;
        match answer.write(&connection.stream) {
            Ok(true) => connection.end(now),
            Ok(false) => {
                connection.stage = Stage::Answer(answer);
                true
            }
            Err(_) => false,
        }
    }

    fn page(&mut self, format: Format, now: Instant) -> Arc<str> {
        let kept = &mut self.pages[format as usize];
        match kept {
            Some((made, page)) if now.saturating_duration_since(*made) < PAGE_AGE_MAX => page.clone(),
            _ => {
                let page: Arc<str> = self.exporter.page(format).into();
                *kept = Some((now, page.clone()));
                page
            }
        }
    }
}

fn entry(level: Level, text: String) -> LogEntry {
    LogEntry::new(level, "metrics", text)
}

/// Listens at an address, as soon as it is available.
fn listen(address: SocketAddr, pause: Duration, log: &Log) -> TcpListener {
    let mut is_told = false;
    loop {
        match TcpListener::bind(address) {
            Ok(listener) => return listener,
            Err(error) if !is_told => {
                let pause_s = BIND_PAUSE.as_secs();
                let text =
                    format!("metrics cannot be served at {address}: {error}; trying again every {pause_s} s");
                log(&entry(Level::Warning, text));
                is_told = true;
            }
            Err(_) => {}
        }
        thread::sleep(pause);
    }
}

/// A client.
struct Connection {
    stream: TcpStream,
    /// When it is dropped.
    deadline: Instant,
    /// When it last made progress.
    progressed: Instant,
    stage: Stage,
}

impl Connection {
    /// Announces the end of the answer, and waits for the client to close; returns whether it still has to.
    fn end(&mut self, now: Instant) -> bool {
        self.deadline = now + END_TIME_MAX;
        self.progressed = now;
        self.stage = Stage::End;
        self.stream.shutdown(Shutdown::Write).is_ok()
    }
}

/// The progress of a connection.
enum Stage {
    /// The part of the request that has arrived.
    Request(Vec<u8>),
    /// The answer to send.
    Answer(Answer),
    /// Everything is sent.
    End,
}

impl Stage {
    fn waits_for(&self) -> PollFlags {
        match self {
            Self::Request(_) | Self::End => PollFlags::IN,
            Self::Answer(_) => PollFlags::OUT,
        }
    }
}

/// An answer, and how much of it is written.
struct Answer {
    head: String,
    body: Arc<str>,
    written: usize,
}

impl Answer {
    /// Writes as much as the socket accepts; returns whether that was all.
    fn write(&mut self, mut stream: &TcpStream) -> io::Result<bool> {
        loop {
            let rest = match self.head.as_bytes().get(self.written..) {
                Some(head) if !head.is_empty() => head,
                _ => &self.body.as_bytes()[self.written - self.head.len()..],
            };
            if rest.is_empty() {
                return Ok(true);
            }
            match stream.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => self.written += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reads once, at most the rest of a request; returns the number of bytes.
///
/// # Errors
/// If the client has closed the connection, or it broke.
fn read(mut stream: &TcpStream, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let mut buffer = [0; REQUEST_MAX];
    let room = REQUEST_MAX - bytes.len();
    match stream.read(&mut buffer[..room]) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(length) => {
            bytes.extend_from_slice(&buffer[..length]);
            Ok(length)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
