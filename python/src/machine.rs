//! `tandem.machine`, and the schemas of files.

use crate::error::{self, input, internal};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tandem_lab::machine_file::{MachineNameError, named_or_file, to_toml};
use tandem_lab::schema as schemas;
use tandem_settings::settings_schema;

/// The machine of that name, or of that file, as keyword arguments of `tandem.Machine`.
#[pyfunction]
pub fn machine<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
    let machine = named_or_file(name).map_err(|error| match error {
        MachineNameError::File(error) => error::file(py, &error),
        other => input(py, other),
    })?;
    let cpu = |cpu: &tandem_machine::Cpu| {
        let node = machine.nodes()[cpu.node.index()].os_index;
        let package = machine.packages()[cpu.package.index()].os_index;
        let llc = cpu.llc.map(|llc| llc.index());
        (cpu.os_index, cpu.core.index(), llc, node, package, cpu.capacity_permille)
    };
    let node = |node: &tandem_machine::Node| {
        (node.os_index, node.memory_bytes, node.bandwidth_bytes_per_s, machine.os_list(&node.cpus))
    };
    let parts = PyDict::new(py);
    parts.set_item("name", machine.name())?;
    parts.set_item("cpus", machine.cpus().iter().map(cpu).collect::<Vec<_>>())?;
    parts.set_item("nodes", machine.nodes().iter().map(node).collect::<Vec<_>>())?;
    parts.set_item("toml", to_toml(&machine))?;
    Ok(parts)
}

/// The JSON Schema of a file format: "scenario", "experiment", "machine" or "settings".
#[pyfunction]
pub fn schema(py: Python<'_>, format: &str) -> PyResult<String> {
    let schema = match format {
        "scenario" => schemas::scenario(),
        "experiment" => schemas::experiment(),
        "machine" => schemas::machine(),
        "settings" => settings_schema(),
        other => {
            let message =
                format!("there is no format `{other}`; there are scenario, experiment, machine and settings");
            return Err(input(py, message));
        }
    };
    serde_json::to_string(&schema).map_err(|error| internal(&error.to_string()))
}
