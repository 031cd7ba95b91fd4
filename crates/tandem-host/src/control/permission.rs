//! Permissions for requests.
//!
//! Root may do everything. Members of the group `tandem` may read everything. Every user may read and set the
//! preferences of their own tasks and cgroups, unless the settings reserve setting for root; the scheduler
//! itself checks the owner of a task (see `bpf/requests.h`). Only root may steer threads of VMs that a
//! manager has started, unless the settings say otherwise: libvirt runs all VMs as one user, and an attacker
//! who breaks out of one of them must not steer the others. Exemption from rate control is a privilege like a
//! negative nice value: only root may grant it.

use super::peer::Peer;
use super::protocol::Request;
use tandem_settings::Asker;
use thiserror::Error;

/// Why a request is refused; one sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Everything that does not belong to the user is for the group.
    #[error(
        "only root and members of the group `tandem` may read this; ask to be added with `usermod -aG tandem USER`"
    )]
    NoReader,
    /// A privilege.
    #[error("only root may exempt tasks from rate control; leave out --latency-critical")]
    NotRoot,
    /// The operator's decision.
    #[error("only root may set preferences on this machine: see [steering] of the settings")]
    UsersMayNot,
    /// One VM of many that a manager runs as one user.
    #[error(
        "it belongs to a VM that a manager has started; only root may set its preference, unless [steering] of the settings has `managed = true`"
    )]
    Managed,
    /// The task or cgroup of another user.
    #[error("it belongs to another user; only root may set or read its preference")]
    NotOwner,
}

/// Checks whether a peer may make this request, and returns as whom to ask the scheduler.
///
/// `users_may_steer` is the setting; `is_reader` is called only where it matters. The owner of a cgroup is
/// not checked here.
///
/// # Errors
/// If the request is refused.
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
    fn permissions_are_as_documented() {
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
