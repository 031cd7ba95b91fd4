//! How far a trial is, on standard error: a bar on a terminal, a line for each block elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};

/// The bar, or the lines.
pub struct Progress {
    bar: ProgressBar,
    blocks: usize,
}

impl Progress {
    /// For a trial of so many blocks.
    pub fn new(blocks: usize) -> Self {
        let style = ProgressStyle::with_template("verify {wide_bar} {pos}/{len} blocks, {eta} left; {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { bar: ProgressBar::new(blocks as u64).with_style(style), blocks }
    }

    /// A block of that arm begins, the first being block 0.
    pub fn block(&self, block: usize, arm: &str) {
        self.bar.set_position(block as u64);
        self.phase(arm, "loading");
        if !io::stderr().is_terminal() {
            self.say(&format!("block {} of {}: {arm}", block + 1, self.blocks));
        }
    }

    /// What is going on in the block.
    pub fn phase(&self, arm: &str, phase: &str) {
        self.bar.set_message(format!("{arm}: {phase}"));
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// A line of its own.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| {
            // Nothing is left to be done if standard error is closed.
            let _ = writeln!(io::stderr(), "tandem: {line}");
        });
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
