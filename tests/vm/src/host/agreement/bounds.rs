//! How far a figure may be from the real kernel's.

use super::figures::Figure;

/// A bound of the difference, in the figure's unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Largest difference up or down.
    pub limit: f64,
    /// Why it is not the target.
    pub reason: Option<&'static str>,
}

/// The bound of a figure: the target, unless there is a reason for another one.
pub fn of(program: &str, figure: &Figure) -> Bound {
    let wider = |limit, reason| Bound { limit, reason: Some(reason) };
    match (program, figure) {
        _ => Bound { limit: figure.target(), reason: None },
    }
}
