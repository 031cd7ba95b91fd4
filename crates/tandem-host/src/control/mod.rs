//! A UNIX socket for those who are not root: users steer their own tasks, and a group reads.
//!
//! **Problem.** The scheduler's maps and programs are root's. Users should be able to say where their own tasks would
//! rather run, and monitoring should not run as root.
//!
//! **Approach.** One socket that everybody may connect to; the kernel tells who did ([`peer`]), [`permission`] says
//! what these may, and what is done and what is refused is logged ([`events`]). A request is a line of JSON, and so is the answer
//! ([`protocol`]). A connection is a thread, and there are few of them: so many for each user but root, so many in all, a
//! longest line and a longest pause ([`server`]).
//!
//! **Limits.** Numbers of tasks are those of the machine; a client in a PID namespace of its own knows others, and is
//! told that these do not exist or belong to others. Who is in the group is what the system's list of users says now,
//! not what it said when a session began.

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

/// Where the socket is.
pub const SOCKET: &str = "/run/tandem/tandem.sock";
