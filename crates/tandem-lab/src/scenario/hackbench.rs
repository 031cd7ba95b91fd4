//! Hackbench as programs: groups in which every sender writes to every receiver.
//!
//! A group has as many senders as receivers. Each receiver has a socket, or a pipe, of its own, into which
//! all senders of the group write in turn; it reads message by message. Buffers are as large as Linux makes
//! them, so that senders that are ahead of their receivers come to wait.
//!
//! Limits: all tasks are there from the start, and are as Linux places new ones; nothing waits for the last
//! group.

use super::amount::count_in;
use super::compile::Used;
use super::file::{HackbenchTable, Transport};
use std::sync::Arc;
use tandem_file::file_error::FileError;
use tandem_file::located::SourceFile;
use tandem_sim::program::{Amount, Op, Program};
use tandem_sim::scenario::PROCESSES_MAX;

/// Senders of a group, and receivers, unless its option `--fds` says otherwise.
const FDS: u32 = 20;
/// Most of them: the tasks of a group are twice as many.
const FDS_MAX: u32 = 1_000;

/// What a transport is like for messages of 100 bytes.
struct Link {
    /// Messages that fit before a writer has to wait.
    capacity: u32,
    /// Messages that are left when those that wait are woken, all of them.
    resume_at: u32,
    /// Cache lines of a message, which the reader fetches from the writer.
    message_lines: u32,
    /// Cache lines of the queue itself, which both write.
    queue_lines: u32,
    /// Kernel and user time of one write, ns.
    write_ns: u64,
    /// Kernel and user time of one read, ns.
    read_ns: u64,
}

impl Link {
    /// - *Pipes*: hackbench with 10 groups and 100,000 loops takes 74.6 s on 8 vCPUs (IPI virtualization
    ///   series, version 7, 2022): 1.49 us of CPU time for a message's write, read and scheduling. 650 ns
    ///   each for writing and reading leave 190 ns. A pipe has 16 pages of 40 such messages, and wakes its
    ///   writers whenever one is free.
    /// - *Sockets*: a message is charged with 768 bytes (`truesize`), and 212,992 may be on their way
    ///   (`net.core.wmem_default`); writers are woken when a quarter of that is left (`unix_writable()`).
    ///   Assumed: twice the time of pipes, for a buffer to be allocated, queued and freed.
    /// - Lines, assumed: two of data and, for sockets, four of the buffer's description; of the queue its
    ///   lock, its ends and what waits on it and, for sockets, the sender's account.
    fn new(transport: Transport) -> Self {
        match transport {
            Transport::Pipes => Self {
                capacity: 640,
                resume_at: 600,
                message_lines: 2,
                queue_lines: 3,
                write_ns: 650,
                read_ns: 650,
            },
            Transport::Sockets => Self {
                capacity: 277,
                resume_at: 69,
                message_lines: 6,
                queue_lines: 4,
                write_ns: 1_300,
                read_ns: 1_300,
            },
        }
    }
}

/// A program for each task, and what the programs use.
pub fn build(table: &HackbenchTable, source: &SourceFile) -> Result<(Vec<Arc<Program>>, Used), FileError> {
    let fds = match &table.fds {
        None => FDS,
        Some(fds) => count_in(fds, "`fds`", 1..=FDS_MAX, source)?,
    } as usize;
    let groups_max = (PROCESSES_MAX / (2 * fds as u64)) as u32;
    let groups = count_in(&table.groups, "`groups`", 1..=groups_max, source)? as usize;
    let loops = match &table.loops {
        None => None,
        Some(loops) => Some(u64::from(count_in(loops, "`loops`", 1..=u32::MAX, source)?)),
    };
    let link = Link::new(table.transport);
    let program = |times, body| Arc::new(Program { ops: vec![Op::Repeat { times, body }], profiles: vec![] });
    let work = |ns| Op::Compute { work: Amount::Fixed(ns), profile: None };
    let mut programs = Vec::with_capacity(groups * 2 * fds);
    for group in 0..groups {
        let channels = group * fds..(group + 1) * fds;
        let write = |channel| {
            [
                work(link.write_ns),
                Op::Send {
                    channel,
                    capacity: link.capacity,
                    resume_at: Some(link.resume_at),
                    message_lines: link.message_lines,
                    queue_lines: link.queue_lines,
                },
            ]
        };
        let sender = program(loops, channels.clone().flat_map(write).collect());
        let receiver = |channel| {
            let body = vec![Op::Wait { channel }, work(link.read_ns), Op::Count { counter: 0, amount: 1 }];
            program(loops.map(|loops| loops * fds as u64), body)
        };
        // As hackbench starts them: the receivers of a group, then its senders.
        programs.extend(channels.map(receiver));
        programs.extend(std::iter::repeat_n(sender, fds));
    }
    let used = Used { channels: groups * fds, locks: 0, counters: vec!["messages".into()] };
    Ok((programs, used))
}
