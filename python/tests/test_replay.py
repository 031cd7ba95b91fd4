"""Replays of recordings, and experiments."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import tandem
from conftest import Command

#: Two compressors and timers on one CPU of Debian's 7.3.4.
MIX = str(Path(__file__).parents[2] / "crates/tandem-lab/tests/twin/recordings/mix.parquet")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ({}, []),
        ({"policy": "tandem", "runs": 2, "seed": 7}, ["--policy", "host=tandem", "--runs", "2", "--seed", "7"]),
        ({"slice": "1ms", "by": "thread", "runs": 1}, ["--slice", "1ms", "--by", "thread", "--runs", "1"]),
        (
            {"machine": "1x2x1", "groups": {"*": {"copies": 2, "nice": 5}}, "runs": 2},
            ["--machine", "1x2x1", "--copies", "*=2", "--set", "*.nice=5", "--runs", "2"],
        ),
    ],
)
def test_a_replay_is_that_of_tandem_replay(command: Command, arguments: dict[str, Any], options: list[str]) -> None:
    replay = tandem.replay(MIX, **arguments)
    assert replay.json.encode() == command("replay", MIX, *options, "--format", "json")
    assert str(replay).encode() == command("replay", MIX, *options)
    assert pickle.loads(pickle.dumps(replay)) == replay


def test_its_table_has_the_numbers_of_its_json() -> None:
    replay = tandem.replay(MIX, runs=2)
    rows = pyarrow.table(replay).to_pylist()
    assert list(rows[0]) == ["group", "measure", "unit", "recorded", "mean", "low", "high"]
    by_name = {(row["group"], row["measure"], row["unit"]): row for row in rows}
    assert len(by_name) == len(rows)
    for group in replay.data["groups"]:
        for measure, unit, key in [("run", "s", "run_s"), ("switches", "times", "switches"), ("wait p99", "us", "wait_p99_us")]:
            row = by_name[group["group"], measure, unit]
            assert (row["recorded"], row["mean"]) == (group["recorded"][key], group["simulated"][key])
            assert row["low"] <= row["mean"] <= row["high"]
    assert by_name[None, "run", "s"]["recorded"] == replay.data["total"]["recorded"]["run_s"]


def test_what_cannot_be_replayed_is_an_error() -> None:
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("missing.parquet", {}, "missing.parquet"),
        (MIX, {"policy": "xen-credit"}, "not the tasks of a Linux machine"),
        (MIX, {"slice": "3"}, "slice"),
        (MIX, {"slice": "3s"}, "a slice is from 100 us to 1 s"),
        (MIX, {"groups": {"nobody": {"nice": 1}}}, "no group 'nobody'"),
        (MIX, {"groups": {"*": {"nice": 100}}}, "a nice value is"),
        (MIX, {"groups": {"*": {"mice": 1}}}, "mice"),
        (MIX, {"machine": "cray"}, "the presets are"),
        (MIX, {"by": "colour"}, "vm, process, cgroup or thread"),
        (MIX, {"runs": 0}, "whole numbers from 1 to 1000"),
    ]
    for recording, arguments, words in cases:
        with pytest.raises(tandem.InputError) as caught:
            tandem.replay(recording, **arguments)
        assert words in str(caught.value), arguments


def test_ctrl_c_ends_a_replay() -> None:
    def send() -> None:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        tandem.replay(MIX, runs=1000, groups={"*": {"copies": 20}})
    sender.join()


def test_experiments_have_their_published_tables() -> None:
    assert "rate-control" in tandem.experiments()
    experiment = tandem.experiment("rate-control")
    assert experiment.name == "rate-control" and experiment.source and experiment.story
    table = pyarrow.table(experiment.published())
    assert table.column_names[-5:] == ["metric", "variant", "value", "effect_pct", "stddev"]
    assert table.num_rows > 0
    with pytest.raises(tandem.InputError, match="there is no experiment `x`; there are "):
        tandem.experiment("x")
    for name in tandem.experiments():
        assert tandem.experiment(name).published().column_names[-5:] == table.column_names[-5:]


def test_a_reproduction_is_that_of_tandem_reproduce(
    command: Command, hogs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "experiments/hogs"
    folder.mkdir(parents=True)
    (folder / "hogs.toml").write_text(tandem.to_toml(hogs | {"parameters": {"length": "20ms"}, "length": "$length"}))
    (folder / "published.csv").write_text("length,metric,variant,value,effect_pct\n20ms,rate,linux,1000,\n20ms,rate,xen,,-5\n")
    (folder / "experiment.toml").write_text(
        """title = "Hogs"
        story = ["Hogs run.", "They share.", "Nothing else matters."]
        source = "Nobody"
        modelled = ["CPU time"]
        not_modelled = ["anything else"]
        replications = { min = 3 }
        baseline = "linux"
        [variants.linux]
        [variants.xen]
        host = "xen-credit"
        [[run]]
        scenario = "hogs.toml"
        sweep = { length = ["20ms", "40ms"] }
        metrics = [{ name = "rate", of = { rate = "rounds" }, unit = "1/s", better = "higher" }]
        """
    )
    monkeypatch.chdir(tmp_path)
    assert tandem.experiments() == ["hogs"], "the folder here comes before the package's"
    experiment = tandem.experiment("hogs")
    assert (experiment.title, experiment.source, experiment.story[0]) == ("Hogs", "Nobody", "Hogs run.")
    assert experiment.published().to_dict()["effect_pct"] == [None, -5]
    for arguments, options in [({"quick": True}, ["--quick"]), ({"seed": 7, "jobs": 1}, ["--seed", "7"])]:
        reproduction = experiment.run(**arguments)  # type: ignore[arg-type]
        assert reproduction.json.encode() == command("reproduce", "hogs", *options, "--format", "json")
        assert str(reproduction).encode() == command("reproduce", "hogs", *options)
        rows = pyarrow.table(reproduction).to_pylist()
        assert len(rows) == len(reproduction.data) == 4
        for row, cell in zip(rows, reproduction.data, strict=True):
            assert (row["metric"], row["variant"], row["length"]) == ("rate", cell["variant"], cell["cell"]["length"])
            assert row["simulated"] == pytest.approx(cell["simulated"], rel=1e-5)
