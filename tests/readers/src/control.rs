//! The service answers each line that a client sends, whatever that is, and a client reads whatever a service
//! answers, both within their limits; neither panics.
//!
//! The input is what a client sends, then what a service answers, with a byte that no text has between them;
//! another one stands for many, so that lines become too long.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use tandem_host::control::{
    Answer, Backend, Client, ClientError, ErrorKind, ErrorTold, LINE_MAX, Request, Server,
};
use tandem_settings::Asker;
use tempfile::TempDir;

const BETWEEN: u8 = 0xff;
const MANY: u8 = 0xfe;
/// Lines that are sent: who is not root waits after each.
const LINES_MAX: usize = 16;
/// Bytes that are sent: they fit the socket's buffer, so that nobody waits for this thread to read.
const SENT_MAX: usize = LINE_MAX + LINE_MAX / 4;

/// Refuses everything, and says what.
struct Refusing;

impl Backend for Refusing {
    fn answer(&self, _: Asker, request: Request) -> Answer {
        let message = same_when_read_again(&request);
        Answer::Error(ErrorTold { kind: ErrorKind::Failed, message })
    }
}

/// A service, and a place where another one would be.
struct Scene {
    folder: TempDir,
    _server: Server,
    other: UnixListener,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let server = Server::start(&folder.path().join("socket"), Box::new(Refusing), true, Box::new(|_| {}));
        let other = UnixListener::bind(folder.path().join("other"));
        Self {
            _server: server.expect("there can be a socket"),
            other: other.expect("there can be another"),
            folder,
        }
    }
}

thread_local! {
    static SCENE: Scene = Scene::new();
}

/// Reads an input, and checks what comes of it.
pub fn read(input: &[u8]) {
    let mut parts = input.splitn(2, |&byte| byte == BETWEEN).map(expanded);
    let (sent, answered) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    SCENE.with(|scene| {
        ask(scene, &sent);
        answer(scene, &answered);
    });
}

/// The text that a part of the input stands for.
fn expanded(part: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for &byte in part {
        match byte {
            MANY => text.resize(text.len() + LINE_MAX / 4, b'x'),
            byte => text.push(byte),
        }
        if text.len() > SENT_MAX {
            break;
        }
    }
    text.truncate(SENT_MAX);
    text
}

/// Every line has one answer, until one is too long.
fn ask(scene: &Scene, sent: &[u8]) {
    let lines: Vec<&[u8]> = sent.split_inclusive(|&byte| byte == b'\n').take(LINES_MAX).collect();
    let stream = UnixStream::connect(scene.folder.path().join("socket")).expect("the service is there");
    // A service that has found a line too long closes the connection.
    let _ = (&stream).write_all(&lines.concat());
    let _ = stream.shutdown(Shutdown::Write);
    let mut reader = BufReader::new(&stream);
    for line in lines {
        let mut told = String::new();
        reader.read_line(&mut told).expect("a line is answered in UTF-8");
        let kind = kind_of(&told);
        if line.len() > LINE_MAX {
            assert_eq!(kind, ErrorKind::BadRequest, "{told}");
            return;
        }
        let is_request = serde_json::from_slice::<Request>(line).is_ok();
        assert_eq!(is_request, kind != ErrorKind::BadRequest, "{told}");
    }
    assert_eq!(reader.read_line(&mut String::new()).expect("the connection is closed"), 0);
}

/// The kind of the error that is told, after a look at how it is.
fn kind_of(told: &str) -> ErrorKind {
    let line = told.strip_suffix('\n').expect("an answer is a line");
    assert!(!line.contains(char::is_control), "{line}");
    // A character that was sent is at most six in JSON.
    assert!(line.len() < 8 * LINE_MAX);
    let answer: Answer = serde_json::from_str(line).expect("an answer is JSON");
    same_when_read_again(&answer);
    match answer {
        Answer::Error(error) => error.kind,
        other => panic!("{other:?}"),
    }
}

/// A client takes what can be read as an answer, and nothing else.
fn answer(scene: &Scene, answered: &[u8]) {
    let client = Client::connect_to(&scene.folder.path().join("other")).expect("somebody is there");
    let (mut service, _) = scene.other.accept().expect("somebody has connected");
    service.write_all(answered).expect("it fits the buffer");
    let _ = service.shutdown(Shutdown::Write);
    let line = answered.split_inclusive(|&byte| byte == b'\n').next().unwrap_or_default();
    let expected = serde_json::from_slice::<Answer>(line);
    match client.ask(&Request::Status) {
        Ok(answer) => {
            same_when_read_again(&answer);
            assert_eq!(Some(answer), expected.ok());
        }
        Err(ClientError::Told(told)) => assert_eq!(Some(Answer::Error(told)), expected.ok()),
        Err(ClientError::OtherVersion { .. }) => assert!(expected.is_err()),
        Err(ClientError::Unreachable { .. }) => assert_eq!(line, b""),
    }
}

/// What a value is written as, after a look whether it is read as the same.
fn same_when_read_again<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> String {
    let text = serde_json::to_string(value).expect("it can be written");
    assert_eq!(&serde_json::from_str::<T>(&text).expect("what is written can be read"), value);
    text
}
