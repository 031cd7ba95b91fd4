//! `tandemd helper`: what the processes with rights answer, and what they do not.

use assert_cmd::cargo::cargo_bin;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

struct Helper(Child);

impl Helper {
    fn start(role: &str) -> Self {
        let mut command = Command::new(cargo_bin("tandemd"));
        command.args(["helper", role]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    fn ask(&mut self, question: &Value) -> Option<Vec<u8>> {
        writeln!(self.0.stdin.as_mut().unwrap(), "{question}").unwrap();
        let output = self.0.stdout.as_mut().unwrap();
        let mut length = [0; 8];
        output.read_exact(&mut length).unwrap();
        let length = u64::from_ne_bytes(length);
        (length != u64::MAX).then(|| {
            let mut bytes = vec![0; length as usize];
            output.read_exact(&mut bytes).unwrap();
            bytes
        })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success(), "it ends when nobody can ask any more");
    }
}

#[test]
fn a_broker_tells_three_files_of_a_process_and_no_other_files() {
    let own = format!("/proc/{}", std::process::id());
    let read = |process: &str, what: Value| json!({"Read": {"process": process, "what": what}});
    let mut broker = Helper::start("broker");
    let arguments = broker.ask(&read(&own, json!({"OfProcess": "Cmdline"})));
    assert_eq!(arguments, fs::read("/proc/self/cmdline").ok());
    assert!(broker.ask(&read(&own, json!({"OfProcess": "Maps"}))).is_some_and(|maps| maps.len() > 1000));

    let user = nix::unistd::getuid().as_raw();
    let named =
        |start: &str, path: &str, user: u32| json!({"Named": {"start": start, "path": path, "user": user}});
    assert_eq!(broker.ask(&read(&own, named("/", "etc/passwd", user))), None, "nobody has named it");
    let mut tail = Command::new("tail").args(["-f", "/etc/passwd"]).stdout(Stdio::null()).spawn().unwrap();
    let other = format!("/proc/{}", tail.id());
    while !fs::read(format!("{other}/cmdline")).unwrap().starts_with(b"tail") {}
    let passwd = broker.ask(&read(&other, named("/", "etc/passwd", user)));
    tail.kill().unwrap();
    tail.wait().unwrap();
    assert_eq!(passwd, fs::read("/etc/passwd").ok(), "all may read it");
    for (process, what) in [
        ("/etc", json!({"OfProcess": "Maps"})),
        ("/proc/self", json!({"OfProcess": "Maps"})),
        (&own, named("/", "etc/passwd", user + 1)),
        (&own, named("/etc", "passwd", user)),
        (&own, named(&format!("{own}/fd"), "0", user)),
        (&own, named("/", "proc/version", user)),
    ] {
        let question = read(process, what);
        assert_eq!(broker.ask(&question), None, "{question}");
    }
    assert_eq!(broker.ask(&json!({"VcpusOf": std::process::id()})).as_deref(), Some(&b"[]"[..]));
    assert_eq!(broker.ask(&json!({"HasCookie": std::process::id()})).as_deref(), Some(&b"false"[..]));
}

#[test]
fn a_mover_tells_where_pages_are() {
    let memory = vec![1_u8; 1 << 14];
    let mut mover = Helper::start("mover");
    let question = json!({"pid": std::process::id(), "addresses": [memory.as_ptr() as u64, 0], "node": null});
    let answer: Value = serde_json::from_slice(&mover.ask(&question).unwrap()).unwrap();
    // A kernel without NUMA has no such call.
    if answer["error"].is_null() {
        let efault = -14;
        assert!(answer["statuses"][0].as_i64().is_some_and(|node| node >= 0), "{answer}");
        assert_eq!(answer["statuses"][1], efault, "{answer}");
    }
}

#[test]
fn nonsense_has_no_answer_and_ends_nobody() {
    for role in ["reader", "broker", "mover"] {
        let mut helper = Helper::start(role);
        let long = json!({"Read": {"process": "/proc/1", "what": {"Named": {"start": "/", "path": "\u{1}".repeat(1 << 18), "user": 0}}}});
        for nonsense in [json!({}), json!([1]), json!("Write"), json!({"GiveCookie": 1}), long] {
            assert_eq!(helper.ask(&nonsense), None, "{role}");
        }
    }
}
