//! Firecracker's command line: `--id web --api-sock /run/web.sock`, and `--config-file` with the size of its
//! memory unless a client sets it through the socket (its `docs/getting-started.md`).
//!
//! The jailer starts it as the same process with the same `--id`, in a root of its own, which its paths refer
//! to (`docs/jailer.md`). The jailer manages nothing, so such a VM has no manager.

use super::Manager;
use super::description::{Description, Source, stem};
use super::options::values;
use crate::untrusted::Untrusted;
use serde_json::Value;

/// Firecracker's name for a VM without `--id`.
const NO_NAME: &str = "anonymous-instance";

pub(super) fn describe(source: &Source) -> Description {
    let first = |option| values(source.arguments, option).next();
    let config = first("config-file").and_then(|path| source.own_file(path));
    let config: Option<Value> = config.and_then(|text| serde_json::from_str(&text).ok());
    let mib = config.and_then(|config| config["machine-config"]["mem_size_mib"].as_u64());
    Description {
        name: first("id")
            .filter(|&id| id != NO_NAME)
            .map(str::to_owned)
            .or_else(|| stem(first("api-sock")?))
            .map(Untrusted::new),
        manager: Manager::None,
        uuid: None,
        memory_bytes: mib.and_then(|mib| mib.checked_mul(1 << 20)),
        devices: Vec::new(),
        virtual_nodes: Vec::new(),
    }
}
