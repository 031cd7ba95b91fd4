//! Cost of refilling caches that other tasks used in the meantime.
//!
//! Problem: the more data other tasks have brought into the caches since, the less of its footprint a task
//! finds when it comes back to a CPU; on a core or last-level cache where it has not been, it finds nothing.
//!
//! Approach: each cache counts the bytes ever brought in. With random replacement a line survives the arrival
//! of `b` other bytes in a cache of `s` bytes with probability exp(-b/s), so two numbers for each task and
//! cache (the count when the task left, and the bytes that it had there) give what is left when it returns.
//! The missing part comes back as the task touches its footprint: over one sweep of work (see
//! [`crate::program::MemoryProfile::sweep_ns`]) it runs slower, each missing line at the latency of the next
//! level. A task that runs for less than a sweep refills, and pays for, only that part.
//!
//! Limits: two levels (private and last-level); a task remembers the last cache it used at each level only;
//! data that two tasks share counts for each.

/// Switches the model on; sizes and latencies are the machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache;

/// The fill count of a cache: how much has ever been brought in.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheFill {
    /// Bytes brought in since the start.
    pub filled_bytes: f64,
}

/// The data of a task in one cache when it left.
#[derive(Clone, Copy, Debug)]
pub struct Residue {
    /// Number of the cache at its level; `u32::MAX` for none yet.
    cache: u32,
    /// Fill count of the cache when the task left.
    filled_bytes: f64,
    /// Bytes of the task's footprint in it then.
    resident_bytes: f64,
}

impl Default for Residue {
    fn default() -> Self {
        Self { cache: u32::MAX, filled_bytes: 0.0, resident_bytes: 0.0 }
    }
}

impl Residue {
    /// The residue of a task that leaves now.
    pub fn leave(cache: usize, fill: &CacheFill, resident_bytes: f64) -> Self {
        Self { cache: cache as u32, filled_bytes: fill.filled_bytes, resident_bytes }
    }

    /// Bytes that are still there when the task comes to cache number `cache` of `size_bytes`.
    #[inline]
    pub fn survived_bytes(&self, cache: usize, fill: &CacheFill, size_bytes: f64) -> f64 {
        if self.cache != cache as u32 {
            return 0.0;
        }
        let others = fill.filled_bytes - self.filled_bytes;
        if others == 0.0 {
            return self.resident_bytes;
        }
        self.resident_bytes * libm::exp(-others / size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_bring_in_pushes_out() {
        let mut fill = CacheFill { filled_bytes: 5_000.0 };
        let residue = Residue::leave(3, &fill, 100.0);
        assert_eq!(residue.survived_bytes(3, &fill, 1_000.0), 100.0, "nobody else was there");
        assert_eq!(residue.survived_bytes(2, &fill, 1_000.0), 0.0, "another cache");
        fill.filled_bytes += 1_000.0;
        let left = residue.survived_bytes(3, &fill, 1_000.0);
        assert!((left - 36.79).abs() < 0.01, "exp(-1) of it, not {left}");
        assert_eq!(Residue::default().survived_bytes(0, &fill, 1_000.0), 0.0);
    }
}
