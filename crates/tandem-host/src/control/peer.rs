//! Who is at the other end of a connection, by the kernel's word.

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Gid, Group, Uid, User};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Name of the group whose members may read everything.
pub const READERS: &str = "tandem";

/// A process that connected, as it was when it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number, for messages only: the process may have ended, and another one have it.
    pub pid: i32,
    /// Its effective user.
    pub user: u32,
    /// Its effective group.
    pub group: u32,
    /// Who is behind it: the user to whom its user is subordinate, or its user.
    pub payer: u32,
}

impl Peer {
    /// Who connected.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn of(stream: &UnixStream) -> nix::Result<Self> {
        let credentials = getsockopt(stream, PeerCredentials)?;
        let user = credentials.uid();
        let payer = behind(Path::new("/"), user);
        Ok(Self { pid: credentials.pid(), user, group: credentials.gid(), payer })
    }

    /// Whether it is root.
    pub fn is_root(&self) -> bool {
        self.user == 0
    }

    /// Whether it is of the group of readers: now, or by the system's list of users.
    pub fn is_reader(&self) -> bool {
        let Ok(Some(readers)) = Group::from_name(READERS) else { return false };
        if readers.gid == Gid::from_raw(self.group) {
            return true;
        }
        let user = User::from_uid(Uid::from_raw(self.user)).ok().flatten();
        user.is_some_and(|user| user.gid == readers.gid || readers.mem.contains(&user.name))
    }
}

/// Longest list of subordinate users that is read, bytes: some ten thousand users.
const SUBORDINATES_MAX: u64 = 1 << 20;

/// Who is behind a user: subuid(5) gives each user tens of thousands more, for containers, and all of them have together what one user may
/// have. The root is `/` for this machine.
fn behind(root: &Path, user: u32) -> u32 {
    let mut text = String::new();
    let file = File::open(root.join("etc/subuid"));
    if file.and_then(|file| file.take(SUBORDINATES_MAX).read_to_string(&mut text)).is_err() {
        return user;
    }
    let mut lines = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (owner, first, count) = (fields.next()?, fields.next()?, fields.next()?);
        Some((owner, first.trim().parse::<u32>().ok()?, count.trim().parse::<u32>().ok()?))
    });
    let range = lines.find(|(_, first, count)| user.checked_sub(*first).is_some_and(|at| at < *count));
    let Some((owner, ..)) = range else { return user };
    let by_name = || User::from_name(owner).ok().flatten().map(|owner| owner.uid.as_raw());
    owner.parse().ok().or_else(by_name).unwrap_or(user)
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {}, process {}", self.user, self.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_who_is_there() {
        let (here, _there) = UnixStream::pair().unwrap();
        let peer = Peer::of(&here).unwrap();
        assert_eq!(peer.pid as u32, std::process::id());
        assert_eq!(peer.user, nix::unistd::geteuid().as_raw());
        assert_eq!(peer.group, nix::unistd::getegid().as_raw());
    }
    #[test]
    fn subordinate_users_belong_to_somebody() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(behind(root.path(), 100_001), 100_001, "there is no list");
        std::fs::create_dir(root.path().join("etc")).unwrap();
        let list =
            "# x\n1000:100000:65536\nroot:300000:10\nnobody-here:400000:10\n:\n1001:4294967290:65536\n";
        std::fs::write(root.path().join("etc/subuid"), list).unwrap();
        for (user, payer) in [
            (99_999, 99_999),
            (100_000, 1000),
            (165_535, 1000),
            (165_536, 165_536),
            (300_009, 0),
            (400_000, 400_000),
            (u32::MAX - 1, 1001),
        ] {
            assert_eq!(behind(root.path(), user), payer, "{user}");
        }
    }
}
