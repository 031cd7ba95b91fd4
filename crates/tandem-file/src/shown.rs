//! Texts that strangers write, as they are shown.
//!
//! A name or a message may hold control characters, with which it could move a terminal's cursor, or end a line and begin one of its
//! own in a log.

/// The text with escapes in the place of control characters, but for those that are `kept`.
pub fn readable(text: &str, kept: &[char]) -> String {
    let mut readable = String::with_capacity(text.len());
    for character in text.chars() {
        match character.is_control() && !kept.contains(&character) {
            true => readable.extend(character.escape_default()),
            false => readable.push(character),
        }
    }
    readable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_but_for_those_that_are_kept() {
        let text = "ü\u{1b}[31m\u{9b}\n\t";
        assert_eq!(readable(text, &[]), "ü\\u{1b}[31m\\u{9b}\\n\\t");
        assert_eq!(readable(text, &['\n', '\t']), "ü\\u{1b}[31m\\u{9b}\n\t");
    }
}
