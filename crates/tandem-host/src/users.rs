//! The user that a user counts towards.
//!
//! subuid(5) gives each user tens of thousands more, for containers. All of them together have the quota of
//! one user.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longest list of subordinate users, and of users, that is read, bytes: some ten thousand of them.
const LIST_MAX: u64 = 1 << 20;

/// The user to whom a user is subordinate, or else the user itself. The root is `/` for this machine.
pub fn behind(root: &Path, user: u32) -> u32 {
    let list = |file: &str| {
        let mut text = Vec::new();
        File::open(root.join(file)).and_then(|file| file.take(LIST_MAX).read_to_end(&mut text)).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    let text = list("etc/subuid").unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        Some((owner, first.trim().parse::<u32>().ok()?, count.trim().parse::<u32>().ok()?))
    });
    let range = lines.find(|(_, first, count)| user.checked_sub(*first).is_some_and(|at| at < *count));
    let Some((owner, ..)) = range else { return user };
    let number_of = |name: &str| {
        let users = list("etc/passwd")?;
        users
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.split(':').nth(1)?.parse().ok())
    };
    owner.parse().ok().or_else(|| number_of(owner)).unwrap_or(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_users_have_an_owner() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(behind(root.path(), 100_001), 100_001, "there is no list");
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let list =
            "# x\n1000:100000:65536\nalice:300000:10\nnobody-here:400000:10\n:\n1001:4294967290:65536\n";
        std::fs::write(root.path().join("etc/subuid"), list).unwrap();
        std::fs::write(root.path().join("etc/passwd"), "root:x:0:0::/:/bin/sh\nalice:x:1002:1002::/:\n")
            .unwrap();
        for (user, payer) in [
            (99_999, 99_999),
            (100_000, 1000),
            (165_535, 1000),
            (165_536, 165_536),
            (300_009, 1002),
            (400_000, 400_000),
            (u32::MAX - 1, 1001),
        ] {
            assert_eq!(behind(root.path(), user), payer, "{user}");
        }
    }
}
