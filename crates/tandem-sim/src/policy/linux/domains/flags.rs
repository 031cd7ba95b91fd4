//! Flags of scheduling domains.

use crate::policy::linux::features::DomainFeatures;
use std::ops::BitOr;

/// A set of flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u16);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// A CPU that becomes idle balances this domain.
    pub const NEWIDLE: Self = Self(1);
    /// An exec may move a task within this domain.
    pub const EXEC: Self = Self(1 << 1);
    /// A fork may put the child anywhere in this domain.
    pub const FORK: Self = Self(1 << 2);
    /// A task may be pulled to its waker within this domain.
    pub const WAKE_AFFINE: Self = Self(1 << 3);
    /// The CPUs are threads of one core.
    pub const SHARE_CAPACITY: Self = Self(1 << 4);
    /// The CPUs share a cache.
    pub const SHARE_LLC: Self = Self(1 << 5);
    /// Only one CPU of the machine balances such a domain at a time.
    pub const SERIALIZE: Self = Self(1 << 6);
    /// Tasks should spread over domains like this one rather than share one.
    pub const PREFER_SIBLING: Self = Self(1 << 7);
    /// The domain spans NUMA nodes.
    pub const NUMA: Self = Self(1 << 8);

    /// Whether the set holds all of `other`.
    #[inline]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The set without `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The names that the release gives to the flags.
    pub fn names(self, features: &DomainFeatures) -> impl Iterator<Item = &'static str> {
        [
            (Self::NEWIDLE, "SD_BALANCE_NEWIDLE"),
            (Self::EXEC, "SD_BALANCE_EXEC"),
            (Self::FORK, "SD_BALANCE_FORK"),
            (Self::WAKE_AFFINE, "SD_WAKE_AFFINE"),
            (Self::SHARE_CAPACITY, features.share_capacity),
            (Self::SHARE_LLC, features.share_llc),
            (Self::SERIALIZE, "SD_SERIALIZE"),
            (Self::PREFER_SIBLING, "SD_PREFER_SIBLING"),
            (Self::NUMA, "SD_NUMA"),
        ]
        .into_iter()
        .filter_map(move |(flag, name)| self.contains(flag).then_some(name))
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
