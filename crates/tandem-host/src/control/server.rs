//! Accepts connections, a thread each, and answers their requests.

use super::events::Events;
use super::peer::Peer;
use super::permission::permit;
use super::protocol::{Answer, ErrorKind, ErrorTold, LINE_MAX, Request, WantedPlace, Whom};
use super::requests::RequestCounts;
use crate::log_entry::LogEntry;
use std::collections::HashMap;
use std::fmt::Display;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tandem_file::shown::escape_json;
use tandem_machine::format_cpulist;
use tandem_settings::Asker;

/// Most connections of one user, including its subordinate users; root's do not count.
pub const CONNECTIONS_OF_USER_MAX: usize = 16;
/// Most connections of all users.
pub const CONNECTIONS_MAX: usize = 256;
/// A connection without a complete request for this long is closed.
pub const IDLE_MAX: Duration = Duration::from_secs(60);
/// A client that does not read its answer for this long is dropped.
const WRITE_MAX: Duration = Duration::from_secs(5);
/// Pause after each answer to a user other than root, so that no user keeps the agent busy, or the scheduler
/// with new preferences.
const USER_PAUSE: Duration = Duration::from_millis(2);
/// Pause after the system had no room for a connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);

/// Executes requests that are permitted.
pub trait Backend: Send + Sync {
    /// The answer to a request, on behalf of `asker`.
    fn answer(&self, asker: Asker, request: Request) -> Answer;
}

/// Writes the log.
type Log = dyn Fn(&LogEntry) + Send + Sync;

/// The service on a socket.
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    backend: Box<dyn Backend>,
    users_may_steer: bool,
    is_reader: fn(&Peer) -> bool,
    log: Box<Log>,
    refused: Mutex<Events>,
    done: Mutex<Events>,
    counts: RequestCounts,
    /// By the user that they count towards.
    connections: Mutex<HashMap<u32, usize>>,
}

impl Server {
    /// Begins to serve on a socket at `path`, and replaces one that an earlier process left there. Serves
    /// until the process ends. `users_may_steer`: users other than root may set preferences of their own
    /// tasks and cgroups.
    ///
    /// # Errors
    /// If no socket can be created there.
    pub fn start(
        path: &Path,
        backend: Box<dyn Backend>,
        users_may_steer: bool,
        log: Box<Log>,
    ) -> io::Result<Self> {
        Self::start_with(path, backend, users_may_steer, log, Peer::is_reader)
    }

    fn start_with(
        path: &Path,
        backend: Box<dyn Backend>,
        users_may_steer: bool,
        log: Box<Log>,
        is_reader: fn(&Peer) -> bool,
    ) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        // Every user may connect; permissions are checked per request.
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
        let shared = Arc::new(Shared {
            backend,
            users_may_steer,
            is_reader,
            log,
            refused: Mutex::new(Events::new("refused", "request-refused")),
            done: Mutex::new(Events::new("preference set by", "preference-set")),
            counts: RequestCounts::default(),
            connections: Mutex::default(),
        });
        let server = Self { shared: shared.clone() };
        thread::Builder::new().name("listener".into()).spawn(move || listen(&listener, &shared))?;
        Ok(server)
    }

    /// The counts of requests.
    pub fn counts(&self) -> RequestCounts {
        self.shared.counts.clone()
    }

    /// Writes due entries to the log; to be called every few seconds.
    pub fn log_due(&self) {
        for events in [&self.shared.refused, &self.shared.done] {
            let lines = locked(events).due(Instant::now());
            lines.iter().for_each(|entry| (self.shared.log)(entry));
        }
    }
}

fn listen(listener: &UnixListener, shared: &Arc<Shared>) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => take(stream, shared),
            Err(_) => thread::sleep(NO_ROOM_PAUSE),
        }
    }
}

/// Gives a new connection a thread of its own, or refuses it.
fn take(stream: UnixStream, shared: &Arc<Shared>) {
    let Ok(peer) = Peer::of(&stream) else { return };
    if stream.set_write_timeout(Some(WRITE_MAX)).is_err() {
        return;
    }
    let Some(place) = ConnectionPlace::take(&peer, shared) else {
        let why = format!(
            "too many connections: {CONNECTIONS_OF_USER_MAX} are allowed per user, {CONNECTIONS_MAX} in all"
        );
        shared.counts.count_turned_away();
        shared.note(&shared.refused, &peer, &why);
        // The answer fits the socket's buffer, so this thread does not wait.
        let _ = write(&stream, &error(ErrorKind::Busy, why));
        return;
    };
    // Without a thread, the connection and its place are dropped.
    let _ = thread::Builder::new().name("connection".into()).spawn(move || {
        // An error means that the client is gone, or silent for too long.
        let _ = serve(&stream, &peer, &place.shared);
    });
}

