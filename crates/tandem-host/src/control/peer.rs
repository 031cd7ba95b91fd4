//! The process at the other end of a connection, for which the kernel vouches.

use crate::users::behind;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Gid, Group, Uid, User};
use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Name of the group whose members may read everything.
pub const READERS: &str = "tandem";

/// A process that connected, as it was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its number, for messages only: the process may have ended, and another one may have the number.
    pub pid: i32,
    /// Its effective user.
    pub user: u32,
    /// Its effective group.
    pub group: u32,
    /// The user that it counts towards: the user to whom its user is subordinate, or its user.
    pub payer: u32,
}

impl Peer {
    /// The process that connected.
    ///
    /// # Errors
    /// If the kernel does not say.
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

    /// Whether its user is in the group of readers, by its own group or by the system's list of users.
    pub fn is_reader(&self) -> bool {
        let Ok(Some(readers)) = Group::from_name(READERS) else { return false };
        if readers.gid == Gid::from_raw(self.group) {
            return true;
        }
        let user = User::from_uid(Uid::from_raw(self.user)).ok().flatten();
        user.is_some_and(|user| user.gid == readers.gid || readers.mem.contains(&user.name))
    }
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
    fn the_kernel_identifies_the_peer() {
        let (here, _there) = UnixStream::pair().unwrap();
        let peer = Peer::of(&here).unwrap();
        assert_eq!(peer.pid as u32, std::process::id());
        assert_eq!(peer.user, nix::unistd::geteuid().as_raw());
        assert_eq!(peer.group, nix::unistd::getegid().as_raw());
    }
}
