use super::*;
use crate::control::protocol::Whom;
use crate::control::{Client, ClientError};
use crate::scheduler::Status;
use std::sync::mpsc::{Receiver, channel};
use std::time::SystemTime;
use tandem_settings::{Counters, Mode};

/// A safety net against a service that does not answer: its work takes milliseconds, on a busy machine
/// seconds.
const PATIENCE: Duration = Duration::from_secs(600);

/// Counters after an hour of operation.
fn counters() -> Counters {
    let named: Vec<_> = Counters::names().zip(1..).map(|(name, value)| (name.to_owned(), value)).collect();
    named.try_into().unwrap()
}

/// Answers with the status and without VMs, and refuses everything else.
struct Fixed;

impl Backend for Fixed {
    fn answer(&self, asker: Asker, request: Request) -> Answer {
        match request {
            Request::Status => Answer::Status(Box::new(Status {
                state: format!("{asker:?}"),
                mode: Mode::Host,
                since: SystemTime::UNIX_EPOCH,
                counters: counters(),
            })),
            Request::Vms => Answer::Vms(Some(Vec::new())),
            Request::Prefer { whom: Whom::Task(7), .. } => Answer::Done,
            _ => error(ErrorKind::Refused, "not yours"),
        }
    }
}

struct Served {
    folder: tempfile::TempDir,
    log: Receiver<String>,
    server: Server,
}

/// A service for which this process is root, or is not.
fn serve_as(is_reader: fn(&Peer) -> bool) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let (sender, log) = channel();
    let log_line = Box::new(move |entry: &LogEntry| sender.send(entry.text.clone()).unwrap());
    let server =
        Server::start_with(&folder.path().join("sock"), Box::new(Fixed), true, log_line, is_reader).unwrap();
    Served { folder, log, server }
}

impl Served {
    fn client(&self) -> Client {
        Client::connect_to(&self.folder.path().join("sock")).unwrap()
    }

    fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("sock")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// The answer to some bytes.
    fn answer_to(&self, bytes: &[u8]) -> String {
        let mut stream = self.raw();
        // The service may close the connection before it has read everything.
        let _ = stream.write_all(bytes);
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }
}

#[test]
fn answers_one_request_after_another() {
    let served = serve_as(|_| true);
    let client = served.client();
    for _ in 0..3 {
        let Answer::Status(status) = client.ask(&Request::Status).unwrap() else { panic!("another answer") };
        assert_eq!(status.counters, counters());
        assert_eq!(client.ask(&Request::Vms).unwrap(), Answer::Vms(Some(Vec::new())));
    }
}

#[test]
fn what_the_backend_refuses_is_an_error_and_in_the_log() {
    let served = serve_as(|_| true);
    let request = Request::PreferenceOf { whom: Whom::Task(1) };
    let error = served.client().ask(&request).unwrap_err();
    assert_eq!(error.to_string(), "not yours");
    let line = served.log.recv_timeout(PATIENCE).unwrap();
    assert!(line.starts_with("refused user ") && line.ends_with(": not yours"), "{line}");
    served.server.log_due();
    assert!(served.log.try_recv().is_err(), "nothing is due yet");
}

#[test]
fn what_is_changed_is_in_the_log() {
    let served = serve_as(|_| true);
    let request = Request::Prefer {
        whom: Whom::Task(7),
        place: Some(WantedPlace::Cpus(vec![3, 0, 1])),
        latency_critical: false,
    };
    assert_eq!(served.client().ask(&request).unwrap(), Answer::Done);
    let line = served.log.recv_timeout(PATIENCE).unwrap();
    assert!(line.starts_with("preference set by user "), "{line}");
    assert!(line.ends_with(": thread 7 prefers CPUs 0-1,3"), "{line}");
}