fn serve(stream: &UnixStream, peer: &Peer, shared: &Shared) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        read_line(&mut reader, &mut line, Instant::now() + IDLE_MAX)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.len() > LINE_MAX {
            let why = format!("a request may have at most {LINE_MAX} bytes");
            shared.note_refusal(peer, &why);
            return write(stream, &error(ErrorKind::BadRequest, why));
        }
        write(stream, &answer(&line, peer, shared))?;
        if !peer.is_root() {
            thread::sleep(USER_PAUSE);
        }
    }
}

/// Reads to the end of a line, or one byte more than a line may have; not beyond the deadline, however slowly
/// bytes arrive.
fn read_line(reader: &mut BufReader<&UnixStream>, line: &mut Vec<u8>, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        reader.get_ref().set_read_timeout(Some(left))?;
        let bytes = match reader.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let room = LINE_MAX + 1 - line.len();
        let end = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let length = end.min(room);
        line.extend_from_slice(&bytes[..length]);
        reader.consume(length);
        if length == 0 || line.len() > LINE_MAX || line.ends_with(b"\n") {
            return Ok(());
        }
    }
}

fn answer(line: &[u8], peer: &Peer, shared: &Shared) -> Answer {
    let request: Request = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(why) => {
            let why = format!("no such request: {why}");
            shared.note_refusal(peer, &why);
            return error(ErrorKind::BadRequest, why);
        }
    };
    match permit(peer, &request, shared.users_may_steer, shared.is_reader) {
        Ok(asker) => {
            let change = change_of(&request);
            let answer = shared.backend.answer(asker, request);
            if let (Some(change), Answer::Done) = (change, &answer) {
                shared.counts.count_change();
                shared.note(&shared.done, peer, &change);
            }
            if let Answer::Error(ErrorTold { kind: ErrorKind::Refused, message }) = &answer {
                shared.note_refusal(peer, message);
            }
            answer
        }
        Err(refusal) => {
            shared.note_refusal(peer, &refusal);
            error(ErrorKind::Refused, refusal)
        }
    }
}

/// What a request changes, if anything.
fn change_of(request: &Request) -> Option<String> {
    let Request::Prefer { whom, place, latency_critical } = request else { return None };
    let whom = match whom {
        Whom::Task(tid) => format!("thread {tid}"),
        Whom::Cgroup(path) => format!("cgroup /{}", path.display()),
    };
    let list = |numbers: &[u32]| {
        let mut numbers = numbers.to_vec();
        numbers.sort_unstable();
        numbers.dedup();
        format_cpulist(numbers)
    };
    let place = match place {
        None => "no CPUs".to_owned(),
        Some(WantedPlace::Cpus(cpus)) => format!("CPUs {}", list(cpus)),
        Some(WantedPlace::Nodes(nodes)) => format!("nodes {}", list(nodes)),
    };
    let mark = if *latency_critical { ", and is exempt from rate control" } else { "" };
    Some(format!("{whom} prefers {place}{mark}"))
}

fn error(kind: ErrorKind, message: impl ToString) -> Answer {
    Answer::Error(ErrorTold { kind, message: message.to_string() })
}

fn write(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    // An error may quote what the client sent.
    let line = escape_json(&serde_json::to_string(answer)?) + "\n";
    stream.write_all(line.as_bytes())
}

impl Shared {
    fn note_refusal(&self, peer: &Peer, why: &dyn Display) {
        self.counts.count_refusal();
        self.note(&self.refused, peer, why);
    }

    fn note(&self, events: &Mutex<Events>, peer: &Peer, what: &dyn Display) {
        let entry = locked(events).note(peer, what, Instant::now());
        if let Some(entry) = entry {
            (self.log)(&entry);
        }
    }
}

/// State that a panicking thread held is consistent: each change is one step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of the connections that a user may have; returned on drop.
struct ConnectionPlace {
    payer: u32,
    shared: Arc<Shared>,
}

impl ConnectionPlace {
    fn take(peer: &Peer, shared: &Arc<Shared>) -> Option<Self> {
        let mut connections = locked(&shared.connections);
        let of_users: usize =
            connections.iter().filter(|(payer, _)| **payer != 0).map(|(_, count)| count).sum();
        let own = connections.get(&peer.payer).copied().unwrap_or(0);
        if !peer.is_root() && (own >= CONNECTIONS_OF_USER_MAX || of_users >= CONNECTIONS_MAX) {
            return None;
        }
        connections.insert(peer.payer, own + 1);
        Some(Self { payer: peer.payer, shared: shared.clone() })
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut connections = locked(&self.shared.connections);
        if let Some(count) = connections.get_mut(&self.payer) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.payer);
            }
        }
    }
}

#[cfg(test)]
mod tests;
