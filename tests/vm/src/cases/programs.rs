//! The size of the scheduler, so that growth is noticed.

use crate::guest::Guest;
use crate::guest::tandem::Tandem;
use anyhow::{Result, ensure};
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};

/// The most instructions that the kernel's verifier follows for one program (`BPF_COMPLEXITY_LIMIT_INSNS`).
const VERIFIED_MAX: u32 = 1_000_000;

/// The verifier accepts all programs and is far from its limits; the cost of each is noted.
pub fn programs_are_verified(guest: &Guest) -> Result<()> {
    let before: Vec<u32> = ProgInfoIter::default().map(|program| program.id).collect();
    let scheduler = Tandem::run(&[])?;
    let options =
        ProgInfoQueryOptions::default().include_xlated_prog_insns(true).include_jited_prog_insns(true);
    let ours: Vec<ProgramInfo> =
        ProgInfoIter::with_query_opts(options).filter(|program| !before.contains(&program.id)).collect();
    scheduler.stop()?;

    for program in &ours {
        let instructions = program.xlated_prog_insns.len() / size_of::<u64>();
        guest.note(format!(
            "{:<16} {instructions:>5} instructions, {:>6} bytes of machine code, {:>6} instructions verified",
            program.name.to_string_lossy(),
            program.jited_prog_insns.len(),
            program.verified_insns,
        ))?;
    }
    let verified: u32 = ours.iter().map(|program| program.verified_insns).sum();
    guest.note(format!("{} programs, {verified} instructions verified", ours.len()))?;
    let expected = ["tandem_select_c", "tandem_enqueue", "tandem_dispatch", "prefer"];
    for name in expected {
        ensure!(ours.iter().any(|program| program.name == name), "the program {name} is not loaded");
    }
    let largest = ours.iter().map(|program| program.verified_insns).max().unwrap_or(0);
    ensure!(largest < VERIFIED_MAX / 4, "a program takes {largest} instructions to verify");
    Ok(())
}