#[test]
fn nonsense_is_answered_and_does_no_harm() {
    let served = serve_as(|_| true);
    let deep = [b"[".repeat(10_000), b"\n".to_vec()].concat();
    let cases: [&[u8]; 7] = [
        b"\n",
        b"{\n",
        b"null\n",
        b"\xff\xfe\n",
        b"{\"status\":\"",
        &deep,
        b"{\"prefer\":{\"whom\":{\"task\":1e99}}}\n",
    ];
    for bytes in cases {
        let bytes = if bytes.ends_with(b"\n") { bytes.to_vec() } else { [bytes, b"\n"].concat() };
        let answer = served.answer_to(&bytes);
        assert!(answer.starts_with(r#"{"error":{"kind":"bad_request""#), "{answer}");
    }
    served.client().ask(&Request::Status).unwrap();
}

#[test]
fn an_answer_quotes_no_control_characters() {
    let answer = serve_as(|_| true).answer_to("\"\u{85}\u{7f}\u{202e}\"\n".as_bytes());
    assert!(answer.contains("unknown variant `\\u0085\\u007f\\u202e`"), "{answer}");
}

#[test]
fn a_line_that_is_too_long_is_not_read_to_its_end() {
    let served = serve_as(|_| true);
    let answer = served.answer_to(&vec![b'x'; LINE_MAX + 1]);
    assert!(answer.contains("a request may have at most 65536 bytes"), "{answer}");
}

#[test]
fn a_socket_that_was_left_is_taken_over() {
    let served = serve_as(|_| true);
    let path = served.folder.path().join("sock");
    let again = Server::start_with(&path, Box::new(Fixed), true, Box::new(|_| {}), |_| true);
    assert!(again.is_ok());
    served.client().ask(&Request::Status).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
}

#[test]
fn places_are_limited_by_user_and_in_all_and_given_back() {
    let shared = serve_as(|_| true).server.shared;
    let peer = |user| Peer { pid: 1, user, group: user, payer: user };
    let mut held: Vec<_> =
        (0..CONNECTIONS_OF_USER_MAX).map(|_| ConnectionPlace::take(&peer(1000), &shared).unwrap()).collect();
    assert!(ConnectionPlace::take(&peer(1000), &shared).is_none());
    held.pop();
    held.push(ConnectionPlace::take(&peer(1000), &shared).unwrap());
    for user in 1001.. {
        let more: Vec<_> = std::iter::from_fn(|| ConnectionPlace::take(&peer(user), &shared)).collect();
        if more.is_empty() {
            break;
        }
        held.extend(more);
    }
    assert_eq!(held.len(), CONNECTIONS_MAX);
    let roots: Vec<_> = (0..CONNECTIONS_MAX).map(|_| ConnectionPlace::take(&peer(0), &shared)).collect();
    assert!(roots.iter().all(Option::is_some), "root is always accepted");
    drop((held, roots));
    assert!(locked(&shared.connections).is_empty());
}

#[test]
fn a_missing_service_is_reported_with_its_socket() {
    let folder = tempfile::tempdir().unwrap();
    let error = Client::connect_to(&folder.path().join("none")).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }));
    assert!(error.to_string().ends_with("; is `tandem run` running?"), "{error}");
}

#[test]
fn subordinate_users_have_together_what_one_may_have() {
    let shared = serve_as(|_| true).server.shared;
    let peer = |user| Peer { pid: 1, user, group: user, payer: 1000 };
    let held: Vec<_> = (100_000..).map_while(|user| ConnectionPlace::take(&peer(user), &shared)).collect();
    assert_eq!(held.len(), CONNECTIONS_OF_USER_MAX);
}

#[test]
fn a_request_that_comes_a_byte_at_a_time_has_a_deadline() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let writer = thread::spawn(move || {
        while there.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(1))
        }
    });
    let deadline = Instant::now() + Duration::from_millis(50);
    let mut line = Vec::new();
    let error = read_line(&mut BufReader::new(&here), &mut line, deadline).unwrap_err();
    assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
    assert!(Instant::now() >= deadline);
    drop(here);
    writer.join().unwrap();
}
