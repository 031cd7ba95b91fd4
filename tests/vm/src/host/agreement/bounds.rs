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
            "a dozen or two in 10,000 switches: wakers that are held up, and run for too long to be taken to sleep soon, as the \
             simulator's never do",
        ),
        ("hackbench", Figure::Switches) => (35.0, "single runs of the guest differ by 26%"),
        ("hackbench", Figure::Migrations) => (50.0, "single runs of the guest differ by a factor of two"),
        ("burners", Figure::Switches) => (25.0, "single runs of the guest differ by 17%"),
        ("burners", Figure::Migrations) => {
            (50.0, "single runs of the guest differ by 50%, those of the simulator by a factor of two")
        }
        ("spill", Figure::Migrations) => (40.0, "single runs of the guest differ by 39%"),
        ("spill", Figure::Node0(_)) => (
            8.0,
            "single runs of the guest differ by 6 points, and the simulator's tasks are less at home; why is not known",
        ),
        ("yield-storm", Figure::Switches | Figure::Migrations) => (
            95.0,
            "how QEMU divides its time between two busy CPUs decides how often the threads come to yield: single runs of the \
             guest differ by 37%, and their migrations by a factor of five",
        ),
        ("yield-storm", Figure::Share(_)) => (6.0, "as with its switches"),
        _ => return Bound { limit: figure.target(), reason: None },
    };
    Bound { limit, reason: Some(reason) }
}
