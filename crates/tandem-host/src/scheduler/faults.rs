//! Faults of kernels that affect any loaded scheduler.
//!
//! **Problem.** Some kernels hang when a sched_ext scheduler and something else meet.
//!
//! **Approach.** Each fault has the release that introduced it, those that fixed it, and a mark that the fix
//! left in the kernel's types, because distributions backport changes to older releases. The mark decides; a
//! release that cannot be parsed has every fault whose mark is missing.
//!
//! **Limits.** Unlisted faults are not found. A kernel before the fault's first release to which the faulty
//! change was backported goes unnoticed.
//!
//! | fault | began | ended | source |
//! |---|---|---|---|
//! | with cookies, a core's threads decide for each other, and a CPU waits for a lock that it has (scx_bpf_dsq_move()), or a core's threads are chosen while its lock is dropped: the host hangs. `core_sched_before` is taken for its opposite | 6.12 (7b0888b7cc19; seen on 6.12.95 with this scheduler), the second 6.19 (4c95380701f5) | 7.3, 7.2.4 | sched-ext/scx issue 3715; "sched_ext: Fix rq->core_pick corruption under core scheduling", "Fix this_rq() assumptions in dispatch kfuncs", "Fix inverted ops.core_sched_before() invocation" and those published with them |
//! | loading waits for a lock whose holder waits for a fork, which loading holds up | 7.1 (a5b98009f16d) | 7.2, 7.1.9 | sched-ext/scx issue 3716; "sched/psi: Create the psimon kthread outside of cgroup_mutex" |

use super::kernel_types::KernelTypes;

/// A fault of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The host hangs when a task with a core scheduling cookie runs on a core with several threads.
    CoreScheduling,
    /// Nothing can be forked any more if a program sets up a pressure trigger (PSI) while a scheduler is
    /// loaded.
    PressureTriggers,
}

impl Fault {
    /// Whether a kernel has it, by its release, as `uname -r` prints it, and its types, if they can be read.
    pub fn is_in(self, release: &str, types: Option<&KernelTypes>) -> bool {
        let is_mended = |types: &KernelTypes| match self {
            Self::CoreScheduling => types.has_member("scx_rq", "lock_drop_seq"),
            Self::PressureTriggers => types.has_function("psi_trigger_create_rtpoll_worker"),
        };
        !types.is_some_and(is_mended) && Release::parse(release).is_none_or(|release| self.is_of(release))
    }

    /// Whether the kernel that was published under this release has it.
    fn is_of(self, release: Release) -> bool {
        let [began, ended_in_stable, ended] = match self {
            Self::CoreScheduling => [(6, 12, 0), (7, 2, 4), (7, 3, 0)],
            Self::PressureTriggers => [(7, 1, 0), (7, 1, 9), (7, 2, 0)],
        }
        .map(|(major, minor, patch)| Release { major, minor, patch });
        let is_stable_mended = release.is_same_series(ended_in_stable) && release >= ended_in_stable;
        began <= release && release < ended && !is_stable_mended
    }
}

/// A release of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Release {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Release {
    /// The numbers at the beginning of a release such as `7.3.4+deb13-cloud-amd64` or `7.3-rc1`.
    fn parse(text: &str) -> Option<Self> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let mut numbers = text[..end].split('.').map(str::parse);
        let major = numbers.next()?.ok()?;
        let minor = numbers.next()?.ok()?;
        Some(Self { major, minor, patch: numbers.next().and_then(Result::ok).unwrap_or(0) })
    }

    fn is_same_series(self, other: Self) -> bool {
        (self.major, self.minor) == (other.major, other.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::kernel_types::testing::kernel_types;

    #[test]
    fn releases_are_distinguished() {
        let cases = [
            ("6.12.41+deb13-amd64", true, false),
            ("6.18.54", true, false),
            ("6.19-rc1", true, false),
            ("7.0.3-14-generic", true, false),
            ("7.1.3-xanmod1", true, true),
            ("7.1.9", true, false),
            ("7.2", true, false),
            ("7.2.3-arch1-1", true, false),
            ("7.2.4-200.fc44.x86_64", false, false),
            ("7.3.0-rc1", false, false),
            ("7.10.1", false, false),
            ("10.0", false, false),
            // Releases that cannot be parsed.
            ("of unknown release", true, true),
            ("", true, true),
        ];
        for (release, cookies, pressure) in cases {
            assert_eq!(Fault::CoreScheduling.is_in(release, None), cookies, "{release}");
            assert_eq!(Fault::PressureTriggers.is_in(release, None), pressure, "{release}");
        }
    }

    #[test]
    fn the_mark_of_a_fix_counts_more_than_the_release() {
        let mended = kernel_types(&[("scx_rq", &["clock", "lock_drop_seq"])]);
        let not = kernel_types(&[("scx_rq", &["clock"])]);
        for release in ["7.1.3", "?"] {
            assert!(!Fault::CoreScheduling.is_in(release, Some(&mended)), "{release}");
            assert!(Fault::CoreScheduling.is_in(release, Some(&not)), "{release}");
            assert!(Fault::PressureTriggers.is_in(release, Some(&mended)), "{release}");
        }
        // Without core scheduling a kernel has no such member, fixed or not.
        assert!(!Fault::CoreScheduling.is_in("7.3.4", Some(&not)));
    }
}
