//! Columns and lines of a terminal, at most 100 characters wide.
//!
//! Width is counted in characters, so a name in a script with wide characters may be out of line.

/// The most characters of a line.
pub const MAX_WIDTH: usize = 100;
/// What is between two columns.
pub const GAP: &str = "  ";

/// Where the texts of a column stand.
#[derive(Clone, Copy, PartialEq)]
pub enum Align {
    Left,
    Right,
}

/// A header, a rule and rows with aligned columns. Names are cut where the table would be too wide, numbers
/// never.
pub fn aligned(columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let mut widths = widths(columns, rows);
    let mut excess =
        (widths.iter().sum::<usize>() + GAP.len() * (widths.len() - 1)).saturating_sub(MAX_WIDTH);
    for (width, (name, align)) in widths.iter_mut().zip(columns) {
        if *align == Align::Left {
            let cut = excess.min(width.saturating_sub(name.chars().count()));
            *width -= cut;
            excess -= cut;
        }
    }
    let line = |texts: &mut dyn Iterator<Item = &str>| {
        let padded = texts.zip(&widths).zip(columns).map(|((text, &width), (_, align))| {
            let text = cut(text, width);
            match align {
                Align::Left => format!("{text:<width$}"),
                Align::Right => format!("{text:>width$}"),
            }
        });
        let line = padded.collect::<Vec<_>>().join(GAP);
        line.trim_end().to_owned() + "\n"
    };
    let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
    let mut text = line(&mut columns.iter().map(|(name, _)| *name));
    text += &line(&mut rules.iter().map(String::as_str));
    for row in rows {
        text += &line(&mut row.iter().map(String::as_str));
    }
    text
}

pub fn widths(columns: &[(&str, Align)], rows: &[Vec<String>]) -> Vec<usize> {
    let mut widths: Vec<usize> = columns.iter().map(|(name, _)| name.chars().count()).collect();
    for row in rows {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = (*width).max(text.chars().count());
        }
    }
    widths
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// `text` in lines, the second and later ones behind `indent`; a word too long for a line has one to itself.
pub fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    // A space at the start of a line is the caller's, between words any white space is one space.
    for word in text.split(' ') {
        let is_full = line.chars().count() + 1 + word.chars().count() > MAX_WIDTH;
        if is_full && !line.trim().is_empty() {
            lines += &format!("{}\n", line.trim_end());
            line = format!("{indent}{word}");
        } else if line.is_empty() {
            line = word.to_owned();
        } else {
            line += " ";
            line += word;
        }
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["long name".to_owned(), "−12.5".to_owned()]];
        assert_eq!(
            aligned(&[("name", Align::Left), ("n", Align::Right)], &rows),
            "name           n\n---------  -----\na              1\nlong name  −12.5\n"
        );
    }

    #[test]
    fn a_table_too_wide_cuts_names_but_no_number() {
        let rows = [vec!["x".repeat(120), "1234567890".to_owned()]];
        let text = aligned(&[("name", Align::Left), ("number", Align::Right)], &rows);
        let row = text.lines().last().expect("a row");
        assert_eq!(row.chars().count(), MAX_WIDTH);
        assert!(row.ends_with("x…  1234567890"), "{row}");
    }

    #[test]
    fn lines_are_wrapped_between_words() {
        let text = wrapped(&"word ".repeat(30), "  ");
        assert!(text.lines().all(|line| line.chars().count() <= MAX_WIDTH));
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().nth(1).expect("a second line").starts_with("  word"));
        assert_eq!(wrapped("short", "  "), "short\n");
    }
}
