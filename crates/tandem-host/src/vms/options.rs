//! Options on command lines: those of QEMU (`-device vfio-pci,host=01:00.0`, `-device
//! {"driver":"vfio-pci"}`), of monitors in Rust (`--memory size=4G,shared=on`), and QEMU's configuration
//! files (`-readconfig`).
//!
//! QEMU's manual describes the first (section "Invocation"): commas separate values, a comma in a value is
//! doubled, and the first value may omit its key. Since QEMU 6.0 some options accept JSON instead.

use crate::untrusted::Untrusted;
use serde_json::Value;

/// The values that follow an option, in order: `-m 4G`, `--memory=4G`.
pub(super) fn values<'a>(arguments: &'a [Untrusted], option: &'a str) -> impl Iterator<Item = &'a str> {
    let named = move |argument: &'a str| argument.strip_prefix("--").or(argument.strip_prefix('-'));
    arguments.iter().enumerate().filter_map(move |(at, argument)| {
        let rest = named(argument.text())?.strip_prefix(option)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value),
            None if rest.is_empty() => arguments.get(at + 1).map(Untrusted::text),
            None => None,
        }
    })
}

/// The values of an option that accepts several, up to the next option: `--device path=A path=B`.
pub(super) fn all_values<'a>(arguments: &'a [Untrusted], option: &'a str) -> impl Iterator<Item = &'a str> {
    let mut is_within = false;
    arguments.iter().filter_map(move |argument| match argument.text().strip_prefix("--") {
        Some(found) => {
            let value = found.strip_prefix(option).and_then(|rest| rest.strip_prefix('='));
            is_within = found == option || value.is_some();
            value
        }
        None => is_within.then_some(argument.text()),
    })
}

/// The parts of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// The first value, if it has no key.
    pub first: Option<String>,
    pairs: Vec<(String, String)>,
}

impl Parts {
    pub fn parse(value: &str) -> Self {
        if value.starts_with('{') {
            return Self::of_json(value);
        }
        let mut parts = Self { first: None, pairs: Vec::new() };
        for (at, part) in split_commas(value).into_iter().enumerate() {
            match part.split_once('=') {
                Some((key, value)) => parts.pairs.push((key.to_owned(), value.to_owned())),
                None if at == 0 => parts.first = Some(part),
                // A switch, such as `-name x,debug-threads`.
                None => parts.pairs.push((part, "on".to_owned())),
            }
        }
        parts
    }

    /// As `parse`, where lists in brackets have commas of their own, as in Cloud Hypervisor: `cpus=[0,2-3]`.
    pub fn parse_with_lists(value: &str) -> Self {
        // Lists do not nest, and commas are not doubled there.
        let mut is_within = false;
        let parts = value.split(move |character| {
            is_within = character == '[' || is_within && character != ']';
            character == ',' && !is_within
        });
        let pairs = parts.filter_map(|part| part.split_once('='));
        Self { first: None, pairs: pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect() }
    }

    fn of_json(text: &str) -> Self {
        let mut pairs = Vec::new();
        if let Ok(Value::Object(object)) = serde_json::from_str(text) {
            flatten("", object, &mut pairs);
        }
        Self { first: None, pairs }
    }

    /// The value of a key; the last one if there are several, as in QEMU.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// All values of a key that may occur several times.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The value of a key that the first value may omit.
    pub fn first_or(&self, key: &str) -> Option<&str> {
        self.get(key).or(self.first.as_deref())
    }
}

/// Longest key of a nested object, bytes: without a limit, each inner key would copy the outer keys of a
/// text.
const KEY_MAX: usize = 255;

/// Nested objects become keys with dots, as QEMU writes them without JSON.
fn flatten(prefix: &str, object: serde_json::Map<String, Value>, pairs: &mut Vec<(String, String)>) {
    for (key, value) in object {
        if prefix.len() + key.len() > KEY_MAX {
            continue;
        }
        let key = format!("{prefix}{key}");
        match value {
            Value::Object(inner) => flatten(&format!("{key}."), inner, pairs),
            Value::String(text) => pairs.push((key, text)),
            other => pairs.push((key, other.to_string())),
        }
    }
}

fn split_commas(value: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut rest = value.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            ',' if rest.next_if_eq(&',').is_none() => parts.push(String::new()),
            _ => parts.last_mut().expect("there is one from the start").push(character),
        }
    }
    parts
}

/// A size such as `4G`, `4194304k` or `1.5G`, in bytes; a size without a suffix is multiplied by
/// `unit_bytes`.
pub(super) fn size_bytes(text: &str, unit_bytes: u64) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => unit_bytes,
        "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        "p" => 1 << 50,
        _ => return None,
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    // Every fraction that people write is exact in 53 bits.
    let bytes = digits.parse::<f64>().ok()? * unit as f64;
    (0.0..u64::MAX as f64).contains(&bytes).then_some(bytes as u64)
}

/// A section of QEMU's configuration file: `[device "dev-gpu"]` and its lines `driver = "vfio-pci"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub group: String,
    pub id: Option<String>,
    pub parts: Parts,
}

