//! `tandem run` as a service of systemd.

use super::{Finding, exists, read};
use std::path::Path;

/// The unit.
const UNIT: &str = "tandem.service";
/// Folders of units, by precedence: systemd.unit(5).
const FOLDERS: [&str; 4] = [
    "/etc/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];
/// The service's folder for files that other programs use while it runs.
const RUNTIME_FOLDER: &str = "/run/tandem";

/// The group whose members may read what the scheduler does.
pub fn group(root: &Path) -> Finding {
    let subject = "group";
    let groups = read(root, "/etc/group").unwrap_or_default();
    match groups.lines().any(|line| line.starts_with("tandem:")) {
        true => Finding::ok(subject, "tandem"),
        false => Finding::warning(
            subject,
            "no group `tandem`, whose members may read what the scheduler does; run `groupadd --system tandem`",
        ),
    }
}

/// The unit's state. `None` without systemd.
pub fn unit(root: &Path) -> Option<Finding> {
    let subject = "service";
    if !exists(root, "/run/systemd/system") {
        return None;
    }
    if !FOLDERS.iter().any(|folder| exists(root, &format!("{folder}/{UNIT}"))) {
        return Some(Finding::ok(subject, format!("no {UNIT} is installed; `tandem run` works without it")));
    }
    let is_active = is_service_active(root, UNIT);
    // A link, to a unit that need not be below this root.
    let wanted = root.join("etc/systemd/system/multi-user.target.wants").join(UNIT);
    let start = format!("`systemctl enable --now {UNIT}` starts it, now and at each boot");
    Some(match (is_active, wanted.is_symlink()) {
        (true, _) if !exists(root, RUNTIME_FOLDER) => Finding::warning(
            subject,
            format!("active without its folder {RUNTIME_FOLDER}; run `systemctl restart {UNIT}`"),
        ),
        (true, true) => Finding::ok(subject, "active; starts at boot"),
        (true, false) => Finding::ok(subject, "active; does not start at boot"),
        (false, true) => Finding::warning(
            subject,
            format!("starts at boot, but is not active; `systemctl status {UNIT}` says why"),
        ),
        (false, false) => Finding::ok(subject, format!("not active; {start}")),
    })
}

/// Whether systemd has started a unit and not stopped it.
pub fn is_service_active(root: &Path, unit: &str) -> bool {
    exists(root, &format!("/sys/fs/cgroup/system.slice/{unit}"))
}
