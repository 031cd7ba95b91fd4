//! Schedulers of hosts and of guests at once.

use crate::support::{build, count, file};

/// Pairs in which each scheduler is once that of the host and once that of the guests.
pub const LEVELS: [(&str, &str); 6] = [
    ("fifo", "scx_bpfland"),
    ("weighted", "central"),
    ("central", "scx_flash"),
    ("scx_beerland", "weighted"),
    ("scx_bpfland", "scx_beerland"),
    ("scx_flash", "fifo"),
];

/// Three VMs whose guests fork, exec, talk, lock and sleep, and processes of the host, on a machine that is
/// too small.
pub fn two_levels(host: &str, guest: &str) -> String {
    format!(
        r#"length = "200ms"
machine = "xeon-e5620-2s"
[policy]
host = {}
guest = {}
[programs.make]
ops = [{{ repeat = {{ times = 20, body = [{{ fork = "shell" }}, "wait_child"] }} }}, {{ count = "made" }}]
[programs.shell]
ops = [{{ compute = "50us" }}, {{ exec = "cc" }}]
[programs.cc]
ops = [{{ compute = {{ uniform = ["300us", "900us"] }} }}, {{ lock = "inode" }}, {{ compute = "20us" }}, {{ unlock = "inode" }}, {{ count = "objects" }}]
[programs.ping]
ops = [{{ fork = "pong" }}, {{ forever = [{{ compute = "20us" }}, {{ signal = "there" }}, {{ wait = "back" }}, {{ count = "rounds" }}] }}]
[programs.pong]
ops = [{{ forever = [{{ wait = "there" }}, {{ compute = "20us" }}, {{ signal = "back" }}] }}]
[programs.hog]
ops = [{{ forever = [{{ compute = {{ exponential = "1ms" }} }}, {{ count = "rounds" }}] }}]
[[vm]]
group = "build"
count = 2
vcpus = 8
memory = "1GiB"
[vm.guest]
process = [{{ program = "make", copies = 12 }}, {{ program = "hog", copies = 2, nice = 5, cpus = "0-1" }}]
[[vm]]
group = "talk"
vcpus = 4
memory = "1GiB"
affinity_change = [{{ at = "50ms", hard = "4-7" }}, {{ at = "100ms", hard = "all" }}]
[vm.guest]
family_channels = ["there", "back"]
process = [{{ program = "ping", copies = 6 }}]
[[processes]]
group = "hogs"
memory = "1GiB"
process = [{{ program = "hog", copies = 4 }}]
"#,
        file(host),
        file(guest)
    )
}

#[test]
fn hosts_and_guests_get_their_work_done() {
    for (host, guest) in LEVELS {
        let metrics =
            tandem_sim::run(&build(&two_levels(host, guest)), 1).unwrap_or_else(|error| panic!("{error}"));
        let build = metrics.vms.iter().filter(|vm| vm.group == "build");
        for vm in build {
            assert_eq!((vm.counts["made"], vm.counts["objects"]), (12, 240), "{host} and {guest}");
        }
        assert!(count(&metrics, "talk") > 2_000, "{host} and {guest}");
        assert!(count(&metrics, "hogs") > 200, "{host} and {guest}");
    }
}
