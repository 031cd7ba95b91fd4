//! What a process behind a fence can do: as root, if the tests run as root, and as a user without any privilege.
//!
//! A fence cannot be taken down, and is built by a process with one thread: each case is a process of this program, without
//! the threads of the usual harness.

use std::env;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio, exit};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tandem_fence::run::{Bounds, Broke, run};
use tandem_fence::{Duty, Limits, Reading, build};

/// A user without privileges.
const NOBODY: u32 = 65_534;
const LIMITS: Limits = Limits { cpu_s: 2, memory_bytes: 1 << 30, files: 64 };

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("inside") => inside(&arguments[1], arguments[2].parse().unwrap(), Path::new(&arguments[3])),
        // What cargo and IDEs ask of a harness.
        Some("--list") => {}
        _ => outside(),
    }
}

fn outside() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("fence");
    fs::copy(env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    for user in [None, Some(NOBODY)].into_iter().take(if is_root { 2 } else { 1 }) {
        for case in ["compiles", "computes", "spins", "grows"] {
            let (readable, secret) = (folder.path().join("readable"), folder.path().join("secret"));
            fs::create_dir_all(&readable).unwrap();
            fs::write(readable.join("open"), "open").unwrap();
            fs::write(readable.join("private"), "private").unwrap();
            fs::write(&secret, "secret").unwrap();
            fs::set_permissions(readable.join("private"), Permissions::from_mode(0o600)).unwrap();
            let mut command = Command::new(&program);
            command.args(["inside", case, &std::process::id().to_string()]).arg(folder.path());
            if let Some(user) = user {
                command.uid(user).gid(user);
            }
            let bounds =
                Bounds { output_bytes: 1 << 20, error_bytes: 1 << 16, time: Duration::from_secs(60) };
            let ended = run(&mut command, b"input", bounds, &AtomicBool::new(false)).unwrap();
            let said = String::from_utf8_lossy(&ended.errors);
            match case {
                // SIGKILL, and no signal that could be caught.
                "spins" => assert_eq!(format!("{}", ended.status), "signal: 9 (SIGKILL)", "{said}"),
                "grows" => assert!(!ended.status.success() && said.contains("allocation"), "{said}"),
                _ => assert!(ended.status.success(), "{case} as {user:?}: {}\n{said}", ended.status),
            }
            assert_eq!(fs::read(readable.join("open")).unwrap(), b"open");
            println!("{case} as {} ... ok", user.map_or("this user".into(), |user| format!("user {user}")));
        }
    }
    bounds_are_kept();
    println!("bounds are kept ... ok");
}

/// Bounds of what comes out, and of time, and the end that a caller wants.
fn bounds_are_kept() {
    let never = AtomicBool::new(false);
    let bounds = Bounds { output_bytes: 1000, error_bytes: 10, time: Duration::from_secs(30) };
    let shell = |script: &str, bounds, ended: &AtomicBool| {
        run(Command::new("/bin/sh").args(["-c", script]), b"in", bounds, ended).unwrap()
    };
    let ended = shell("cat; echo 0123456789abcdef >&2", bounds, &never);
    assert_eq!((ended.output, ended.errors, ended.broke), (b"in".to_vec(), b"0123456789".to_vec(), None));
    assert_eq!(shell("exec cat /dev/zero", bounds, &never).broke, Some(Broke::Output));
    let short = Bounds { time: Duration::from_millis(300), ..bounds };
    for script in ["exec sleep 60", "exec >&-; exec sleep 60"] {
        let begun = Instant::now();
        assert_eq!(shell(script, short, &never).broke, Some(Broke::Time), "{script}");
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    let wanted = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(200));
            wanted.store(true, Ordering::Relaxed);
        });
        assert_eq!(shell("exec sleep 60", bounds, &wanted).broke, Some(Broke::Ended));
    });
}

/// A case, in a process of its own.
fn inside(case: &str, parent: u32, folder: &Path) {
    let readable = folder.join("readable");
    if build(parent + 1, LIMITS, &Reading::Nothing, Duty::Compute).is_ok() {
        panic!("another process is no parent");
    }
    let (reading, duty) = match case {
        "compiles" => (Reading::Beneath(vec![readable.clone(), "/nowhere".into()]), Duty::Compile),
        _ => (Reading::Nothing, Duty::Compute),
    };
    build(parent, LIMITS, &reading, duty).unwrap();
    let mut input = String::new();
    io::stdin().read_to_string(&mut input).unwrap();
    assert_eq!(input, "input");
    match case {
        "spins" => loop {
            std::hint::spin_loop();
        },
        "grows" => {
            let all: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 26]).collect();
            exit(all.len() as i32);
        }
        "compiles" => compiles(&readable, folder),
        _ => {
            refused(fs::read(readable.join("open")), "open a file");
            refused(OpenOptions::new().read(true).open("/proc/self/maps"), "open a file of /proc");
        }
    }
    refused(fs::write(folder.join("new"), "new"), "make a file");
    refused(fs::remove_file(readable.join("open")), "remove a file");
    refused(std::net::UdpSocket::bind("127.0.0.1:0"), "reach the network");
    refused(std::os::unix::net::UnixStream::pair(), "make a socket");
    refused(Command::new("/bin/true").stdin(Stdio::null()).status(), "start a process");
    let parent_of = rustix::process::Pid::from_raw(parent as i32).unwrap();
    refused(rustix::process::kill_process(parent_of, rustix::process::Signal::USR1), "send a signal");
    refused(rustix::process::test_kill_process(parent_of), "ask for a process");
    assert!(!rustix::process::geteuid().is_root(), "root is nobody here");
    // Threads and memory are there.
    let sum: u64 = (0..4)
        .map(|number| thread::spawn(move || (0..=number).sum::<u64>()))
        .map(|it| it.join().unwrap())
        .sum();
    assert_eq!(sum, 10);
    io::stdout().write_all(b"output").unwrap();
}

/// What a compiler has beyond that.
fn compiles(readable: &Path, folder: &Path) {
    let open = readable.join("open");
    assert_eq!(fs::read(&open).unwrap(), b"open");
    refused(fs::read(readable.join("private")), "read what others may not");
    refused(fs::read(folder.join("secret")), "read beside the folder");
    refused(fs::read("/etc/passwd"), "read elsewhere");
    refused(fs::read_dir("/proc"), "look at processes");
    refused(OpenOptions::new().write(true).open(&open), "write");
    refused(OpenOptions::new().append(true).open(&open), "append");
    refused(OpenOptions::new().write(true).truncate(true).open(&open), "empty by writing");
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::TRUNC;
    refused(rustix::fs::open(&open, flags, rustix::fs::Mode::empty()), "empty by reading");
    let unnamed = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::TMPFILE;
    refused(rustix::fs::open(folder as &Path, unnamed, rustix::fs::Mode::RUSR), "make an unnamed file");
    let file = fs::File::open(&open).unwrap();
    refused(rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::NOATIME), "change a file's attributes");
    refused(rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::APPEND), "change how a file is open");
    let one = rustix::process::Rlimit { current: Some(1), maximum: Some(1) };
    let parent = rustix::process::getppid();
    refused(
        rustix::process::prlimit(parent, rustix::process::Resource::Nofile, one).map(drop),
        "change a limit of another process",
    );
}

fn refused<T, E>(result: Result<T, E>, what: &str) {
    assert!(result.is_err(), "it can {what}");
}
