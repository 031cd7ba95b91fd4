"""Errors say what, where, and what to do."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import tandem


def error_of(scenario: Any, **arguments: Any) -> tandem.InputError:
    with pytest.raises(tandem.InputError) as caught:
        tandem.simulate(scenario, **arguments)
    return caught.value


def test_a_file_is_named_with_its_line(hogs_file: str) -> None:
    text = Path(hogs_file).read_text()
    Path(hogs_file).write_text(text.replace("vcpus", "vpcus", 1))
    error = error_of(hogs_file)
    assert isinstance(error, tandem.ScenarioError) and isinstance(error, ValueError)
    line = text.splitlines().index("vcpus = 2") + 1
    assert (error.file, error.line) == ("hogs.toml", line)
    assert error.message.startswith("unknown field `vpcus`, expected one of")
    assert str(error) == f"hogs.toml:{line}: {error.message}"


def test_a_dictionary_shows_the_line_of_its_text(hogs: dict[str, Any]) -> None:
    hogs["vm"][0]["vcpus"] = "many"
    error = error_of(hogs)
    assert isinstance(error, tandem.ScenarioError)
    assert error.file == "scenario" and error.line is not None
    assert error.excerpt == 'vcpus = "many"' == tandem.to_toml(hogs).splitlines()[error.line - 1]
    assert str(error).endswith('(the line is `vcpus = "many"`)')
    assert error_of(hogs, name="mine").__dict__["file"] == "mine"


def test_what_is_no_value_of_a_scenario_is_named_by_its_keys(hogs: dict[str, Any]) -> None:
    hogs["vm"][1]["vcpus"] = {3}
    assert str(error_of(hogs)).startswith("`vm.1.vcpus`: a set is no value of a scenario; allowed are dict")
    hogs["vm"][1]["vcpus"] = 2**63
    assert str(error_of(hogs)) == "`vm.1.vcpus`: 9223372036854775808 has more than 64 bits"
    hogs["vm"][1] = {3: 1}
    assert str(error_of(hogs)) == "`vm.1`: the key 3 is no text"
    hogs["vm"][1] = hogs
    assert "nested more than 100 deep" in str(error_of(hogs))


def test_missing_scenarios_and_policies_list_what_there_is() -> None:
    error = error_of("noisy-neighbor")
    assert str(error).startswith("there is no file and no scenario `noisy-neighbor`; there are build, ")
    assert "noisy-neighbour" in tandem.scenarios()
    assert "cannot be read" in str(error_of("missing.toml"))
    assert str(error_of("hackbench", policy="cfs")).startswith("'cfs' is no scheduler; it is \"xen-credit\"")
    assert str(error_of("hackbench", guest_policy="linux")).startswith("a scheduler of guests has no effect")
    assert "there is no parameter `x`; parameters" in str(error_of("hackbench", set={"x": 1}))
    assert "parameter `groups` is [1]; allowed are" in str(error_of("hackbench", set={"groups": [1]}))
    assert "`machine` is given twice" in str(error_of("hackbench", machine="1x2x1", set={"machine": "1x4x1"}))
    assert "int is no scenario" in str(error_of(3))


def test_seeds_and_jobs_have_limits(hogs: dict[str, Any]) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"seeds": 0}, "`seeds` has 0; allowed are whole numbers from 1 to 10000"),
        ({"seeds": []}, "there are 0 seeds"),
        ({"seeds": [-1]}, "`seeds` has -1"),
        ({"seeds": [2**64]}, "whole numbers from 0 to 18446744073709551615"),
        ({"seeds": [2, 1, 2]}, "given twice"),
        ({"seeds": 2, "seed": 2**64 - 1}, "`seeds` has 18446744073709551616"),
        ({"seeds": [1], "seed": 3}, "leave `seed` out"),
        ({"seed": -1}, "`seed` has -1"),
        ({"jobs": 0}, "`jobs` has 0; allowed are whole numbers from 1 to 1024"),
    ]
    for arguments, words in cases:
        assert words in str(error_of(hogs, **arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        {"seeds": True},
        {"seeds": 1.5},
        {"seeds": b"ab"},
        {"seeds": ["1"]},
        {"seed": "1"},
        {"jobs": "2"},
        {"jobs": True},
        {"progress": "yes"},
        {"policy": 5},
        {"trace": "t.jsonl", "trace_vms": "hogs"},
    ],
)
def test_wrong_types_are_type_errors(hogs: dict[str, Any], arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        tandem.simulate(hogs, **arguments)


def test_a_dictionary_without_what_a_scenario_needs_is_an_error() -> None:
    assert "missing field" in str(error_of({}))


def test_a_folder_above_cannot_replace_what_comes_with_the_package(
    tmp_path: Path, hogs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tandem.scenarios()
    (tmp_path / "scenarios").mkdir()
    for name in "hackbench", "mine":
        (tmp_path / f"scenarios/{name}.toml").write_text(tandem.to_toml(hogs))
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert tandem.scenarios() == sorted([*before, "mine"])
    groups = [group["group"] for group in tandem.simulate("hackbench", set={"length": "5ms"})[0].data["groups"]]
    assert groups != ["hogs", "light"]
    assert [group["group"] for group in tandem.simulate("mine")[0].data["groups"]] == ["hogs", "light"]


def test_comparisons_say_what_is_wrong(hogs: dict[str, Any]) -> None:
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ("linux", {}, "has to be a list"),
        ([], {}, "has to be a list"),
        (["linux"], {}, "policy `linux` is the same as the scenario's own policy"),
        (["tandem", "linux", "linux"], {}, "policy `linux` is the same as `linux`"),
        (["linux", "guest=tandem"], {}, "no effect"),
        (["linux", "tandem"], {"seeds": [1, 3]}, "count up by one"),
        (["linux", "tandem"], {"precision_pct": 0}, "allowed are 0.1 to 100"),
        (["linux", "tandem"], {"precision_pct": 1, "seeds": 1}, "takes two `seeds`"),
    ]
    for policies, arguments, words in cases:
        with pytest.raises(tandem.InputError, match=words):
            tandem.compare(hogs, policies, **arguments)
    with pytest.raises(tandem.InputError, match="page=True"):
        tandem.compare(hogs, ["tandem"], seeds=1).to_html("page.html")


def test_a_scenario_that_cannot_run_is_an_error_with_its_name(hogs: dict[str, Any]) -> None:
    hogs["programs"]["hog"]["ops"] = [{"forever": [{"count": "rounds"}]}]
    error = error_of(hogs, name="mine")
    assert isinstance(error, tandem.ScenarioError) and error.file == "mine"


def test_machines_are_named_or_refused() -> None:
    machine = tandem.machine("2x4x2")
    assert (machine.name, len(machine.cpus), len(machine.nodes)) == ("2x4x2", 16, 2)
    assert len({cpu.core for cpu in machine.cpus}) == 8 and {cpu.node for cpu in machine.cpus} == {0, 1}
    assert str(machine) == machine.toml
    with pytest.raises(tandem.InputError, match="the presets are"):
        tandem.machine("cray")


def test_a_machine_file_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text(tandem.machine("2x4x2").toml)
    assert tandem.machine(path) == tandem.machine("2x4x2")
    path.write_text("name = 3")
    with pytest.raises(tandem.ScenarioError) as caught:
        tandem.machine(path)
    assert caught.value.line == 1


def test_errors_can_be_pickled(hogs: dict[str, Any]) -> None:
    hogs["vm"][0]["vcpus"] = "many"
    error = error_of(hogs)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)


def test_warnings_are_warnings(hogs: dict[str, Any]) -> None:
    hogs["programs"] = {
        "one": {"ops": [{"forever": [{"lock": "a"}, {"compute": "50us"}, {"lock": "b"}, {"unlock": "b"}, {"unlock": "a"}]}]},
        "two": {"ops": [{"forever": [{"lock": "b"}, {"compute": "50us"}, {"lock": "a"}, {"unlock": "a"}, {"unlock": "b"}]}]},
    }
    guest = {"process": [{"program": "one"}, {"program": "two"}]}
    hogs["vm"] = [{"group": "crossed", "vcpus": 2, "memory": "1GiB", "guest": guest}]
    with pytest.warns(tandem.TandemWarning, match="wait for each other to the end") as caught:
        [run] = tandem.simulate(hogs, name="mine")
    assert caught[0].filename == __file__
    assert run.warnings and str(caught[0].message) == f"mine: {run.warnings[0]}"
