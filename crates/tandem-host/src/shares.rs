//! Limits the time that this program spends on each user.
//!
//! **Problem.** Examining a process takes some time, more if the process has many files or mappings, and any
//! user may start thousands of processes, which would delay the examination of everybody else's.
//!
//! **Approach.** In each round, a user's processes get at most [`SHARE`]; the rest waits for the next round.
//! So a user with many processes waits only for those. Subordinate users count as their owner, and root, who
//! can do worse, has no limit.
//!
//! **Limits.** For a user with very many VMs, the last of them are found some seconds later.

use crate::users::behind;
use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

/// Time for the processes of a user in a round: a process takes 0.1 ms, a VM some ms.
pub const SHARE: Duration = Duration::from_secs(1);

/// The time that users have used in this round.
#[derive(Debug, Default)]
pub struct Shares {
    /// By user.
    spent: HashMap<u32, Duration>,
    /// The owner of each user that was looked up, from a file.
    behind: HashMap<u32, u32>,
}

impl Shares {
    /// Begins a round.
    pub fn begin(&mut self) {
        self.spent.clear();
        self.behind.clear();
    }

    /// Whether that user has time left.
    pub fn has_left(&mut self, root: &Path, user: u32) -> bool {
        let user = self.behind(root, user);
        user == 0 || self.spent.get(&user).is_none_or(|&spent| spent < SHARE)
    }

    /// Charges the time of examining a process to its user.
    pub fn spend(&mut self, root: &Path, user: u32, time: Duration) {
        let user = self.behind(root, user);
        *self.spent.entry(user).or_default() += time;
    }

    fn behind(&mut self, root: &Path, user: u32) -> u32 {
        *self.behind.entry(user).or_insert_with(|| behind(root, user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_time_left_waits_for_the_next_round() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("etc")).unwrap();
        std::fs::write(root.path().join("etc/subuid"), "1000:100000:65536\n").unwrap();
        let mut shares = Shares::default();
        shares.begin();
        for user in [0, 100_007] {
            shares.spend(root.path(), user, SHARE);
        }
        let left: Vec<_> = [0, 1000, 100_000, 1001].map(|user| shares.has_left(root.path(), user)).into();
        assert_eq!(left, [true, false, false, true]);
        shares.begin();
        assert!(shares.has_left(root.path(), 1000));
    }
}
