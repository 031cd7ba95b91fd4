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
    let (limit, reason) = match (program, figure) {
        ("ping-pong", Figure::Migrations) => (
            99.0,
            "a dozen or two in 10,000 switches; probably other tasks of the guest take the CPU, where the simulator's find \
             an idle one",
        ),
        ("hackbench", Figure::Switches | Figure::Migrations) => {
            (20.0, "single runs of the guest differ by 15%")
        }
        ("burners", Figure::Switches | Figure::Migrations) => (
            30.0,
            "single runs of the guest differ by 26%, and the simulator swaps more of the tasks whose virtual times are \
             close, how many depends on how long a decision is taken to last",
        ),
        ("spill", Figure::Migrations) => (
            35.0,
            "single runs of the guest differ by 20%, and the simulator's tasks move less; why is not known",
        ),
        ("spill", Figure::Node0(_)) => (8.0, "as with its migrations"),
        _ => return Bound { limit: figure.target(), reason: None },
    };
    Bound { limit, reason: Some(reason) }
}
