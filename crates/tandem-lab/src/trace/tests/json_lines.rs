use super::fixture;
use crate::trace::{JsonLines, Selection, TracedRun};
use serde_json::{Value, json};

fn lines() -> Vec<String> {
    let scenario = fixture::scenario();
    let run = TracedRun {
        scenario_name: "two.toml",
        scenario: &scenario,
        seed: 7,
        selection: &Selection::default(),
    };
    let mut trace = JsonLines::new(Vec::new(), run).unwrap();
    fixture::play(&mut trace);
    let text = String::from_utf8(trace.finish(fixture::END_NS).unwrap()).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn every_line_is_an_object() {
    for line in lines() {
        let value: Value = serde_json::from_str(&line).unwrap();
        assert!(value.is_object(), "{line}");
    }
}

#[test]
fn the_first_line_tells_the_run_and_the_last_its_end() {
    let lines = lines();
    let header: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(header["scenario"], "two.toml");
    assert_eq!(header["seed"], 7);
    assert_eq!(header["pcpus"], 2);
    let vms = json!([
        { "name": "plain", "group": "plain", "vcpus": 1, "has_guest_kernel": false },
        { "name": "web", "group": "web", "vcpus": 2, "has_guest_kernel": true },
    ]);
    assert_eq!(header["vms"], vms);
    assert_eq!(lines.last().unwrap(), r#"{"at_ns":1000,"kind":"end"}"#);
}

#[test]
fn events_have_the_names_of_their_level() {
    let lines = lines();
    let expected = [
        r#"{"at_ns":100,"kind":"start","cpu":1,"task":"web/vcpu0","task_id":1}"#,
        r#"{"at_ns":100,"kind":"name","guest":"web","task":"sh","task_id":0}"#,
        r#"{"at_ns":110,"kind":"wake","guest":"web","cpu":0,"task":"sh","task_id":0}"#,
        r#"{"at_ns":200,"kind":"wake","guest":"web","cpu":1,"task":"cc","task_id":1,"by":{"cpu":0,"task":"sh","task_id":0}}"#,
        r#"{"at_ns":210,"kind":"wake","cpu":0,"task":"web/vcpu1","task_id":2,"by":{"cpu":1,"task":"web/vcpu0","task_id":1}}"#,
        r#"{"at_ns":700,"kind":"wake","guest":"web","cpu":0,"task":"as","task_id":1,"by":{"cpu":0}}"#,
        r#"{"at_ns":800,"kind":"start","guest":"web","cpu":0,"task":"ld","task_id":1}"#,
    ];
    let mut rest = lines.iter();
    for line in expected {
        assert!(rest.any(|other| other == line), "no {line}, or not in order, in {lines:#?}");
    }
}
