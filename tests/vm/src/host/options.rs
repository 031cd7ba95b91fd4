//! The options of the command line.

use clap::Parser;
use std::path::PathBuf;
use std::thread;

/// Where `scripts/kernel-debian` unpacks its kernel.
pub const KERNEL_FOLDER: &str = ".tools/vm/kernel-debian";

/// Boots real kernels in QEMU and tries the scheduler on them.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Options {
    /// Folder of the kernel: vmlinuz, and modules/ with those that are not built in
    #[arg(long, value_name = "DIR", default_value = KERNEL_FOLDER)]
    pub kernel: PathBuf,
    /// Boot this leg only
    #[arg(long, value_name = "NAME")]
    pub leg: Option<String>,
    /// Run this case only, in every leg that has it
    #[arg(long, value_name = "NAME")]
    pub case: Option<String>,
    /// Leave out the cases that take long, and limit the churn to 20 s
    #[arg(long)]
    pub short: bool,
    /// Print LEG/CASE for each that would run, and boot nothing
    #[arg(long)]
    pub list: bool,
    /// Compare the simulator with the records in this folder, and boot nothing; may be given several times,
    /// for runs with several seeds
    #[arg(long, value_name = "DIR")]
    pub compare: Vec<PathBuf>,
    /// Length of the churn, seconds of the guest's clock
    #[arg(long, value_name = "SECONDS", default_value_t = 120, default_value_if("short", "true", "20"))]
    pub churn: u64,
    /// Seed of the legs in which QEMU counts instructions; they run the same with the same seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u32,
    /// Legs at a time
    #[arg(long, value_name = "N", default_value_t = thread::available_parallelism().map_or(1, usize::from))]
    pub jobs: usize,
}
