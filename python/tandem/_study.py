"""Studies: a scenario at many points, computed here or by any executor."""

from __future__ import annotations

import functools
import json
import os
import queue
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from . import _tandem
from ._errors import InputError, TandemError, TandemWarning
from ._progress import Progress, shown
from ._scenario import Scenario, jobs_of, plain, whole_number
from ._tandem import Table

#: A value of a dimension.
Value = str | int | float
#: The texts that a study can be made of again in another process.
Texts = tuple[str | os.PathLike[str], str, str | os.PathLike[str], str]
#: A shard: its name, the keys of its points and its bytes.
Shard = tuple[str, list[str], bytes]

#: Most points of a study.
POINTS_MAX = 10_000_000
#: Jobs that an executor has at a time: so many that no worker waits, so few that their results need little memory.
WINDOW = 4096


@dataclass(frozen=True)
class Range:
    """All values between two: numbers, or quantities of one kind with their units, such as "1ms" to "20ms".

    If both ends are whole numbers, so are all in between. Quantities and decimals are rounded to four digits, or more where the
    range is narrow.
    """

    #: The least one.
    low: Value
    #: The largest one.
    high: Value
    #: How many a grid has, the ends with them; whole numbers have all if not given.
    steps: int | None = None
    #: Whether factors count, not differences.
    log: bool = False


@dataclass(frozen=True)
class Space:
    """A scenario, what of it differs, and which points are run.

    Dimensions are parameters of the scenario. Where it has no such parameters, `host` and `guest` are the schedulers of the
    host and of all guests, by the names that `simulate` takes.
    """

    #: The path of a file, a name of the library, or a dictionary.
    scenario: Scenario
    #: The values of each dimension: a list, or a `Range`.
    dimensions: Mapping[str, Sequence[Value] | Range] = field(default_factory=dict)
    #: "grid" for all combinations, "random", or "sobol" for a sequence that fills the space more evenly than chance does.
    method: Literal["grid", "random", "sobol"] = "grid"
    #: How many points, of "random" and "sobol"; 64 if not given.
    count: int | None = None
    #: Seed of the points, of "random" and "sobol".
    seed: int = 1
    #: Values of other parameters, the same at all points.
    set: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Objective:
    """A measure of a run that is to be small or large, by its name in tables, such as "response p99"."""

    #: The measure that is to be small.
    minimize: str | None = None
    #: The measure that is to be large.
    maximize: str | None = None
    #: The group of VMs or processes that it is of; the host if not given.
    group: str | None = None


@dataclass(frozen=True)
class Replications:
    """How often each point is run. All points have the same seeds, so that their differences are less by chance."""

    #: At least this often.
    min: int = 5
    #: At most this often; with a precision 10 times `min` if not given, else `min`.
    max: int | None = None
    #: Half the width of the 95% confidence interval of the objective that is narrow enough, in percent of its mean.
    precision_pct: float | None = None
    #: The first seed.
    seed: int = 1


