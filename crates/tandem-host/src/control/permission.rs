//! Who may ask for what.
//!
//! Root may everything. Members of the group `tandem` may read everything. Every user may read the preferences of tasks and cgroups that
//! are the user's own, and set them, unless the settings leave that to root; that a task is the user's own, the scheduler itself sees to
//! (see `bpf/requests.h`). Threads of VMs that a manager has started are root's to steer, unless the settings say otherwise: libvirt runs all
//! VMs as one user, and who breaks out of one of them is not to steer the others.
//! To be exempt from rate control is a privilege like a negative nice value: it is root's to give.

use super::peer::Peer;
use super::protocol::Request;
use tandem_settings::Asker;
use thiserror::Error;

/// Why somebody may not; one sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Everything but one's own is for the group.
    #[error(
        "only root and members of the group `tandem` may read this; ask to be added with `usermod -aG tandem USER`"
    )]
    NoReader,
    /// A privilege.
    #[error("only root may exempt tasks from rate control; leave out --latency-critical")]
    NotRoot,
    /// The operator has said so.
    #[error("on this machine only root may set preferences: [steering] of the settings says so")]
    UsersMayNot,
    /// One VM of many that a manager runs as one user.
    #[error(
        "it is of a VM that a manager has started; only root may set its preference, unless [steering] of the settings says `managed = true`"
    )]
    Managed,
    /// The task or cgroup of somebody else.
    #[error("it belongs to another user; only root may set or read its preference")]
    NotOwner,
}

/// Whether a peer may ask this, and as whom the scheduler is to be asked.
///
/// `users_may_steer` is what the settings say; `is_reader` is asked only where it matters. That a cgroup is the peer's is not known here.
///
/// # Errors
/// If it may not.
pub fn permit(
    peer: &Peer,
    request: &Request,
    users_may_steer: bool,
    is_reader: impl Fn(&Peer) -> bool,
) -> Result<Asker, Refusal> {
    if peer.is_root() {
        return Ok(Asker::Root);
    }
    let own = Asker::User { user: peer.user, payer: peer.payer };
    match request {
        Request::Prefer { .. } if !users_may_steer => Err(Refusal::UsersMayNot),
        Request::Prefer { latency_critical: true, .. } => Err(Refusal::NotRoot),
        Request::Prefer { .. } => Ok(own),
        Request::PreferenceOf { .. } if is_reader(peer) => Ok(Asker::Root),
        Request::PreferenceOf { .. } => Ok(own),
        Request::Status | Request::Vms if is_reader(peer) => Ok(own),
        Request::Status | Request::Vms => Err(Refusal::NoReader),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Whom;

    fn peer(user: u32) -> Peer {
        Peer { pid: 42, user, group: user, payer: user }
    }

    fn prefer(latency_critical: bool) -> Request {
        Request::Prefer { whom: Whom::Task(7), place: None, latency_critical }
    }

    #[test]
    fn each_may_what_the_module_says() {
        let read = Request::PreferenceOf { whom: Whom::Task(7) };
        let user = Asker::User { user: 1000, payer: 1000 };
        let cases = [
            // who, reader, request, outcome
            (0, false, prefer(true), Ok(Asker::Root)),
            (0, false, Request::Status, Ok(Asker::Root)),
            (1000, false, prefer(false), Ok(user)),
            (1000, false, prefer(true), Err(Refusal::NotRoot)),
            (1000, false, read.clone(), Ok(user)),
            (1000, false, Request::Status, Err(Refusal::NoReader)),
            (1000, true, prefer(false), Ok(user)),
            (1000, true, prefer(true), Err(Refusal::NotRoot)),
            (1000, true, read, Ok(Asker::Root)),
            (1000, true, Request::Status, Ok(user)),
            (0, false, Request::Vms, Ok(Asker::Root)),
            (1000, false, Request::Vms, Err(Refusal::NoReader)),
            (1000, true, Request::Vms, Ok(user)),
        ];
        for (who, is_reader, request, outcome) in cases {
            let permitted = permit(&peer(who), &request, true, |_| is_reader);
            assert_eq!(permitted, outcome, "{who} {is_reader} {request:?}");
            let is_steering = who != 0 && matches!(request, Request::Prefer { .. });
            let outcome = if is_steering { Err(Refusal::UsersMayNot) } else { outcome };
            let permitted = permit(&peer(who), &request, false, |_| is_reader);
            assert_eq!(permitted, outcome, "{who} {is_reader} {request:?}");
        }
    }
}
