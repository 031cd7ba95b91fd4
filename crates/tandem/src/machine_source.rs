//! Where a verb gets its machine from: `--machine`, `--sysfs` or `--hwloc`, or else this machine.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tandem_host::topology::{read_hwloc, read_sysfs_assuming};
use tandem_lab::machine_file;
use tandem_machine::Machine;
use tandemd::error::BadInput;

/// The machine that a verb is about; at most one of these.
#[derive(clap::Args)]
#[group(multiple = false)]
pub struct MachineSource {
    /// A preset, such as xeon-e5620-2s, PACKAGESxCORESxTHREADS, such as 2x64x2 or with the last-level caches
    /// and NUMA nodes of each package 2x96x2:llcs=12,nodes=4, or a machine file [default: this machine]
    #[arg(long, value_name = "NAME|FILE")]
    machine: Option<String>,
    /// Another machine: a folder with copies of its /sys and /proc
    #[arg(long, value_name = "ROOT")]
    sysfs: Option<PathBuf>,
    /// Another machine, described by a file that `lstopo --of xml` wrote there
    #[arg(long, value_name = "FILE")]
    hwloc: Option<PathBuf>,
}

impl MachineSource {
    /// Whether it is the machine on which this runs.
    pub fn is_this_machine(&self) -> bool {
        self.machine.is_none() && self.sysfs.is_none() && self.hwloc.is_none()
    }

    /// Reads the machine.
    pub fn load(&self) -> anyhow::Result<Machine> {
        Ok(match (&self.machine, &self.sysfs, &self.hwloc) {
            (Some(name), ..) => named_or_file(name)?,
            (_, Some(root), _) => reporting(read_sysfs_assuming(root).map_err(BadInput::new)?),
            (_, _, Some(file)) => read_hwloc(file).map_err(BadInput::new)?,
            // Nothing that the user gave is to blame then.
            (None, None, None) => reporting(read_sysfs_assuming(Path::new("/"))?),
        })
    }
}

/// Reports what had to be assumed of a machine.
fn reporting((machine, assumed): (Machine, Vec<String>)) -> Machine {
    for one in assumed {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "tandem: assumed: {one}");
    }
    machine
}

/// The machine of that name, or of that file.
pub fn named_or_file(name: &str) -> Result<Machine, BadInput> {
    machine_file::named_or_file(name).map_err(BadInput::new)
}
