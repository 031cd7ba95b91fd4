mod fixture;
mod json_lines;
mod perfetto;
mod selection;
mod timeline;

use super::{Selection, TraceError, TraceFile, TracedRun};
use std::fs;
use std::path::PathBuf;

#[test]
fn the_format_follows_from_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = fixture::scenario();
    let run = TracedRun {
        scenario_name: "two.toml",
        scenario: &scenario,
        seed: 1,
        selection: &Selection::default(),
    };
    for (name, is_json) in
        [("a.pftrace", false), ("a.perfetto-trace", false), ("a.b.pb", false), ("a.jsonl", true)]
    {
        let path = folder.path().join(name);
        let mut trace = TraceFile::create(&path, run).unwrap();
        fixture::play(&mut trace);
        assert!(!path.exists(), "{name} is complete before its end");
        trace.finish(fixture::END_NS).unwrap();
        assert_eq!(fs::read(&path).unwrap()[0] == b'{', is_json, "{name}");
    }
    for name in ["a", "a.json", ".jsonl", "a.PB", ""] {
        let error = TraceFile::create(&folder.path().join(name), run).err().expect(name);
        assert!(matches!(error, TraceError::UnknownFormat { .. }), "{name}: {error}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
}

#[test]
fn a_folder_that_is_not_there_is_told() {
    let scenario = fixture::scenario();
    let run = TracedRun {
        scenario_name: "two.toml",
        scenario: &scenario,
        seed: 1,
        selection: &Selection::default(),
    };
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("no/a.jsonl");
    let error = TraceFile::create(&path, run).err().unwrap();
    assert!(matches!(error, TraceError::Create { .. }), "{error}");
    assert!(error.to_string().contains("no/a.jsonl"), "{error}");
}
