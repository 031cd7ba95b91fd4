//! A UNIX socket for users other than root: they steer their own tasks, and a group reads.
//!
//! **Problem.** Only root has access to the scheduler's maps and programs. Users should be able to set
//! preferences of their own tasks, and monitoring should not run as root.
//!
//! **Approach.** One socket to which every user may connect. The kernel identifies the peer ([`peer`]),
//! [`permission`] says what it may do, and the log has what was done and what was refused ([`events`]). A
//! request is a line of JSON, and so is the answer ([`protocol`]). A connection is a thread, and there are
//! few of them: limits apply per user (except root), to all together, to the length of a line and to pauses
//! ([`server`]).
//!
//! **Limits.** Numbers of tasks are those of the machine; a client in a PID namespace of its own uses others,
//! and gets the answer that these do not exist or belong to others. Membership of the group is what the
//! system's list of users says now, not what it said when a session began.

mod client;
mod events;
mod observing;
mod peer;
mod permission;
mod protocol;
mod requests;
mod server;
mod steering;

pub use client::{Client, ClientError};
pub use observing::Observing;
pub use peer::READERS;
pub use protocol::{Answer, ErrorKind, ErrorTold, LINE_MAX, PreferenceTold, Request, WantedPlace, Whom};
pub use requests::{RequestCounts, Requests};
pub use server::{Backend, Server};
pub use steering::Steering;

/// The path of the socket.
pub const SOCKET: &str = "/run/tandem/tandem.sock";
