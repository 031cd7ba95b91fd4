"""`replay` and what it gives."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from . import _tandem
from ._progress import Progress, shown
from ._scenario import which, whole_number
from ._tandem import Table

#: Most runs of a replay.
RUNS_MAX = 1000


@dataclass(frozen=True)
class Replay:
    """A recording beside runs of it. Printed, it is the text of `tandem replay`.

    Polars, pandas, PyArrow and DuckDB take it as they take its `table`.
    """

    #: The JSON of `tandem replay --format json`, byte for byte.
    json: str = field(repr=False)
    #: The text of `tandem replay`.
    text: str = field(repr=False)
    #: A row for each measure of each group, and of all tasks of the host, which have no group: `group`, `measure`, `unit`,
    #: what was `recorded`, the `mean` of the runs, and the ends of its 95% confidence interval, `low` and `high`.
    table: Table

    @cached_property
    def data(self) -> dict[str, Any]:
        """The JSON as dictionaries and lists."""
        data: dict[str, Any] = json.loads(self.json)
        return data

    def __str__(self) -> str:
        return self.text

    def __arrow_c_schema__(self) -> object:
        return self.table.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def replay(
    recording: str | os.PathLike[str],
    *,
    policy: str | None = None,
    settings: str | os.PathLike[str] | None = None,
    slice: str | None = None,
    machine: str | None = None,
    groups: Mapping[str, Mapping[str, str | int]] | None = None,
    guests: Mapping[str, str | os.PathLike[str]] | None = None,
    by: Literal["vm", "process", "cgroup", "thread"] = "vm",
    runs: int = 5,
    seed: int = 1,
    progress: Progress = None,
) -> Replay:
    """Run what was recorded on a machine again, as it was or otherwise.

    Other Python threads go on meanwhile, and Ctrl-C ends it at once.

    Args:
        recording: A file of `tandem record`, perf.data, trace.dat, or a Perfetto trace.
        policy: Another scheduler of the machine: "linux", "tandem", or "object:PATH" of a compiled sched_ext scheduler.
        settings: A file with settings of the scheduler "tandem".
        slice: The slice of Linux's scheduler, such as "3ms".
        machine: Another machine, as for `machine`.
        groups: What differs for a group, by its name; "*" is all. Keys are `weight` (`cpu.weight`, 1 to 10000), `nice`,
            `policy` ("normal", "batch" or "idle"), `cpus` (a list such as "0-3") and `copies`.
        guests: Recordings of guests that were made at the same time, by the names of their VMs.
        by: What tasks of a group have in common.
        runs: How many runs there are, each with its seed.
        seed: The seed of the first run; the next ones count up from it.
        progress: As for `simulate`.

    Raises:
        ScenarioError: A file cannot be read or used, or the run is not possible.
        InputError: Another argument is wrong.
    """
    whole_number("runs", runs, 1, RUNS_MAX)
    path = os.fspath(recording)
    with shown(progress, path) as report:
        data, text, table = _tandem.replay(
            path,
            policy,
            None if settings is None else os.fspath(settings),
            slice,
            machine,
            {name: dict(changes) for name, changes in (groups or {}).items()},
            {name: os.fspath(guest) for name, guest in (guests or {}).items()},
            by,
            which(runs, seed),
            report,
        )
    return Replay(data, text, table)
