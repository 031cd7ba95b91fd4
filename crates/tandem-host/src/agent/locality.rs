//! How long the vCPUs of a VM ran at home and away from home, as the scheduler counts it for each thread.

use std::collections::BTreeMap;
use tandem_settings::Held;

/// Adds up the scheduler's counts since the agent found the VM.
///
/// The scheduler counts from a thread's first preference to its end. An agent that takes over starts at 0, as
/// counters must that cannot continue: threads may have ended in between, and their times are lost. The time
/// of a thread between the last scan and its end is lost, too.
#[derive(Debug, Default)]
pub struct Locality {
    /// The scheduler's last count, by thread.
    last: BTreeMap<u32, Time>,
    /// `None` until a vCPU had a preference.
    total: Option<Time>,
    is_started: bool,
}

/// Times at home and away from home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// On the CPUs that they prefer, ns.
    pub home_ns: u64,
    /// On other CPUs, ns.
    pub away_ns: u64,
}

impl Locality {
    /// Adds the scheduler's counts of all vCPUs, with the numbers of their threads.
    pub fn count<'a>(&mut self, vcpus: impl Iterator<Item = (u32, Option<&'a Held>)>) {
        let mut last = BTreeMap::new();
        for (tid, held) in vcpus {
            let before = self.last.get(&tid).copied();
            let Some(held) = held.filter(|held| held.preference.place.is_some()) else {
                // The thread may get a preference again, and its times continue from there.
                last.extend(before.map(|before| (tid, before)));
                continue;
            };
            let now = Time { home_ns: held.home_ns, away_ns: held.away_ns };
            let from = match before {
                // The number belonged to a thread that has ended.
                Some(before) if now.home_ns < before.home_ns || now.away_ns < before.away_ns => {
                    Time::default()
                }
                Some(before) => before,
                None if self.is_started => Time::default(),
                None => now,
            };
            let total = self.total.get_or_insert_default();
            total.home_ns += now.home_ns - from.home_ns;
            total.away_ns += now.away_ns - from.away_ns;
            last.insert(tid, now);
        }
        self.last = last;
        self.is_started = true;
    }

    /// The sum; `None` if no vCPU ever had a preference.
    pub fn total(&self) -> Option<Time> {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_settings::{Place, Preference};

    fn held(home_ns: u64, away_ns: u64) -> Held {
        let place = Some(Place::Cpus(vec![0]));
        Held { preference: Preference { place, latency_critical: false }, by_agent: true, home_ns, away_ns }
    }

    /// The sum after some scans, each with the scheduler's counts of threads.
    fn total(looks: &[&[(u32, Option<Held>)]]) -> Option<(u64, u64)> {
        let mut locality = Locality::default();
        for look in looks {
            locality.count(look.iter().map(|(tid, held)| (*tid, held.as_ref())));
        }
        locality.total().map(|time| (time.home_ns, time.away_ns))
    }

    #[test]
    fn counters_only_rise() {
        assert_eq!(total(&[&[(1, None), (2, None)]]), None, "nothing is known without a preference");
        let begin: &[_] = &[(1, None)];
        assert_eq!(total(&[begin, &[(1, Some(held(5, 2)))]]), Some((5, 2)));
        assert_eq!(total(&[begin, &[(1, Some(held(5, 2)))], &[(1, Some(held(9, 2)))]]), Some((9, 2)));
        let ended: &[&[_]] = &[begin, &[(1, Some(held(5, 2)))], &[(2, Some(held(3, 0)))]];
        assert_eq!(total(ended), Some((8, 2)), "of one that has ended, and of a new one");
        let cleared: &[&[_]] = &[begin, &[(1, Some(held(5, 2)))], begin, &[(1, Some(held(6, 2)))]];
        assert_eq!(total(cleared), Some((6, 2)), "a preference that was cleared and set again");
        let other: &[&[_]] = &[begin, &[(1, Some(held(5, 2)))], &[(1, Some(held(1, 1)))]];
        assert_eq!(total(other), Some((6, 3)), "another thread with the number");
    }

    #[test]
    fn an_agent_that_takes_over_starts_at_zero() {
        assert_eq!(total(&[&[(1, Some(held(500, 200)))]]), Some((0, 0)));
        assert_eq!(total(&[&[(1, Some(held(500, 200)))], &[(1, Some(held(510, 201)))]]), Some((10, 1)));
    }
}
