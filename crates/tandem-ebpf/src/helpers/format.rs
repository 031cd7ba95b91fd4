//! Formatted text, by the rules that the kernel applies to the formats of BPF programs.

use super::Table;
use crate::fault::Fault;
use crate::memory::Memory;
use crate::runtime::Run;

pub(super) const TABLE: Table =
    &[("bpf_snprintf", print_to_memory), ("bpf_trace_printk", print), ("bpf_trace_vprintk", print_values)];

/// Most bytes of a format, and of a text that is put into one.
pub(crate) const FORMAT_MAX: usize = 512;
/// Largest width of a value.
const WIDTH_MAX: usize = 512;

/// Puts values into a format: `%d %i %u %x %X` with `l` and `ll`, `%p`, `%c`, `%s`, `%%`, each with the
/// flags `-`, `0`, `+`, a space, and a width.
pub(crate) fn format(memory: &Memory, format: &str, values: &[u64]) -> Result<String, Fault> {
    let mut text = String::new();
    let mut values = values.iter().copied();
    let mut rest = format;
    while let Some(start) = rest.find('%') {
        text.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            text.push('%');
            rest = after;
            continue;
        }
        let (conversion, after) = Conversion::parse(rest)
            .ok_or_else(|| Fault(format!("the format `{format}` has an unknown conversion after a `%`")))?;
        let value = values
            .next()
            .ok_or_else(|| Fault(format!("the format `{format}` has more placeholders than values")))?;
        conversion.write(memory, value, &mut text);
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

/// What follows a `%`.
struct Conversion {
    left: bool,
    zeros: bool,
    /// The text before a number that is not negative.
    sign: &'static str,
    width: usize,
    long: bool,
    kind: char,
}

impl Conversion {
    /// The conversion at the beginning of a text, and the rest of the text.
    fn parse(text: &str) -> Option<(Self, &str)> {
        let rest = text.trim_start_matches(['-', '0', '+', ' ']);
        let flags = &text[..text.len() - rest.len()];
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = &rest[..rest.len() - unit.len()];
        let kind_text = unit.trim_start_matches('l');
        let longs = unit.len() - kind_text.len();
        let kind = kind_text.chars().next().filter(|kind| match kind {
            'd' | 'i' | 'u' | 'x' | 'X' => longs <= 2,
            'c' | 's' | 'p' => longs == 0,
            _ => false,
        })?;
        let conversion = Self {
            left: flags.contains('-'),
            zeros: flags.contains('0'),
            sign: if flags.contains('+') {
                "+"
            } else if flags.contains(' ') {
                " "
            } else {
                ""
            },
            width: if digits.is_empty() {
                0
            } else {
                digits.parse().ok().filter(|&width| width <= WIDTH_MAX)?
            },
            long: longs > 0,
            kind,
        };
        let after = &kind_text[1..];
        // `%pK` and `%px` are plain pointers; other letters would print what they point to.
        match after.chars().next() {
            Some('K' | 'x') if kind == 'p' => Some((conversion, &after[1..])),
            Some(letter) if kind == 'p' && letter.is_ascii_alphanumeric() => None,
            _ => Some((conversion, after)),
        }
    }

    fn write(&self, memory: &Memory, value: u64, text: &mut String) {
        let signed = if self.long { value as i64 } else { i64::from(value as i32) };
        let unsigned = if self.long { value } else { u64::from(value as u32) };
        let (sign, body) = match self.kind {
            'd' | 'i' if signed < 0 => ("-", signed.unsigned_abs().to_string()),
            'd' | 'i' => (self.sign, signed.to_string()),
            'u' => ("", unsigned.to_string()),
            'x' => ("", format!("{unsigned:x}")),
            'X' => ("", format!("{unsigned:X}")),
            'p' => ("", format!("{value:016x}")),
            'c' => ("", char::from(value as u8).to_string()),
            // A text at an invalid address is empty, as in the kernel.
            _ => ("", memory.text(value, FORMAT_MAX).unwrap_or_default()),
        };
        let padding = self.width.saturating_sub(sign.len() + body.chars().count());
        let is_number = !matches!(self.kind, 'c' | 's');
        let (before, zeros, after) = match self {
            Self { left: true, .. } => (0, 0, padding),
            Self { zeros: true, .. } if is_number => (0, padding, 0),
            _ => (padding, 0, 0),
        };
        text.extend(std::iter::repeat_n(' ', before));
        text.push_str(sign);
        text.extend(std::iter::repeat_n('0', zeros));
        text.push_str(&body);
        text.extend(std::iter::repeat_n(' ', after));
    }
}

/// Writes a text to memory, cut to the size, with a 0 at its end; returns the bytes that the whole text and
/// the 0 need.
fn print_to_memory(
    run: &mut Run,
    [destination, size, format, values, values_bytes]: [u64; 5],
    _: u64,
) -> Result<u64, Fault> {
    let text = run.state.format(format, values, values_bytes as u32 as usize)?;
    let size = size as u32 as usize;
    if size > 0 {
        let kept = text.len().min(size - 1);
        let place = run.state.memory.slice_mut(destination, size)?;
        place[..kept].copy_from_slice(&text.as_bytes()[..kept]);
        place[kept] = 0;
    }
    Ok(text.len() as u64 + 1)
}

fn print(run: &mut Run, [format, _, values @ ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let text = run.state.format_values(format, &values)?;
    run.state.print(&text);
    Ok(text.len() as u64)
}

fn print_values(run: &mut Run, [format, _, values, values_bytes, _]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let text = run.state.format(format, values, values_bytes as u32 as usize)?;
    run.state.print(&text);
    Ok(text.len() as u64)
}
