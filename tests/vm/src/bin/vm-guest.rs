//! `vm-guest`: runs in the guest, as its first process and as what that starts; see [`vm_tests`].

use std::process::ExitCode;

fn main() -> ExitCode {
    vm_tests::guest::main()
}
