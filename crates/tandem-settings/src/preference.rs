//! Preferences: the CPUs or nodes that tasks and cgroups would rather use.

use tandem_bpf::types::{preference_kind, preference_request, preference_scope};
use thiserror::Error;

/// `ANY_USER` of the scheduler's `requests.h`: (uid_t)-1, which no user has.
const ANY_USER: u32 = u32::MAX;

/// The task or cgroup that a preference applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// One thread, by its number.
    Task(u32),
    /// A cgroup and all below it, by the inode number of its directory.
    Cgroup(u64),
}

/// A preference of a task or cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preference {
    /// Where to run; `None` for a task that is only marked as latency-critical.
    pub place: Option<Place>,
    /// Whether rate control exempts it; for tasks only.
    pub latency_critical: bool,
}

/// Which process asks for a preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A process that may set preferences of all tasks.
    Root,
    /// A user's process, which may set preferences of that user's tasks only. The scheduler checks which user
    /// a task belongs to; it does not know the owners of cgroups.
    User {
        /// The user's number.
        user: u32,
        /// The user that a subordinate user counts towards: all users with the same payer together have the
        /// quota of one user.
        payer: u32,
    },
    /// The agent, which may set preferences of all tasks and recognises its own preferences.
    Agent,
}

/// A preference that the scheduler holds, and its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The preference.
    pub preference: Preference,
    /// Whether the agent set it; for tasks only.
    pub by_agent: bool,
    /// How long the task has run on its preferred CPUs, in ns. The scheduler adds to it when the task stops
    /// or its slice ends.
    pub home_ns: u64,
    /// How long the task has run on other CPUs, in ns.
    pub away_ns: u64,
}

/// Where to run. The numbers are the kernel's, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On these CPUs: soft affinity.
    Cpus(Vec<u32>),
    /// On these nodes: NUMA homes.
    Nodes {
        /// The nodes.
        nodes: Vec<u32>,
        /// Their CPUs.
        cpus: Vec<u32>,
    },
}

/// A number that the scheduler's tables do not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{what} {number} is out of range; the scheduler supports numbers below {limit}")]
pub struct TooLarge {
    /// `CPU` or `node`.
    pub what: &'static str,
    /// The kernel's number of the CPU or node.
    pub number: u32,
    /// The lowest number that is out of range.
    pub limit: usize,
}

/// A request about a task or cgroup, otherwise empty.
pub fn request_about(subject: Subject) -> preference_request {
    let mut request = preference_request { user: ANY_USER, payer: ANY_USER, ..preference_request::default() };
    match subject {
        Subject::Task(tid) => {
            request.scope = preference_scope::SCOPE_TASK;
            request.id = u64::from(tid);
        }
        Subject::Cgroup(id) => {
            request.scope = preference_scope::SCOPE_CGROUP;
            request.id = id;
        }
    }
    request
}

impl Asker {
    /// Writes the fields of a request that say who asks.
    pub fn write(self, request: &mut preference_request) {
        (request.user, request.payer) = match self {
            Self::User { user, payer } => (user, payer),
            Self::Root | Self::Agent => (ANY_USER, ANY_USER),
        };
        request.by_agent = u32::from(self == Self::Agent);
    }
}

impl Held {
    /// The preference and its effect in the scheduler's answer.
    pub fn read(request: &preference_request) -> Self {
        Self {
            preference: Preference::read(request),
            by_agent: request.by_agent != 0,
            home_ns: request.home_ns,
            away_ns: request.away_ns,
        }
    }
}

impl Preference {
    /// Writes the request that sets this preference; an empty preference clears.
    pub fn write(&self, request: &mut preference_request) -> Result<(), TooLarge> {
        request.latency_critical = u32::from(self.latency_critical);
        request.kind = preference_kind::KIND_NONE;
        match &self.place {
            None => {}
            Some(Place::Cpus(cpus)) => {
                request.kind = preference_kind::KIND_CPUS;
                insert_all("CPU", cpus, &mut request.cpus)?;
            }
            Some(Place::Nodes { nodes, cpus }) => {
                request.kind = preference_kind::KIND_NODES;
                insert_all("CPU", cpus, &mut request.cpus)?;
                insert_all("node", nodes, &mut request.nodes)?;
            }
        }
        Ok(())
    }

    fn read(request: &preference_request) -> Self {
        let cpus = || numbers(&request.cpus);
        Self {
            place: match request.kind {
                preference_kind::KIND_CPUS => Some(Place::Cpus(cpus())),
                preference_kind::KIND_NODES => {
                    Some(Place::Nodes { nodes: numbers(&request.nodes), cpus: cpus() })
                }
                _ => None,
            },
            latency_critical: request.latency_critical != 0,
        }
    }
}

fn insert_all(what: &'static str, numbers: &[u32], words: &mut [u64]) -> Result<(), TooLarge> {
    let limit = words.len() * 64;
    for &number in numbers {
        let word = words.get_mut(number as usize / 64);
        *word.ok_or(TooLarge { what, number, limit })? |= 1 << (number % 64);
    }
    Ok(())
}

fn numbers(words: &[u64]) -> Vec<u32> {
    let bits = |(word, &bits): (usize, &u64)| {
        (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word as u32 * 64 + bit)
    };
    words.iter().enumerate().flat_map(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_holds_all_of_a_preference() {
        let places = [
            None,
            Some(Place::Cpus(vec![0, 63, 64, 1023])),
            Some(Place::Nodes { nodes: vec![1, 127], cpus: vec![8, 9] }),
        ];
        for place in places {
            for latency_critical in [false, true] {
                let preference = Preference { place: place.clone(), latency_critical };
                let mut request = request_about(Subject::Task(7));
                preference.write(&mut request).unwrap();
                assert_eq!((request.id, request.scope), (7, preference_scope::SCOPE_TASK));
                assert_eq!(Preference::read(&request), preference);
            }
        }
    }

    #[test]
    fn a_request_names_the_asker() {
        let asked = |asker: Asker| {
            let mut request = request_about(Subject::Task(7));
            asker.write(&mut request);
            (request.user, request.payer, Held::read(&request).by_agent)
        };
        assert_eq!(request_about(Subject::Task(7)).user, ANY_USER);
        assert_eq!(asked(Asker::Root), (ANY_USER, ANY_USER, false));
        assert_eq!(asked(Asker::User { user: 100_000, payer: 1000 }), (100_000, 1000, false));
        assert_eq!(asked(Asker::Agent), (ANY_USER, ANY_USER, true));
    }

    #[test]
    fn a_cgroup_is_asked_about_by_its_id() {
        let request = request_about(Subject::Cgroup(1 << 40));
        assert_eq!((request.id, request.scope), (1 << 40, preference_scope::SCOPE_CGROUP));
    }

    #[test]
    fn numbers_past_the_tables_are_refused() {
        let refusal = |place| {
            let preference = Preference { place: Some(place), latency_critical: false };
            preference.write(&mut request_about(Subject::Task(1))).unwrap_err().to_string()
        };
        assert_eq!(
            refusal(Place::Cpus(vec![0, 1024])),
            "CPU 1024 is out of range; the scheduler supports numbers below 1024"
        );
        assert_eq!(
            refusal(Place::Nodes { nodes: vec![128], cpus: vec![0] }),
            "node 128 is out of range; the scheduler supports numbers below 128"
        );
    }
}
