"""Studies: the command's bytes, whoever computes them."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import stat
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import polars
import pyarrow.parquet
import pytest
import tandem
from conftest import Command

DIMENSIONS: dict[str, list[str | int | float] | tandem.Range] = {"work": tandem.Range("200us", "5ms", log=True), "hogs": [1, 2, 3]}


@pytest.fixture
def scenario(hogs: dict[str, Any]) -> dict[str, Any]:
    hogs["parameters"] = {"work": "1ms", "hogs": 1}
    hogs["programs"]["hog"]["ops"] = [{"forever": [{"compute": {"exponential": "$work"}}, {"count": "rounds"}]}]
    hogs["vm"][0]["count"] = "$hogs"
    return hogs


@pytest.fixture
def space(scenario: dict[str, Any]) -> tandem.Space:
    return tandem.Space(scenario, DIMENSIONS, method="sobol", count=12)


@pytest.fixture
def study(space: tandem.Space) -> tandem.Study:
    return tandem.Study(space, tandem.Objective(maximize="rounds", group="hogs"), replications=3)


def everything(results: tandem.StudyResults, folder: Path) -> tuple[str, str, bytes]:
    results.to_parquet(folder / "rows")
    return results.json, results.text, (folder / "rows").read_bytes()


def test_it_is_the_study_of_the_command(
    study: tandem.Study, scenario: dict[str, Any], command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scenario.toml").write_text(tandem.to_toml(scenario))
    text = study.text.replace('scenario = "scenario"', 'scenario = "scenario.toml"')
    Path("study.toml").write_text(text)
    read = tandem.Study.read("study.toml")
    results = read.run("here")
    for format, ours in ("json", results.json.encode()), ("table", results.text.encode()):
        assert command("study", "study.toml", "--out", "there", "--format", format) == ours
    results.to_parquet("rows.parquet")
    assert command("study", "study.toml", "--out", "there", "--format", "parquet") == Path("rows.parquet").read_bytes()
    assert sorted(os.listdir("here")) == sorted(os.listdir("there"))
    # A job array, whose folders are put together.
    for shard in 1, 2, 3:
        command("study", "study.toml", "--out", f"part{shard}", "--shard", f"{shard}/3")
    Path("all").mkdir()
    for file in [file for shard in (1, 2, 3) for file in Path(f"part{shard}").iterdir()]:
        file.rename(Path("all") / file.name)
    assert command("study", "study.toml", "--out", "all", "--format", "json") == results.json.encode()
    # The definition as a dictionary is the same but for what the scenario is called.
    assert study.points == read.points and study.run().points == results.points


def test_points_and_rows_are_tables(study: tandem.Study, tmp_path: Path) -> None:
    results = study.run(tmp_path / "kept")
    points = polars.DataFrame(results)
    assert points.columns[:3] == ["point", "work", "hogs"] and len(points) == 12
    assert set(points["stands"]) == {"done"} and (points["low"] < points["mean"]).all()
    rows = polars.DataFrame(results.rows)
    rounds = rows.filter(measure="rounds", group="hogs").group_by("work", "hogs").agg(polars.col("value").mean())
    both = points.join(rounds, on=["work", "hogs"])
    assert len(both) == 12 and (both["mean"] - both["value"]).abs().max() == pytest.approx(0, abs=1e-9)
    assert results.best is not None and results.best["mean"] == points["mean"].max()
    # The folder is a data set for others.
    shards = pyarrow.parquet.read_table(tmp_path / "kept")
    assert shards.num_rows == len(rows)


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_executors_give_the_same_bytes(study: tandem.Study, tmp_path: Path, kind: str) -> None:
    expected = everything(study.run(jobs=1), tmp_path)
    executor: Executor
    if kind == "threads":
        executor = ThreadPoolExecutor(2)
    else:
        executor = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))
    with executor:
        assert everything(study.run(executor=executor, batch=5), tmp_path) == expected


def test_dask_gives_the_same_bytes_though_a_worker_is_killed(space: tandem.Space, tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    study = tandem.Study(space, tandem.Objective(maximize="rounds", group="hogs"), replications=20)
    expected = everything(study.run(jobs=1), tmp_path)
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            host="127.0.0.1",
            local_directory=str(tmp_path),
        ) as cluster,
        Client(cluster) as client,
    ):
        first = next(iter(client.run(os.getpid).values()))
        killed: list[float] = []

        def kill(done: float, planned: int) -> None:
            if done >= 2 and not killed:
                os.kill(first, signal.SIGKILL)
                killed.append(done)

        results = study.run(tmp_path / "kept", executor=client, batch=1, progress=kill)
    assert killed and killed[0] < 12
    assert everything(results, tmp_path) == expected


def test_a_job_queue_gives_the_same_bytes(
    study: tandem.Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm's own commands are replaced by ones that start the job here. Like Slurm, they keep the script."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    from dask_jobqueue import SLURMCluster
    from distributed import Client

    # It takes the signals of the whole program as it is imported.
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])

    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in ("sbatch", 'cp "$1" "$1.job"; sh "$1.job" >jobs.log 2>&1 </dev/null & echo "Submitted batch job $!"'), ("scancel", 'kill "$1"'):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    # The package's source, where the tests run, is not what is tested.
    monkeypatch.chdir(tmp_path)
    with (
        SLURMCluster(
            cores=1,
            processes=1,
            memory="1GB",
            python=sys.executable,
            local_directory=str(tmp_path),
            log_directory=str(tmp_path),
            scheduler_options={"host": "127.0.0.1", "dashboard_address": None},
        ) as cluster,
        Client(cluster) as client,
    ):
        cluster.scale(1)
        client.wait_for_workers(1, timeout=120)
        results = study.run(executor=client)
    assert results.json == study.run(jobs=1).json


def test_a_study_goes_on_where_it_was_interrupted(study: tandem.Study, tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    def stop(done: float, planned: int) -> None:
        if done >= 3:
            raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as executor, pytest.raises(KeyboardInterrupt):
        study.run(kept, executor=executor, batch=1, progress=stop)
    assert 3 <= len(list(kept.iterdir())) < 12
    counts: list[int] = []
    results = study.run(kept, batch=1, progress=lambda done, planned: counts.append(planned))
    assert counts[-1] < 12
    assert results.json == study.run(jobs=1).json


class Breaks(Executor):
    """Is as a pool of processes that loses one: with the jobs of these numbers, or as it is given one."""

    def __init__(self, lost: set[int], refused: int | None) -> None:
        self.jobs = 0
        self.lost = lost
        self.refused = refused

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs += 1
        broken = BrokenProcessPool("a process ended abruptly")
        if self.jobs == self.refused:
            raise broken
        if self.jobs in self.lost:
            future.set_exception(broken)
        else:
            future.set_result(fn(*args))
        return future


@pytest.mark.parametrize(
    ("lost", "refused", "kept"),
    [({2, 3, 4}, None, 9), ({1}, None, 11), (set(), 4, 3), (set(), 1, 0), (set(range(2, 13)), None, 1)],
)
def test_a_broken_executor_keeps_what_was_computed(
    study: tandem.Study, tmp_path: Path, lost: set[int], refused: int | None, kept: int
) -> None:
    with pytest.raises(tandem.TandemError, match="what was computed is kept: call again"):
        study.run(tmp_path / "kept", executor=Breaks(lost, refused), batch=1)
    assert len(list(tmp_path.glob("kept/*"))) == kept
    tmp_path = tmp_path / "kept"
    assert study.run(tmp_path).json == study.run(jobs=1).json


class Late(Executor):
    """Ends jobs in the reverse order."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Future[Any], Any, Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((future, fn, args))
        if len(self.jobs) == 12:
            threading.Thread(target=self.work).start()
        return future

    def work(self) -> None:
        for future, fn, args in reversed(self.jobs):
            future.set_result(fn(*args))


