//! The Python package's part in Rust: what `tandem sim`, `tandem compare` and the lab do, for `python/tandem`.
//!
//! **Problem.** People who study schedulers work in Python, and want the numbers of the command there.
//!
//! **Approach.** The functions here take plain values and give plain values and [tables](table); the classes with their
//! documentation are in Python, in `python/tandem`. The command and this package call the same functions of
//! [`tandem_lab`], so that they give the same numbers. Everything that takes long is [supervised](supervise).
//!
//! **Limits.** Linux alone, as the simulator's compiled schedulers are machine code.

mod arrow;
mod compare;
mod error;
mod evaluate;
mod experiment;
mod machine;
mod replay;
mod scenario;
mod simulate;
mod study;
mod supervise;
mod table;

/// What `tandem` is made of.
#[pyo3::pymodule]
mod _tandem {
    #[pymodule_export]
    use crate::compare::compare;
    #[pymodule_export]
    use crate::evaluate::{_confined, evaluate};
    #[pymodule_export]
    use crate::experiment::{experiment, experiments, published, reproduce};
    #[pymodule_export]
    use crate::machine::{machine, schema};
    #[pymodule_export]
    use crate::replay::replay;
    #[pymodule_export]
    use crate::scenario::{_set_library, scenarios, to_toml};
    #[pymodule_export]
    use crate::simulate::simulate;
    #[pymodule_export]
    use crate::study::{PyPlan, PyShards, PyStudy, paired_effect};
    #[pymodule_export]
    use crate::table::PyTable;

    /// Version of the program.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
