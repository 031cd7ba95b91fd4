//! Tests of the scheduler on real kernels, which boot in QEMU.
//!
//! Only a kernel decides whether a scheduler works: its verifier, its watchdog, its hotplug. A kernel cannot
//! be mocked and the machine's own must not be risked, so each *leg* boots a virtual machine, which runs a
//! list of *cases* and powers off. No hardware virtualisation is needed: QEMU emulates.
//!
//! Two programs share this crate. `vm-tests` ([`host`]) runs on the machine: it packs an initramfs, boots the
//! legs and prints the results. `vm-guest` ([`guest`]) is the first process inside: it sets the system up and
//! runs the [`cases`]. Their messages are in [`report`], their common knowledge in [`leg`].
//!
//! Limits: emulated CPUs are slow, share the machine's CPUs, and have no caches and no NUMA latency.
//! Cases compare counters, ratios and places; none may depend on how long something takes.

pub mod cases;
pub mod guest;
pub mod host;
pub mod leg;
pub mod record;
pub mod report;
