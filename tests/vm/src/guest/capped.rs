//! A command with fewer capabilities than root has, as a service manager starts it.

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// How `vm-guest` is called to become another command.
pub const ARGUMENT: &str = "capped";

/// The command line that becomes `tandemd run` with these capabilities alone, named as in capabilities(7),
/// between spaces.
pub fn tandem_run(capabilities: &str) -> Command {
    let mut command = Command::new("vm-guest");
    command.args([ARGUMENT, capabilities, "tandemd", "run"]);
    command
}

/// Becomes the command that the arguments name, after the capabilities that it may keep.
pub fn run(arguments: &[String]) -> Result<()> {
    let [_, capabilities, program, arguments @ ..] = arguments else { bail!("no command is named") };
    let mut kept = CapabilitySet::empty();
    for name in capabilities.split_whitespace() {
        let flag = name.strip_prefix("CAP_").and_then(CapabilitySet::from_name);
        kept |= flag.with_context(|| format!("{name} is no capability"))?;
    }
    for capability in CapabilitySet::all().difference(kept).iter() {
        match remove_capability_from_bounding_set(capability) {
            // The kernel is older than the capability.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error).context("cannot give up a capability"),
        }
    }
    Err(Command::new(program).args(arguments).exec()).with_context(|| format!("cannot start {program}"))
}