@dataclass(frozen=True)
class StudyResults:
    """What came out of a study. Printed, it is the text of `tandem study`.

    Polars, pandas, PyArrow and DuckDB take it as they take its `points`.
    """

    #: The JSON of `tandem study --format json`, byte for byte.
    json: str = field(repr=False)
    #: The text of `tandem study`.
    text: str = field(repr=False)
    #: A row for each point: its key `point`, the dimensions, how it `stands`, its `runs`, the `mean` of the objective with the
    #: ends of its 95% confidence interval, `low` and `high`, and a `problem`.
    points: Table
    _source: tuple[_tandem.Study, _tandem.Plan, _tandem.Shards, Folder] = field(repr=False, compare=False)

    @cached_property
    def data(self) -> dict[str, Any]:
        """The JSON as dictionaries and lists."""
        data: dict[str, Any] = json.loads(self.json)
        return data

    @property
    def best(self) -> dict[str, Any] | None:
        """The best point: its `values` by dimension, `mean`, `low`, `high` and more. None without an objective.

        The best of many is in part lucky: measure it again with other seeds, as `Study.tune` does.
        """
        at = self.data["best"]
        return None if at is None else self.data["points"][at]

    @cached_property
    def rows(self) -> Table:
        """A row for each measure of each run: the dimensions, and the columns of `Simulation.table`."""
        study, plan, shards, _ = self._source
        return study.rows(plan, shards)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the rows as a Parquet file, as `tandem study --format parquet` does, however many there are."""
        study, plan, shards, _ = self._source
        study.to_parquet(plan, shards, path)

    def __str__(self) -> str:
        return self.text

    def __arrow_c_schema__(self) -> object:
        return self.points.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.points.__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("results of a study cannot be pickled; its folder has them, and `points` and `rows` can be")


class Study:
    """A scenario at many points of a space.

    Results are kept in a folder, if one is given: what is there is not computed again, by whomever it was computed, and a study
    goes on where it was interrupted. What comes out does not depend on where it was computed, nor in which order.
    """

    def __init__(
        self,
        space: Space,
        objective: Objective | None = None,
        *,
        replications: Replications | int = 5,
        title: str | None = None,
    ) -> None:
        """Define a study.

        Args:
            space: The scenario and its points.
            objective: What is to be made small or large.
            replications: How often each point is run, or how that follows from a precision.
            title: What results call the study.

        Raises:
            ScenarioError: The scenario or the study is wrong; lines are those of `text`.
            InputError: Another argument is wrong.
        """
        scenario = plain(space.scenario)
        name = scenario if isinstance(scenario, str) else "scenario"
        if isinstance(replications, int):
            replications = Replications(min=replications)
        text = text_of(name, space, objective, replications, title)
        self._study = _tandem.Study.new(Path.cwd() / "study", text, scenario)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Study:
        """Read a study's file, as `tandem study` does."""
        return cls._of(_tandem.Study.read(path))

    @classmethod
    def _of(cls, study: _tandem.Study) -> Study:
        made = cls.__new__(cls)
        made._study = study
        return made

    @property
    def text(self) -> str:
        """The text of the study's file, which `tandem study` takes beside the scenario."""
        return self._study.texts()[1]

    @property
    def dimensions(self) -> list[str]:
        """The names of the dimensions, in order."""
        return [name for name, _ in self._study.dimensions]

    @property
    def points(self) -> list[dict[str, Value]]:
        """The points, in order: values by dimension."""
        return [dict(zip(self.dimensions, point, strict=True)) for point in self._study.points]

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_texts, (self._study.texts(),)

    def run(
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        executor: Any = None,
        jobs: int | None = None,
        batch: int | None = None,
        progress: Progress = None,
    ) -> StudyResults:
        """Compute what the folder lacks, and give the results of all points.

        Args:
            folder: Where results are kept, in files of the folder; if not given, as long as the results live.
            executor: What computes the points: an executor of `concurrent.futures`, or a Dask `Client`. Threads of this process
                if not given. Workers need this package in the same version, and the files that the scenario names, but not the
                folder.
            jobs: Points at the same time without an executor; one for each CPU if not given.
            batch: Points that are computed together and kept in one file; as many as make 4096 files at most if not given.
            progress: As for `simulate`; points are counted.

        Raises:
            ScenarioError: No point fits the scenario.
            InputError: An argument is wrong, or a worker has another version or other files.
            TandemError: The executor failed; what was computed is kept, and another call goes on.
            OSError: The folder cannot be read or written.

        Warns:
            TandemWarning: Files of the folder are left aside, as they are damaged or none of a study.
        """
        jobs = jobs_of(jobs)
        if batch is not None:
            whole_number("batch", batch, 1, POINTS_MAX)
        kept = Folder(folder)
        return computed(self._study, kept, executor, jobs, batch, progress)

    def tune(
        self,
        trials: int,
        folder: str | os.PathLike[str] | None = None,
        *,
        sampler: Any = None,
        seed: int = 1,
        at_once: int = 1,
        held_out: int = 10,
        executor: Any = None,
        jobs: int | None = None,
        progress: Progress = None,
    ) -> Tuned:
        """Search the space for a good point, with Optuna (`pip install tandem-scheduler[tune]`).

        The points of the space are not run: the search chooses its own. The best one runs again with seeds that the search has
        not seen, beside the scenario's own values: what was best on the seeds of the search was in part lucky there.

        Args:
            trials: How many points are tried.
            folder: As for `run`: a search that was interrupted goes on at no cost where the same points come again.
            sampler: A sampler of Optuna; its TPE sampler with `seed` if not given.
            seed: The seed of that sampler.
            at_once: Points that are chosen before the first of them is known. The same number gives the same search.
            held_out: How many seeds the best point runs with at the end.
            executor: As for `run`.
            jobs: As for `run`.
            progress: As for `simulate`; trials are counted.

        Raises:
            InputError: There is no objective or no dimension, or Optuna is not installed.
        """
        from ._tune import tune

        jobs = jobs_of(jobs)
        for name, number in ("trials", trials), ("at_once", at_once), ("held_out", held_out):
            whole_number(name, number, 1, POINTS_MAX)
        return tune(self._study, trials, folder, sampler, seed, at_once, held_out, executor, jobs, progress)


@dataclass(frozen=True)
class Tuned:
    """The end of a search."""

    #: The best point: values by dimension.
    best: dict[str, Value]
    #: Its mean of the objective on the seeds of the search.
    searched: float
    #: Its mean on other seeds.
    held_out: float
    #: The mean of the scenario's own values on these; None where a dimension is a scheduler, of which it has no name.
    default: float | None
    #: The difference to that in percent of it, with the ends of its 95% confidence interval; None where there is no such.
    effect_pct: float | None
    interval_pct: tuple[float, float] | None
    #: The best mean after each trial; None before the first one that has a value.
    curve: tuple[float | None, ...]
    #: Whether the objective is to be small.
    is_minimized: bool
    #: The study of Optuna, for its pictures and analyses.
    optuna: Any = field(repr=False, compare=False)

    @property
    def is_better(self) -> bool:
        """Whether it is better than the scenario's own values on other seeds, beyond chance."""
        if self.interval_pct is None:
            return False
        low, high = self.interval_pct
        return high < 0 if self.is_minimized else low > 0


