//! What the service reads besides processes and its socket: each reader gives something or an error for any
//! text, and what it can write is read as the same; none panics.
//!
//! The first byte of the input selects the reader, the rest is its text.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tandem_host::cgroups::Hierarchies;
use tandem_host::cpu_time::read_cpu_times;
use tandem_host::metrics::parse_request;
use tandem_host::mounts::mounts;
use tandem_host::scheduler::History;
use tandem_host::shares::{SHARE, Shares};
use tandem_host::tasks;
use tandem_host::vms::homes_file::HomesFile;
use tandem_settings::Settings;
use tempfile::TempDir;

/// Reads an input, and checks what comes of it.
pub fn read(input: &[u8]) {
    let Some((&reader, text)) = input.split_first() else { return };
    let read = match reader {
        b'a' => read_settings,
        b'b' => read_homes,
        b'c' => read_history,
        b'd' => read_request,
        b'e' => read_mounts,
        b'f' => read_cgroup,
        b'g' => read_times,
        b'h' => read_task,
        b'i' => read_subordinate_users,
        _ => return,
    };
    read(text);
}

thread_local! {
    static ROOT: TempDir = tempfile::tempdir().expect("there is room for a folder");
}

/// Lets a reader read the text as that file below a root.
fn with_file(path: &str, text: &[u8], read: impl FnOnce(&Path)) {
    ROOT.with(|root| {
        let file = root.path().join(path);
        let folder = file.parent().expect("it is in a folder");
        if !folder.exists() {
            fs::create_dir_all(folder).expect("it can be made");
            fs::set_permissions(folder, PermissionsExt::from_mode(0o700)).expect("it is this user's");
        }
        fs::write(&file, text).expect("it can be written");
        read(root.path());
        fs::remove_file(&file).expect("it is there");
    });
}

/// The agent gets the settings as a line of JSON.
fn read_settings(text: &[u8]) {
    with_file("tandem.toml", text, |root| match Settings::read(&root.join("tandem.toml")) {
        Ok(settings) => {
            let line = serde_json::to_string(&settings).expect("they can be written");
            assert_eq!(serde_json::from_str::<Settings>(&line).expect("they can be read"), settings);
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control), "{error}"),
    });
}

fn read_homes(text: &[u8]) {
    with_file("run/tandem/homes.json", text, |root| {
        if let Ok(Some(file)) = HomesFile::read(root) {
            file.write(root).expect("it can be written");
            assert_eq!(HomesFile::read(root).expect("it can be read"), Some(file));
        }
    });
}

fn read_history(text: &[u8]) {
    with_file("var/log/tandem/history.json", text, |root| {
        let history = History::read(root);
        assert!(history.ejections.keys().all(|reason| !reason.contains(char::is_control)));
        History::note(root, |_| {}).expect("it can be written");
        assert_eq!(History::read(root), history);
    });
}

fn read_request(text: &[u8]) {
    let _ = parse_request(text);
}

fn read_mounts(text: &[u8]) {
    with_file("proc/self/mountinfo", text, |root| {
        let _ = mounts(root);
        let _ = Hierarchies::find(root).of_process(7, "memory");
    });
}

fn read_cgroup(text: &[u8]) {
    const UNIFIED: &[u8] = b"31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    with_file("proc/self/mountinfo", UNIFIED, |root| {
        let hierarchies = Hierarchies::find(root);
        with_file("proc/7/cgroup", text, |_| {
            if let Some(membership) = hierarchies.of_process(7, "memory") {
                assert!(membership.directory.starts_with(root), "{}", membership.directory.display());
            }
        });
    });
}

fn read_times(text: &[u8]) {
    with_file("proc/stat", text, |root| drop(read_cpu_times(root)));
}

fn read_task(text: &[u8]) {
    with_file("proc/7/status", text, |root| {
        if let Some(task) = tasks::task(root, 7) {
            assert!(!task.name.contains(char::is_control));
        }
    });
}

/// Whoever is behind a user, that user's share is spent.
fn read_subordinate_users(text: &[u8]) {
    with_file("etc/subuid", text, |root| {
        for user in [1000, 100_000, u32::MAX] {
            let mut shares = Shares::default();
            shares.spend(root, user, SHARE);
            shares.has_left(root, user);
        }
    });
}
