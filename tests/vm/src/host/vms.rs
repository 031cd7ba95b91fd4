//! The guest's files for VMs of its own: QEMU, and a program for these to run.

use super::cpio::Archive;
use super::initramfs::{add_program_at, find_program, in_bin, read, run};
use crate::guest::vm::FIRMWARE;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const QEMU: &str = "qemu-system-x86_64";
const FIRMWARE_SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/busy_firmware.S");

/// Adds both; `work` is for intermediate files.
pub fn add(archive: &mut Archive, work: &Path) -> Result<()> {
    add_program_at(archive, &in_bin(QEMU), &find_qemu()?)?;
    let object = work.join("busy_firmware.o");
    let image = work.join("busy_firmware.bin");
    run(Command::new("cc").arg("-c").arg("-o").args([&object, Path::new(FIRMWARE_SOURCE)]))?;
    run(Command::new("objcopy").args(["-O", "binary", "-j", ".text"]).args([&object, &image]))?;
    archive.file(Path::new(FIRMWARE), &read(&image)?);
    Ok(())
}

/// The program itself: what `scripts/qemu` puts into PATH is a script that calls it.
fn find_qemu() -> Result<PathBuf> {
    let first = find_program(QEMU)?;
    if read(&first)?.starts_with(b"\x7fELF") {
        return Ok(first);
    }
    let script = fs::read_to_string(&first).with_context(|| format!("cannot read {}", first.display()))?;
    let program = script.split('\'').find(|word| word.ends_with(QEMU));
    program.map(PathBuf::from).with_context(|| format!("{} calls no {QEMU}", first.display()))
}