class Folder:
    """A folder of results: that of the user, or one that goes with this object."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        if path is not None:
            self.path = os.fspath(path)
            return
        self.path = tempfile.mkdtemp(prefix="tandem-study-")
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def computed(
    study: _tandem.Study,
    folder: Folder,
    executor: Any,
    jobs: int | None,
    batch: int | None,
    progress: Progress,
) -> StudyResults:
    """Computes what a folder lacks, and collects all."""
    shards = _tandem.Shards(folder.path)
    for stranger in shards.strangers:
        warnings.warn(f"left aside: {stranger}", TandemWarning, stacklevel=4)
    plan = study.plan(jobs)
    with shown(progress, "study") as report:
        if executor is None:
            study.run(plan, shards, jobs, batch, report)
        else:
            missing = study.missing(plan, shards, batch)
            planned, done = sum(len(keys) for _, keys in missing), 0
            for shard in through(as_executor(executor), study.texts(), missing):
                shards.add(*shard)
                done += len(shard[1])
                if report is not None:
                    report(done, planned)
    data, text, points = study.results(plan, shards)
    return StudyResults(data, text, points, (study, plan, shards, folder))


def as_executor(executor: Any) -> Executor:
    """An executor as `concurrent.futures` has them; a client of Dask gives one."""
    if hasattr(executor, "get_executor"):
        # Results are the bytes of a point, whatever else has its key.
        executor = executor.get_executor(pure=False)
    if not hasattr(executor, "submit"):
        kind = type(executor).__name__
        raise InputError(f"a {kind} is no executor; give one of concurrent.futures, or a Client of Dask")
    given: Executor = executor
    return given


def through(
    executor: Executor, texts: Texts, jobs: Sequence[tuple[list[list[Value]], list[str]]]
) -> Iterator[Shard]:
    """The shards of jobs, in the order in which they come. After a failure, those of the jobs that are done or go on come first."""
    ended: queue.SimpleQueue[Future[Shard]] = queue.SimpleQueue()
    waiting: set[Future[Shard]] = set()
    left = iter(jobs)
    failure: BaseException | None = None

    def submit(some: Iterable[tuple[list[list[Value]], list[str]]]) -> None:
        for points, keys in some:
            future = executor.submit(compute, texts, points, keys)
            waiting.add(future)
            future.add_done_callback(ended.put)

    try:
        more = WINDOW
        while True:
            try:
                submit(islice(left, more) if failure is None else ())
                more = 1
                if not waiting:
                    break
                future = ended.get()
                waiting.discard(future)
                shard = future.result()
            except (Exception, CancelledError) as error:
                failure = failure or error
                for future in waiting:
                    future.cancel()
            else:
                yield shard
    finally:
        for future in waiting:
            future.cancel()
    if isinstance(failure, TandemError):
        raise failure
    if failure is not None:
        name = type(failure).__name__
        raise TandemError(f"the executor failed ({name}: {failure}); what was computed is kept: call again") from failure


def compute(texts: Texts, points: list[list[Value]], keys: list[str]) -> Shard:
    """Computes points in a worker."""
    return _study_of(texts).compute(points, keys)


@functools.lru_cache(maxsize=8)
def _study_of(texts: Texts) -> _tandem.Study:
    path, text, scenario_path, scenario = texts
    return _tandem.Study.from_texts((path, text), (scenario_path, scenario))


def _from_texts(texts: Texts) -> Study:
    return Study._of(_study_of(texts))


def text_of(
    name: str, space: Space, objective: Objective | None, replications: Replications, title: str | None
) -> str:
    """The text of a study's file."""
    points = {"method": space.method, "count": space.count, "seed": space.seed}
    if space.method == "grid" and space.seed == 1:
        del points["seed"]
    tables: dict[str, Mapping[str, Any]] = {
        "set": space.set,
        "space": {name: dimension_of(values) for name, values in space.dimensions.items()},
        "points": points,
        "replications": vars(replications),
        "objective": vars(objective) if objective is not None else {},
    }
    lines = [f"title = {toml_of(title)}"] if title is not None else []
    lines.append(f"scenario = {toml_of(name)}")
    for table, values in tables.items():
        if values or (table == "objective" and objective is not None):
            lines.append(f"\n[{table}]")
            lines += [f"{toml_of(key)} = {toml_of(value)}" for key, value in values.items() if value is not None]
    return "\n".join(lines) + "\n"


def dimension_of(values: Any) -> Any:
    """A dimension as a study's file has it."""
    if not isinstance(values, Range):
        return list(values) if not isinstance(values, str) else values
    ends = {"from": values.low, "to": values.high}
    return ends | ({"steps": values.steps} if values.steps is not None else {}) | ({"scale": "log"} if values.log else {})


def toml_of(value: Any) -> str:
    """A value as TOML, whose texts and numbers are those of JSON."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_of(key)} = {toml_of(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    if isinstance(value, (str, int, float)):
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
            # Half of a character is none.
            text.encode()
            return text
        except ValueError:
            pass
    raise InputError(f"{value!r} is no value of a study; allowed are texts and finite numbers")
