//! Machines that a name says all about.

use super::{Machine, MachineBuilder, Shape, ShapeError, preset};

/// The machine with this name: a preset, or one that its [`Shape`] names; nothing if the name is neither.
///
/// # Errors
/// If the name means to be a shape, and is none.
pub fn machine_named(name: &str) -> Result<Option<Machine>, ShapeError> {
    if let Some(machine) = preset(name) {
        return Ok(Some(machine));
    }
    if !Shape::is_meant_by(name) {
        return Ok(None);
    }
    let shape: Shape = name.parse()?;
    MachineBuilder::of_shape(&shape).build().map(Some).map_err(ShapeError::TooLarge)
}
