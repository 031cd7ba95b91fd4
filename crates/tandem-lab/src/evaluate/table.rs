//! An evaluation as text for people.

use super::Evaluation;
use std::fmt::{self, Display};

impl Display for Evaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { candidate, suite, split, seed, .. } = self;
        writeln!(f, "{candidate}: suite {}, {}, seed {seed}", suite.name(), split.name())?;
        writeln!(f, "score {:.4}", self.combined_score.0)?;
        if !self.parts.is_empty() {
            writeln!(f, "\n{:<28} {:>8} {:>8} {:>8}  worst", "case", "score", "work", "tail")?;
        }
        for (name, part) in &self.parts {
            let worst = part.vms.iter().min_by(|(_, a), (_, b)| a.log().total_cmp(&b.log()));
            let worst = worst.map(|(vm, factors)| format!("{vm} {:.2}", libm::exp(factors.log())));
            let [score, work, tail] = [part.score, part.work, part.tail].map(|score| score.0);
            writeln!(f, "{name:<28} {score:>8.3} {work:>8.3} {tail:>8.3}  {}", worst.unwrap_or_default())?;
        }
        for reason in &self.reasons {
            let case = reason.case.as_ref().map(|case| format!(" in {case}")).unwrap_or_default();
            let kind = serde_json::to_value(reason.kind).unwrap_or_default();
            writeln!(
                f,
                "\n{}{case}: {}\n  {}",
                kind.as_str().unwrap_or_default(),
                // What a stranger wrote does not begin a line.
                reason.message.replace('\n', "\n  "),
                reason.advice
            )?;
        }
        Ok(())
    }
}