def test_the_order_in_which_results_come_does_not_matter(study: tandem.Study) -> None:
    assert study.run(executor=Late(), batch=1).json == study.run(jobs=1).json


def test_a_worker_with_other_files_is_found_out(study: tandem.Study) -> None:
    from tandem._study import compute

    texts = study._study.texts()
    other = (*texts[:3], texts[3].replace("1x2x1", "1x4x1"))
    with pytest.raises(tandem.InputError, match="is another one here"):
        compute(other, [["1 ms", 1]], ["0" * 32])


def test_any_text_is_a_title(space: tandem.Space) -> None:
    title = 'a "quoted" \\ one: \u00e9 \U0001f40c'
    assert json.loads(tandem.Study(space, title=title).run().json)["title"] == title
    with pytest.raises(tandem.InputError, match="no value of a study"):
        tandem.Study(space, title="\ud800")
    with pytest.raises(tandem.ScenarioError, match="control character"):
        tandem.Study(space, title="\x7f")


def test_columns_have_names_of_their_own(scenario: dict[str, Any]) -> None:
    scenario["parameters"] |= {"seed": 1, "seed_set": 1, "problem": 1}
    space = tandem.Space(scenario, {"seed": [1], "seed_set": [2], "problem": [3]})
    results = tandem.Study(space, replications=1).run()
    names = results.rows.column_names
    assert len(set(names)) == len(names) and names[:3] == ["seed_set_set", "seed_set", "problem_set"]


