"""Traces of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tandem
from conftest import Command


@pytest.mark.parametrize("ending", ["jsonl", "pftrace"])
def test_a_trace_is_that_of_tandem_sim(command: Command, hogs_file: str, ending: str) -> None:
    [run] = tandem.simulate(hogs_file, seeds=[7], trace=f"own.{ending}", trace_from="2ms", trace_vms=["hogs"], trace_cpus="0")
    args = ["--trace", f"command.{ending}", "--trace-from", "2ms", "--trace-vm", "hogs", "--trace-cpu", "0"]
    assert run.json.encode() == command("sim", hogs_file, "--seed", "7", *args, "--format", "json")
    assert Path(f"own.{ending}").read_bytes() == Path(f"command.{ending}").read_bytes()


def test_wrong_traces_are_errors(hogs: dict[str, Any], tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"trace": "t.txt"}, "allowed are .pftrace"),
        ({"trace": tmp_path / "t.jsonl", "seeds": 2}, "a trace is of one run"),
        ({"trace": tmp_path / "t.jsonl", "trace_from": "2"}, "`trace_from`: "),
        ({"trace": tmp_path / "t.jsonl", "trace_vms": ["nobody"]}, "nobody"),
        ({"trace_to": "2ms"}, "but no file"),
    ]
    for arguments, words in cases:
        with pytest.raises(tandem.InputError) as caught:
            tandem.simulate(hogs, **arguments)
        assert words in str(caught.value), arguments
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_run_leaves_no_trace(hogs: dict[str, Any], tmp_path: Path) -> None:
    def progress(done: float, planned: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tandem.simulate(hogs | {"length": "3600s"}, trace=tmp_path / "t.jsonl", progress=progress)
    assert list(tmp_path.iterdir()) == []
