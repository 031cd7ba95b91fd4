//! Each reader with its seeds, and with changes of them.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use reader_tests::{control, hwloc, object, process, recording, scenario, service, sysfs};
use std::fs;
use std::ops::Range;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// Changed inputs for each reader.
const CHANGED: u64 = 4000;
/// Most changes of an input.
const CHANGES_MAX: usize = 4;
/// Bytes that mean something to readers: ends of texts, what stands between parts of an input, signs.
const BYTES: &[u8] = b"\0\n\xff\xfe \t-+.,:;=\"'\\()[]{}<>/#09aZ\xc3";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// The seeds of a reader.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder().join("seeds").join(name)).expect("it has seeds");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("it is there").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{name}");
    files.iter().map(|file| fs::read(file).expect("it can be read")).collect()
}

/// The words of a reader's dictionary, whose syntax is libFuzzer's.
fn words(name: &str) -> Vec<Vec<u8>> {
    let file = folder().join(format!("dictionaries/{name}.dict"));
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let quoted = |line: &str| Some(line.split_once('"')?.1.rsplit_once('"')?.0.to_owned());
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words: Vec<_> = lines.filter_map(quoted).map(|word| unescaped(&word)).collect();
    assert!(!words.is_empty(), "{name}");
    words
}

fn unescaped(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'\\', [b'x', digits @ ..]) => {
                let digits = str::from_utf8(&digits[..2]).expect("two digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("they are hexadecimal"));
                rest = &after[3..];
            }
            (b'\\', [escaped, ..]) => {
                bytes.push(*escaped);
                rest = &after[1..];
            }
            _ => bytes.push(byte),
        }
    }
    bytes
}

/// A number below a limit; 0 if there is none.
fn below(rng: &mut Pcg64Mcg, limit: usize) -> usize {
    if limit == 0 { 0 } else { (rng.next_u64() % limit as u64) as usize }
}

/// Changes an input in one place.
fn change(input: &mut Vec<u8>, words: &[Vec<u8>], rng: &mut Pcg64Mcg) {
    let at = below(rng, input.len() + 1);
    let end = (at + below(rng, 24)).min(input.len());
    match below(rng, 7) {
        0 => drop(input.drain(at..end)),
        1 => {
            let copied = input[at..end].to_vec();
            let to = below(rng, input.len() + 1);
            input.splice(to..to, copied);
        }
        2 => drop(input.splice(at..at, words[below(rng, words.len())].iter().copied())),
        3 => drop(input.splice(at..end, words[below(rng, words.len())].iter().copied())),
        4 => input.insert(at, BYTES[below(rng, BYTES.len())]),
        5 if at < input.len() => input[at] ^= 1 << below(rng, 8),
        _ => input.truncate(at),
    }
}

/// Gives a reader its seeds, and changes of them.
fn try_reader(name: &str, read: fn(&[u8])) {
    let (seeds, words) = (seeds(name), words(name));
    seeds.iter().for_each(|seed| read(seed));
    for number in 0..CHANGED {
        let mut rng = Pcg64Mcg::seed_from_u64(number);
        let mut input = seeds[below(&mut rng, seeds.len())].clone();
        for _ in 0..=below(&mut rng, CHANGES_MAX) {
            change(&mut input, &words, &mut rng);
        }
        if catch_unwind(|| read(&input)).is_err() {
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{number}"));
            fs::write(&file, &input).expect("there is room for it");
            panic!(
                "the reader {name} fails with the input {file}; again: (cd fuzz && cargo run --release --bin {name} -- {file})",
                file = file.display()
            );
        }
    }
}

#[test]
fn requests_and_answers() {
    try_reader("control", control::read);
}

#[test]
fn topologies_of_hwloc() {
    try_reader("hwloc", hwloc::read);
}

#[test]
fn objects() {
    try_reader("object", object::read);
}

#[test]
fn instructions_and_tables_of_objects() {
    let [object] = &seeds("object")[..] else { panic!("one seed, of which the tables are known") };
    let works = object::outcome(object).expect("it can be loaded");
    assert!(works.got.len() == 2 && works.broken.is_empty(), "it schedules: {works:?}");
    let parts = parts(object);
    for number in 0..CHANGED {
        let mut rng = Pcg64Mcg::seed_from_u64(number);
        let mut input = object.clone();
        for _ in 0..=below(&mut rng, CHANGES_MAX) {
            change_part(&mut input, &parts, &mut rng);
        }
        if catch_unwind(|| object::read(&input)).is_err() {
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("object-part-{number}"));
            fs::write(&file, &input).expect("there is room for it");
            panic!("the reader object fails with the input {}", file.display());
        }
    }
}

/// The sections of an object by what they are: instructions, relocations, types, other content, and the table of sections.
fn parts(object: &[u8]) -> [Vec<Range<usize>>; 5] {
    let number = |at: usize, bytes: usize| {
        let mut number = [0; 8];
        number[..bytes].copy_from_slice(&object[at..at + bytes]);
        u64::from_le_bytes(number) as usize
    };
    let (table, count, size) = (number(0x28, 8), number(0x3c, 2), number(0x3a, 2));
    let mut parts: [Vec<Range<usize>>; 5] = Default::default();
    for header in (0..count).map(|at| table + at * size) {
        let (kind, flags) = (number(header + 4, 4), number(header + 8, 8));
        let (offset, bytes) = (number(header + 0x18, 8), number(header + 0x20, 8));
        let part = match (kind, flags & 4 != 0) {
            _ if kind == 8 || bytes < 8 => continue,
            (1, true) => 0,
            (9, _) => 1,
            (1, _) if flags & 2 == 0 => 2,
            _ => 3,
        };
        parts[part].push(offset..offset + bytes);
    }
    parts[4].push(table..table + count * size);
    parts
}

/// Changes an instruction, or a number of one of the tables.
fn change_part(input: &mut [u8], parts: &[Vec<Range<usize>>; 5], rng: &mut Pcg64Mcg) {
    // Half of the changes are in instructions.
    let part = &parts[[0, 0, 0, 0, 1, 2, 3, 4][below(rng, 8)]];
    let Range { start, end } = part[below(rng, part.len())].clone();
    let at = start + below(rng, (end - start) / 8) * 8;
    let edges = [0, 1, 8, 0x7f, 0x80, 0x1ff, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
    let value = match below(rng, 3) {
        0 => edges[below(rng, edges.len())],
        1 => rng.next_u64() & 0xff,
        _ => rng.next_u64(),
    };
    let bytes = value.to_le_bytes();
    match below(rng, 7) {
        // Of an instruction: what it does, its registers, its offset, its number.
        0 => input[at] = bytes[0],
        1 => input[at + 1] = bytes[0],
        2 => input[at + 2..at + 4].copy_from_slice(&bytes[..2]),
        3 => input[at + 4..at + 8].copy_from_slice(&bytes[..4]),
        4 => input[at..at + 8].copy_from_slice(&bytes),
        5 => input[at + below(rng, 8)] ^= 1 << below(rng, 8),
        _ => {
            let from = start + below(rng, (end - start) / 8) * 8;
            input.copy_within(from..from + 8, at);
        }
    }
}

#[test]
fn processes() {
    try_reader("process", process::read);
}

#[test]
fn recordings() {
    try_reader("recording", recording::read);
}

#[test]
fn scenarios() {
    try_reader("scenario", scenario::read);
}

#[test]
fn files_of_the_service() {
    try_reader("service", service::read);
}

#[test]
fn topologies_of_sysfs() {
    try_reader("sysfs", sysfs::read);
}
