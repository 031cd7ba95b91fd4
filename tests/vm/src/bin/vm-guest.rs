//! `vm-guest`: runs in the guest, as its first process and as the programs that it starts; see [`vm_tests`].

use std::process::ExitCode;

fn main() -> ExitCode {
    vm_tests::guest::main()
}
