//! Where pages of a process are, and moving them: the border to move_pages(2).
//!
//! It takes the right to trace the process, `CAP_SYS_PTRACE`, since Linux 4.13 (`find_mm_struct` in `mm/migrate.c`); `CAP_SYS_NICE` is for
//! pages that several processes have mapped, which stay where they are. The kernel moves a huge page as a whole, faults in nothing, and
//! keeps to the process's cpuset.
//!
//! migrate_pages(2) would take one call, in which it moves all pages of the process: those of files and those under a policy as well,
//! with no bound of time or bandwidth, and no word about pages that stayed.
//!
//! This is unsafe code. It passes three arrays to the kernel, of the length that it passes with them.
#![allow(unsafe_code)]

use nix::libc;
use rustix::io::Errno;
use std::ffi::c_void;
use std::ptr;

/// Moves pages that only this process has mapped: `include/uapi/linux/mempolicy.h`.
const MPOL_MF_MOVE: libc::c_int = 1 << 1;

/// On which node a page is, or why that is not known, or why it was not moved.
pub type Status = Result<u32, Errno>;

/// The status that the kernel writes as a number: a node, or an error's number below zero.
pub(super) fn status_of(number: i32) -> Status {
    u32::try_from(number).map_err(|_| Errno::from_raw_os_error(-number))
}

/// Who looks at pages of processes, and moves them.
pub trait Pages: Send + Sync {
    /// On which node the page at each address is.
    ///
    /// # Errors
    /// If the process is gone, or may not be looked at.
    fn locate(&self, pid: u32, addresses: &[u64]) -> Result<Vec<Status>, Errno>;

    /// Moves the pages at these addresses to a node. Why a page was not moved stands in its status; one that was moved may have any: look
    /// where it is.
    ///
    /// # Errors
    /// If the process is gone, or may not be changed, or the node has no memory left. Some pages may have been moved.
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
    /// If the kernel cannot, or a filter of system calls keeps this process from it.
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

/// Calls the kernel, which only tells where pages are if there is no node.
fn move_pages(pid: u32, addresses: &[u64], node: Option<u32>) -> (Vec<Status>, Result<(), Errno>) {
    let pages: Vec<*const c_void> =
        addresses.iter().map(|&address| ptr::without_provenance(address as usize)).collect();
    let nodes: Option<Vec<u32>> = node.map(|node| vec![node; addresses.len()]);
    // The kernel leaves out pages that it was about to move when it failed.
    let mut statuses = vec![-Errno::BUSY.raw_os_error(); addresses.len()];
    // SAFETY: The kernel reads as many addresses and nodes as it is told, and writes as many statuses; all three arrays have that length
    // and outlive the call. The addresses are the other process's: nothing here follows them.
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
    // A number of pages that were not moved is no error.
    let done = if result < 0 { Err(Errno::from_raw_os_error(nix::errno::Errno::last_raw())) } else { Ok(()) };
    (statuses.collect(), done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Fails where the kernel has no NUMA, which is no error of this code.
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
