//! Safe display of untrusted text.
//!
//! A name or a message may contain control characters, with which it could move a terminal's cursor, or end a
//! line in a log and begin a forged one. It may also contain characters that are invisible or change the
//! direction of writing, with which it could pass for another name.

use serde::Serialize;

/// The text with escapes for control characters and for those that are invisible or change the direction of
/// writing, except those that are `kept`.
pub fn readable(text: &str, kept: &[char]) -> String {
    let mut readable = String::with_capacity(text.len());
    for character in text.chars() {
        match is_unreadable(character) && !kept.contains(&character) {
            true => readable.extend(character.escape_default()),
            false => readable.push(character),
        }
    }
    readable
}

/// The message without line breaks and other control characters, which may come from a user's file.
pub fn one_line(message: &str) -> String {
    readable(&message.trim_end().replace(['\n', '\t'], " "), &[])
}

/// A JSON text with JSON escapes for the same characters, except its own line ends. Only strings contain such
/// characters.
pub fn escape_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match is_unreadable(character) && character != '\n' {
            true => character
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| escaped.push_str(&format!("\\u{unit:04x}"))),
            false => escaped.push(character),
        }
    }
    escaped
}

/// A value as JSON for people and programs: indented, and with escapes in the place of what speaks to a
/// terminal or is invisible.
pub fn to_json_text(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(escape_json(&serde_json::to_string_pretty(value)?) + "\n")
}

/// The text as a string of TOML in one line, with escapes for the same characters.
pub fn toml_string(text: &str) -> String {
    let mut string = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => string.extend(['\\', character]),
            _ if is_unreadable(character) => string.push_str(&format!("\\U{:08x}", u32::from(character))),
            _ => string.push(character),
        }
    }
    string.push('"');
    string
}

/// The text in at most `width` characters: where it is longer, its middle is left out, because long names often
/// begin alike.
pub fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let start = text.chars().take(kept / 2);
    start.chain(['…']).chain(text.chars().skip(length - (kept - kept / 2))).collect()
}

/// Whether a character moves the cursor, cannot be seen, or changes the direction of writing.
pub(crate) fn is_unreadable(character: char) -> bool {
    character.is_control() || is_hidden(character)
}

/// Whether a character is of Unicode's categories Cf, Zl and Zp (format characters, separators of lines and
/// paragraphs), or appears as nothing, or as a blank other than the usual one: version 16 of
/// `UnicodeData.txt`.
fn is_hidden(character: char) -> bool {
    matches!(
        character,
        '\u{a0}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{115f}'..='\u{1160}'
            | '\u{1680}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{2000}'..='\u{200f}'
            | '\u{2028}'..='\u{202f}'
            | '\u{205f}'..='\u{206f}'
            | '\u{2800}'
            | '\u{3000}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_stays_in_its_line() {
        assert_eq!(one_line("a.toml:1: `b\nc`: \u{1b}[31mred\n"), "a.toml:1: `b c`: \\u{1b}[31mred");
    }

    #[test]
    fn control_characters_are_escaped_but_for_those_that_are_kept() {
        let text = "ü\u{1b}[31m\u{9b}\n\t";
        assert_eq!(readable(text, &[]), "ü\\u{1b}[31m\\u{9b}\\n\\t");
        assert_eq!(readable(text, &['\n', '\t']), "ü\\u{1b}[31m\\u{9b}\n\t");
    }

    #[test]
    fn json_stays_json() {
        let text = "{\n \"a\": \"\u{9b}31m\u{202e}\u{7f}\u{e0041}ü\"\n}";
        let escaped = escape_json(text);
        assert_eq!(escaped, "{\n \"a\": \"\\u009b31m\\u202e\\u007f\\udb40\\udc41ü\"\n}");
    }

    #[test]
    fn a_string_of_toml_is_read_as_the_text() {
        for text in ["", "a\"b\\c'", "two\nlines\t", "\u{9b}31m\u{202e}\u{7f}\u{e0041}", "naïve 日本"] {
            let line = toml_string(text);
            assert!(!line.contains(is_unreadable), "{line:?}");
            let read: toml::Table = toml::from_str(&format!("{line} = {line}")).unwrap();
            assert_eq!(read.get(text).and_then(toml::Value::as_str), Some(text));
        }
    }

    #[test]
    fn a_long_name_keeps_both_of_its_ends() {
        assert_eq!(shortened("abcdefgh", 8), "abcdefgh");
        assert_eq!(shortened("abcdefghi", 8), "abc…fghi");
        assert_eq!([shortened("abc", 0), shortened("abc", 1)], ["…", "…"]);
        assert_ne!(
            shortened("/system.slice/docker-1a.scope", 16),
            shortened("/system.slice/docker-2b.scope", 16)
        );
    }

    #[test]
    fn invisible_characters_are_shown() {
        assert_eq!(
            readable("a\u{202e}b\u{200b}\u{2028}c\u{feff}", &[]),
            "a\\u{202e}b\\u{200b}\\u{2028}c\\u{feff}"
        );
        assert_eq!(readable("naïve 日本 é", &[]), "naïve 日本 é");
    }
}
