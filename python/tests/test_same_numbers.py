"""The package gives the very bytes that the command prints."""

from __future__ import annotations

from pathlib import Path

import pytest
import tandem
from conftest import Command

SHORT = ["--set", "length=50ms"]


@pytest.mark.parametrize(
    ("scenario", "policy"),
    [
        ("hackbench", None),
        ("hackbench", "linux"),
        ("hackbench", "tandem"),
        ("noisy-neighbour", "tandem"),
        ("noisy-neighbour", "xen-credit2"),
        ("web-beside-batch", "linux"),
    ],
)
@pytest.mark.parametrize("seed", [1, 7])
def test_a_run_is_that_of_tandem_sim(command: Command, scenario: str, policy: str | None, seed: int) -> None:
    args = ["sim", scenario, "--seed", str(seed), *SHORT]
    args += ["--policy", f"host={policy}"] if policy else []
    [run] = tandem.simulate(scenario, policy=policy, seeds=[seed], set={"length": "50ms"})
    assert run.json.encode() == command(*args, "--format", "json")
    assert run.text.encode() == command(*args)


def test_what_does_not_hold_under_a_policy_is_a_warning(command: Command) -> None:
    with pytest.warns(tandem.TandemWarning, match="`pause_loop` is for the scenario's own host scheduler"):
        [run] = tandem.simulate("web-beside-batch", policy="tandem", set={"length": "50ms"})
    assert run.json.encode() == command("sim", "web-beside-batch", *SHORT, "--policy", "host=tandem", "--format", "json")


def test_guests_and_accounting_are_the_same_too(command: Command) -> None:
    args = ["sim", "web-beside-batch", *SHORT, "--policy", "guest=tandem", "--stat"]
    [run] = tandem.simulate("web-beside-batch", guest_policy="tandem", set={"length": "50ms"}, stat=True)
    assert run.json.encode() == command(*args, "--format", "json")
    assert "stat" in run.data


@pytest.mark.parametrize("jobs", [1, 3])
def test_many_seeds_are_runs_of_their_own_in_order(command: Command, hogs_file: str, jobs: int) -> None:
    simulation = tandem.simulate(hogs_file, seeds=5, seed=3, jobs=jobs)
    assert simulation.seeds == [3, 4, 5, 6, 7]
    for run in simulation:
        assert run.json.encode() == command("sim", hogs_file, "--seed", str(run.seed), "--format", "json")


@pytest.mark.parametrize("policies", [["linux", "tandem"], ["xen-credit"], ["linux", "xen-credit2", "tandem"]])
def test_a_comparison_is_that_of_tandem_compare(command: Command, policies: list[str]) -> None:
    args = ["compare", "hackbench", *SHORT, "--seeds", "2", "--machine", "1x4x1"]
    args += [word for policy in policies for word in ("--policy", policy)]
    comparison = tandem.compare("hackbench", policies, seeds=2, set={"length": "50ms"}, machine="1x4x1")
    assert comparison.json.encode() == command(*args, "--format", "json")
    assert str(comparison).encode() == command(*args)


def test_a_precision_is_the_same(command: Command, hogs_file: str) -> None:
    args = ["compare", hogs_file, "--policy", "linux", "--policy", "xen-credit2", "--precision", "20", "--seeds", "15"]
    comparison = tandem.compare(hogs_file, ["linux", "xen-credit2"], precision_pct=20, seeds=15)
    assert comparison.json.encode() == command(*args, "--format", "json")
    assert "precision" in comparison.data


def test_a_page_is_the_same(command: Command, hogs_file: str) -> None:
    args = ["compare", hogs_file, "--policy", "linux", "--policy", "xen-credit", "--seeds", "3", "--out", "report"]
    comparison = tandem.compare(hogs_file, ["linux", "xen-credit"], seeds=3, page=True)
    command(*args)
    comparison.to_html("page.html")
    assert Path("page.html").read_bytes() == Path("report/compare.html").read_bytes()


def test_parquet_files_are_the_same(command: Command, hogs_file: str) -> None:
    tandem.simulate(hogs_file, seeds=[7]).to_parquet("run.parquet")
    assert Path("run.parquet").read_bytes() == command("sim", hogs_file, "--seed", "7", "--format", "parquet")
    tandem.compare(hogs_file, ["linux", "tandem"], seeds=3).to_parquet("runs.parquet")
    args = ["compare", hogs_file, "--policy", "linux", "--policy", "tandem", "--seeds", "3"]
    assert Path("runs.parquet").read_bytes() == command(*args, "--format", "parquet")


def test_a_dictionary_is_as_its_file(hogs: dict[str, object], hogs_file: str) -> None:
    [of_file] = tandem.simulate(hogs_file)
    [of_dictionary] = tandem.simulate(hogs, name=hogs_file)
    assert of_dictionary.json == of_file.json


def test_version_and_schema_are_those_of_the_command(command: Command) -> None:
    import json

    assert command("--version").decode().split()[1] == tandem.version
    for format in ["scenario", "experiment", "machine", "settings"]:
        assert tandem.schema(format) == json.loads(command("schema", format))