/// The sections of such a file. Skips comments and lines outside of a section.
pub(super) fn sections(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let (group, id) = header.split_once(' ').unwrap_or((header, ""));
            let id = id.trim().trim_matches('"');
            let id = (!id.is_empty()).then(|| id.to_owned());
            let parts = Parts { first: None, pairs: Vec::new() };
            sections.push(Section { group: group.to_owned(), id, parts });
        } else if let (Some(section), false) = (sections.last_mut(), line.starts_with('#'))
            && let Some((key, value)) = line.split_once('=')
        {
            let value = value.trim().trim_matches('"');
            section.parts.pairs.push((key.trim().to_owned(), value.to_owned()));
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn strings(words: &[&str]) -> Vec<Untrusted> {
        words.iter().map(|&word| Untrusted::new(word)).collect()
    }

    #[test]
    fn options_have_one_dash_or_two() {
        let line = strings(&["qemu", "-m", "4G", "--m", "5G", "-mem-path", "x", "--m=6G", "-m"]);
        assert_eq!(values(&line, "m").collect::<Vec<_>>(), ["4G", "5G", "6G"]);
    }

    #[test]
    fn some_options_take_several_values() {
        let line =
            strings(&["ch", "--device", "path=a", "path=b", "--net", "x", "--device=path=c", "path=d"]);
        assert_eq!(all_values(&line, "device").collect::<Vec<_>>(), ["path=a", "path=b", "path=c", "path=d"]);
    }

    #[test]
    fn commas_in_values_are_doubled() {
        let parts = Parts::parse("guest=a,,b,debug-threads=on,x");
        assert_eq!((parts.get("guest"), parts.get("debug-threads")), (Some("a,b"), Some("on")));
        assert_eq!((parts.first.as_deref(), parts.get("x")), (None, Some("on")));
        let parts = Parts::parse("vfio-pci,host=01:00.0,host=02:00.0");
        assert_eq!((parts.first_or("driver"), parts.get("host")), (Some("vfio-pci"), Some("02:00.0")));
    }

    #[test]
    fn lists_have_commas_of_their_own() {
        let parts = Parts::parse_with_lists("guest_numa_id=0,cpus=[0,2-3],memory_zones=[a,b],x,[,y=1");
        assert_eq!((parts.get("cpus"), parts.get("memory_zones")), (Some("[0,2-3]"), Some("[a,b]")));
        assert_eq!((parts.get("guest_numa_id"), parts.get("y")), (Some("0"), None));
        assert_eq!(Parts::parse("node,cpus=0-1,cpus=4").all("cpus").collect::<Vec<_>>(), ["0-1", "4"]);
    }

    #[test]
    fn json_will_do_as_well() {
        let parts = Parts::parse(r#"{"driver":"vfio-pci","size":4096,"file":{"filename":"/a,b"}}"#);
        assert_eq!(parts.first_or("driver"), Some("vfio-pci"));
        assert_eq!((parts.get("size"), parts.get("file.filename")), (Some("4096"), Some("/a,b")));
        assert_eq!(Parts::parse("{\"driver\""), Parts { first: None, pairs: Vec::new() });
    }

    #[test]
    fn long_keys_are_not_copied_into_many_short_ones() {
        let inner: Vec<String> = (0..1000).map(|number| format!("\"{number}\":1")).collect();
        let text = |key: &str| format!("{{\"{key}\":{{{}}},\"last\":2}}", inner.join(","));
        assert_eq!(Parts::parse(&text("a")).pairs.len(), 1001);
        let parts = Parts::parse(&text(&"a".repeat(100_000)));
        assert_eq!((parts.pairs.len(), parts.get("last")), (1, Some("2")));
    }

    #[test]
    fn sizes_have_suffixes() {
        let mib = 1 << 20;
        let cases = [
            ("4096", Some(4096 << 20)),
            ("4194304k", Some(4 << 30)),
            ("1.5G", Some(3 << 29)),
            ("1073741824B", Some(1 << 30)),
            ("", None),
            ("-1", None),
            ("4X", None),
            ("99999999999999999999", None),
            ("18446744073709551615G", None),
            ("nan", None),
            ("inf", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(size_bytes(text, mib), bytes, "{text}");
        }
    }

    #[test]
    fn configuration_files_have_sections() {
        let text =
            "# Memory\n[memory]\nsize = \"1024M\"\n\n[device \"dev-gpu\"]\ndriver = \"vfio-pci\"\n# x = y\n";
        let found = sections(text);
        assert_eq!((found[0].group.as_str(), found[0].parts.get("size")), ("memory", Some("1024M")));
        assert_eq!(
            (found[1].id.as_deref(), found[1].parts.get("driver")),
            (Some("dev-gpu"), Some("vfio-pci"))
        );
        assert_eq!(found[1].parts.get("x"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC*|[{}\"=,:a\\[\\]\n]*") {
            let _ = (Parts::parse(&text), Parts::parse_with_lists(&text), size_bytes(&text, 1), sections(&text));
            let line = strings(&["x", &text, "-m", &text]);
            let _ = (values(&line, "m").count(), all_values(&line, "m").count());
        }
    }
}
