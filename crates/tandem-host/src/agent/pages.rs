//! Locates and moves pages of a process: the boundary to move_pages(2).
//!
//! Since Linux 4.13 this needs the right to trace the process, `CAP_SYS_PTRACE` (`find_mm_struct` in
//! `mm/migrate.c`); `CAP_SYS_NICE` is for pages that several processes have mapped, which stay where they
//! are. The kernel moves a huge page as a whole, faults in nothing, and respects the process's cpuset.
//!
//! migrate_pages(2) would take one call, in which it moves all pages of the process, including those of files
//! and those under a policy, without a bound of time or bandwidth, and without a report of pages that stayed.
//!
//! This is unsafe code. It passes three arrays to the kernel, with their length.
#![allow(unsafe_code)]

use nix::libc;
use rustix::io::Errno;
use std::ffi::c_void;
use std::ptr;

/// Moves pages that only this process has mapped: `include/uapi/linux/mempolicy.h`.
const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// The node of a page, or why it is unknown, or why the page was not moved.
pub type Status = Result<u32, Errno>;

/// Decodes the status that the kernel writes: a node, or a negative error number.
pub(super) fn status_of(number: i32) -> Status {
    u32::try_from(number).map_err(|_| Errno::from_raw_os_error(-number))
}

/// Locates and moves pages of processes.
pub trait Pages: Send + Sync {
    /// The node of the page at each address.
    ///
    /// # Errors
    /// If the process is gone, or may not be traced.
    fn locate(&self, pid: u32, addresses: &[u64]) -> Result<Vec<Status>, Errno>;

    /// Moves the pages at these addresses to a node. The status of a page that was not moved says why; that
    /// of a moved page may be anything: locate it.
    ///
    /// # Errors
    /// If the process is gone, or may not be changed, or the node has no memory left. Some pages may have
    /// been moved.
    fn transfer(
        &self,
        pid: u32,
        addresses: &[u64],
        node: u32,
        statuses: &mut Vec<Status>,
    ) -> Result<(), Errno>;
}

/// The pages of this machine.
#[derive(Clone, Copy, Debug)]
pub struct KernelPages;

impl KernelPages {
    /// Whether pages can be moved at all.
    ///
    /// # Errors
    /// If the kernel cannot, or a filter of system calls denies it to this process.
    pub fn probe() -> Result<(), Errno> {
        move_pages(std::process::id(), &[], None).1
    }
}

impl Pages for KernelPages {
    fn locate(&self, pid: u32, addresses: &[u64]) -> Result<Vec<Status>, Errno> {
        let (statuses, done) = move_pages(pid, addresses, None);
        done.map(|()| statuses)
    }

    fn transfer(
        &self,
        pid: u32,
        addresses: &[u64],
        node: u32,
        statuses: &mut Vec<Status>,
    ) -> Result<(), Errno> {
        let done;
        (*statuses, done) = move_pages(pid, addresses, Some(node));
        done
    }
}

/// Calls the kernel, which only reports where pages are if there is no node.
fn move_pages(pid: u32, addresses: &[u64], node: Option<u32>) -> (Vec<Status>, Result<(), Errno>) {
    let pages: Vec<*const c_void> =
        addresses.iter().map(|&address| ptr::without_provenance(address as usize)).collect();
    let nodes: Option<Vec<u32>> = node.map(|node| vec![node; addresses.len()]);
    // On failure the kernel leaves out the pages that it was about to move.
    let mut statuses = vec![-Errno::BUSY.raw_os_error(); addresses.len()];
    // SAFETY: The kernel reads and writes as many addresses, nodes and statuses as `addresses.len()`; all
    // three arrays have that length and outlive the call. The addresses are the other process's: nothing here
    // follows them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            libc::c_long::from(pid as i32),
            addresses.len(),
            pages.as_ptr(),
            nodes.as_ref().map_or(ptr::null(), |nodes| nodes.as_ptr()),
            statuses.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    let statuses = statuses.into_iter().map(status_of);
    // A positive number of pages that were not moved is not an error.
    let done = if result < 0 { Err(Errno::from_raw_os_error(nix::errno::Errno::last_raw())) } else { Ok(()) };
    (statuses.collect(), done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// False where the kernel has no NUMA, which is not an error of this code.
    fn is_possible() -> bool {
        KernelPages::probe() != Err(Errno::NOSYS)
    }

    #[test]
    fn pages_of_this_process_are_found_and_moved_to_where_they_are() {
        if !is_possible() {
            return;
        }
        let memory = vec![1u8; 1 << 16];
        let addresses: Vec<u64> = memory.chunks(4096).map(|page| page.as_ptr() as u64).collect();
        let pid = std::process::id();
        let before = KernelPages.locate(pid, &addresses).unwrap();
        let node = before[0].unwrap();
        let mut statuses = Vec::new();
        KernelPages.transfer(pid, &addresses, node, &mut statuses).unwrap();
        assert_eq!(statuses, vec![Ok(node); addresses.len()]);
        assert_eq!(KernelPages.locate(pid, &[0]).unwrap(), [Err(Errno::FAULT)], "nothing is there");
        assert!(KernelPages.transfer(pid, &addresses, 1023, &mut statuses).is_err(), "there is no such node");
    }

    #[test]
    fn a_child_is_found_until_it_has_ended() {
        if !is_possible() {
            return;
        }
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let end = u64::from_str_radix(stack.split(['-', ' ']).nth(1).unwrap(), 16).unwrap();
        let found = KernelPages.locate(child.id(), &[end - 4096]).unwrap();
        let node = found[0].unwrap();
        let mut statuses = Vec::new();
        KernelPages.transfer(child.id(), &[end - 4096], node, &mut statuses).unwrap();
        assert_eq!(statuses, [Ok(node)]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(KernelPages.locate(child.id(), &[end - 4096]), Err(Errno::SRCH));
    }
}
