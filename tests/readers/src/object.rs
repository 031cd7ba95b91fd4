//! Objects of schedulers: whatever one has, linking and running it ends with an outcome or with a sentence, and the interpreter and
//! machine code do the same.
//!
//! That they agree says more than that nothing crashes: both keep all that a program can see in one memory with the same contents, so
//! that an access of machine code beyond it would show as another result, or as a fault of this process.

use tandem_lab::evaluate::Candidate;
use tandem_lab::evaluate::run::{Loaded, Outcome};
use tandem_lab::evaluate::suite::{Case, Role, Suite};

/// Instructions that a run may execute: enough for a scheduler that works, and soon spent by one that does not.
const INSTRUCTIONS: u64 = 300_000;

/// A machine with few CPUs and more tasks, for some milliseconds: each callback is called some times.
const SCENARIO: &str = r#"
length = "6ms"
machine = "1x2x1"
policy = { host = "linux" }

[programs.batch]
ops = [{ forever = [{ compute = "300us" }, { count = "rounds" }] }]

[programs.light]
ops = [{ forever = [{ sleep = { exponential = "400us" } }, { compute = "50us" }] }]

[[processes]]
group = "batch"
memory = "1MiB"
process = [{ program = "batch", copies = 3 }]

[[processes]]
group = "light"
memory = "1MiB"
process = [{ program = "light", copies = 2 }]
"#;

/// Runs an object, and checks what comes of it.
pub fn read(input: &[u8]) {
    outcome(input);
}

/// The same; gives the outcome, if it runs.
pub fn outcome(input: &[u8]) -> Option<Outcome> {
    let case = Case { name: "small".into(), role: Role::Scored, seed: 1, text: SCENARIO.into() };
    let load = |is_interpreted| {
        Loaded::bounded(Candidate::object("changed", input), Suite::Tasks, is_interpreted, INSTRUCTIONS)
    };
    let interpreted = match load(true) {
        Ok(loaded) => loaded,
        Err(message) => {
            assert!(!message.is_empty() && load(false).is_err(), "{message}");
            return None;
        }
    };
    // Some instructions that never run have no translation.
    let compiled = load(false).ok()?;
    let [interpreted, compiled] =
        [interpreted, compiled].map(|loaded| loaded.run(&case).expect("the case can run"));
    assert_eq!(interpreted, compiled, "the interpreter and machine code");
    Some(compiled)
}