def test_a_study_is_pickled(study: tandem.Study) -> None:
    again = pickle.loads(pickle.dumps(study))
    assert (again.text, again.points) == (study.text, study.points)


@pytest.fixture
def tuned_study(scenario: dict[str, Any]) -> tandem.Study:
    space = tandem.Space(scenario, {"work": tandem.Range("100us", "10ms", log=True)}, method="sobol")
    return tandem.Study(space, tandem.Objective(maximize="rounds", group="hogs"), replications=2)


def test_tuning_finds_what_is_better_on_other_seeds(tuned_study: tandem.Study, tmp_path: Path) -> None:
    tuned = tuned_study.tune(20, tmp_path, held_out=4)
    assert tuned.is_better and tuned.default is not None and tuned.held_out > 1.5 * tuned.default
    known = [mean for mean in tuned.curve if mean is not None]
    assert len(tuned.curve) == 20 and known == sorted(known) and known[-1] == tuned.searched
    assert len(tuned.optuna.trials) == 20
    # The same search again, from what is kept, and by an executor.
    with ThreadPoolExecutor(2) as executor:
        again = tuned_study.tune(20, tmp_path, held_out=4, executor=executor)
    assert again == tuned


def test_points_that_do_not_fit_are_failures_of_a_search(scenario: dict[str, Any]) -> None:
    space = tandem.Space(scenario, {"hogs": [0, 1, -3]})
    tuned = tandem.Study(space, tandem.Objective(maximize="rounds", group="hogs"), replications=2).tune(8, at_once=2)
    assert tuned.best == {"hogs": 1} and tuned.effect_pct is None and not tuned.is_better


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"dimensions": {"jobs": [1]}}, "`jobs`: is no parameter of the scenario, which has `hogs`, `work`"),
        ({"dimensions": {"hogs": "1"}}, "expected a list of values, or a range"),
        ({"dimensions": {"hogs": []}}, "there are 0 values"),
        ({"method": "halton"}, "unknown variant `halton`"),
        ({"count": 0}, "there are 0 points"),
        ({"set": {"hogs": 3}}, r"is in \[set\], too"),
        ({"set": {"hogs": float("nan")}}, "nan is no value of a study"),
    ],
)
def test_mistakes_are_said(space: tandem.Space, change: dict[str, Any], says: str) -> None:
    with pytest.raises(tandem.TandemError, match=says):
        tandem.Study(tandem.Space(**(vars(space) | change)))


def test_arguments_are_checked(study: tandem.Study, tmp_path: Path) -> None:
    with pytest.raises(tandem.InputError, match="a str is no executor"):
        study.run(executor="dask")
    with pytest.raises(tandem.InputError, match="`batch` has 0"):
        study.run(batch=0)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        study.run(tmp_path / "file")
    with pytest.raises(TypeError, match="its folder has them"):
        pickle.dumps(study.run())
    (tmp_path / "stranger.parquet").write_bytes(b"PAR1")
    with pytest.warns(tandem.TandemWarning, match="stranger"):
        study.run(tmp_path)


def test_ctrl_c_ends_a_study_and_keeps_its_points(scenario: dict[str, Any], tmp_path: Path) -> None:
    endless = tandem.Study(tandem.Space({**scenario, "length": "3600s"}, {"hogs": [1]}), replications=1)

    def send() -> None:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        endless.run(tmp_path)
    sender.join()
    assert not list(tmp_path.iterdir())
