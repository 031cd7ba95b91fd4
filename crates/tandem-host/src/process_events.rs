//! Reports processes that have executed another program, which the kernel sends over netlink
//! (`drivers/connector/cn_proc.c`, the protocol in `include/uapi/linux/cn_proc.h`).
//!
//! Events wait in the socket until the caller reads them, so a host that starts thousands of programs per
//! second does not wake the caller thousands of times. If there are more than the socket holds, some are
//! lost, and the result says so.
//!
//! `tests/vm` tests the reception of events; in a container there may be none.
//!
//! Limits: the kernel must have CONFIG_PROC_EVENTS, and sends events only to root in the initial namespaces.

use netlink_sys::protocols::NETLINK_CONNECTOR;
use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use std::collections::BTreeSet;
use std::io;
use std::process;

/// `CN_IDX_PROC` and `CN_VAL_PROC` of `include/uapi/linux/connector.h`: the group and its messages.
const GROUP: u32 = 1;
/// `PROC_CN_MCAST_LISTEN`.
const LISTEN: u32 = 1;
/// `PROC_EVENT_EXEC`.
const EXEC: u32 = 2;
/// `NLMSG_DONE`.
const DONE: u16 = 3;

/// Lengths of `struct nlmsghdr`, `struct cn_msg` and the request.
const NETLINK_HEADER: usize = 16;
const CONNECTOR_HEADER: usize = 20;
const INPUT: usize = 8;
/// The offset of the process's number, that of its first thread, in an event: after event type, CPU, time and
/// thread.
const PROCESS: usize = NETLINK_HEADER + CONNECTOR_HEADER + 16 + 4;

/// Room for events, in bytes as the kernel counts them: some thousand events.
const BUFFER: usize = 4 << 20;

/// A subscription.
#[derive(Debug)]
pub struct ProcessEvents {
    socket: Socket,
    message: Vec<u8>,
}

/// The events since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Happened {
    /// Processes that run another program.
    pub executed: BTreeSet<u32>,
    /// Whether events were lost.
    pub is_incomplete: bool,
}

impl ProcessEvents {
    /// Subscribes to events.
    ///
    /// # Errors
    /// If the kernel does not send them, or not to this user.
    pub fn subscribe() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_CONNECTOR)?;
        socket.set_non_blocking(true)?;
        socket.set_rx_buf_sz(BUFFER as i32)?;
        socket.bind(&SocketAddr::new(0, GROUP))?;
        socket.send_to(&request(), &SocketAddr::new(0, 0), 0)?;
        Ok(Self { socket, message: Vec::with_capacity(4096) })
    }

    /// The events since the last call. Does not wait.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn take(&mut self) -> io::Result<Happened> {
        let mut happened = Happened::default();
        loop {
            self.message.clear();
            match self.socket.recv(&mut self.message, 0) {
                Ok(_) => happened.executed.extend(executed(&self.message)),
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EAGAIN) => return Ok(happened),
                    Some(Errno::ENOBUFS) => happened.is_incomplete = true,
                    Some(Errno::EINTR) => {}
                    _ => return Err(error),
                },
            }
        }
    }
}

/// The message that requests events of executed programs.
fn request() -> Vec<u8> {
    let length = NETLINK_HEADER + CONNECTOR_HEADER + INPUT;
    let mut message = Vec::with_capacity(length);
    message.extend((length as u32).to_ne_bytes());
    message.extend(DONE.to_ne_bytes());
    message.extend(0u16.to_ne_bytes()); // flags
    message.extend(0u32.to_ne_bytes()); // sequence
    message.extend(process::id().to_ne_bytes());
    message.extend(GROUP.to_ne_bytes());
    message.extend(1u32.to_ne_bytes()); // CN_VAL_PROC
    message.extend([0; 8]); // sequence, acknowledgement
    message.extend((INPUT as u16).to_ne_bytes());
    message.extend([0; 2]); // flags
    message.extend(LISTEN.to_ne_bytes());
    message.extend(EXEC.to_ne_bytes());
    message
}

/// The process that has executed a program, according to a message.
fn executed(message: &[u8]) -> Option<u32> {
    let number = |at: usize| Some(u32::from_ne_bytes(message.get(at..at + 4)?.try_into().ok()?));
    let event = NETLINK_HEADER + CONNECTOR_HEADER;
    (number(event)? == EXEC).then(|| number(PROCESS))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_messages_tell_nothing() {
        let mut message = vec![0; 76];
        assert_eq!(executed(&message), None, "an acknowledgement");
        message[36] = 2;
        message[56..60].copy_from_slice(&4711u32.to_ne_bytes());
        assert_eq!(executed(&message), Some(4711));
        for length in 0..60 {
            assert_eq!(executed(&message[..length]), None, "{length} bytes");
        }
        assert_eq!(request().len(), 44);
    }
}
