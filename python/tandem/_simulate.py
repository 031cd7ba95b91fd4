"""`simulate` and what it gives."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from . import _tandem
from ._errors import InputError
from ._progress import Progress, shown
from ._scenario import Scenario, Seeds, jobs_of, lines_shown, plain, warn, which
from ._tandem import Table


@dataclass(frozen=True)
class Run:
    """One run of a scenario. Printed, it is the text of `tandem sim`."""

    #: The seed.
    seed: int
    #: The JSON of `tandem sim --format json`, byte for byte.
    json: str = field(repr=False)
    #: The text of `tandem sim`.
    text: str = field(repr=False)
    #: What is wrong although it came to its end, a sentence each.
    warnings: tuple[str, ...]

    @cached_property
    def data(self) -> dict[str, Any]:
        """The JSON as dictionaries and lists. Units are the last words of names, such as `longest_wait_ms`."""
        data: dict[str, Any] = json.loads(self.json)
        return data

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Simulation:
    """Runs of a scenario, one for each seed.

    Polars, pandas, PyArrow and DuckDB take it as they take its `table`.
    """

    #: The runs, in the order of the seeds.
    runs: tuple[Run, ...]
    #: A row for each measure of each run: `scenario`, `machine`, `policy`, `seed`, `group`, which measures of the host have
    #: none of, `measure`, `unit` and `value`.
    table: Table

    @property
    def seeds(self) -> list[int]:
        """The seeds."""
        return [run.seed for run in self.runs]

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the table as a Parquet file, as `tandem sim --format parquet` does."""
        self.table.to_parquet(path)

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __getitem__(self, at: int) -> Run:
        return self.runs[at]

    def __arrow_c_schema__(self) -> object:
        return self.table.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


def simulate(
    scenario: Scenario,
    *,
    policy: str | None = None,
    guest_policy: str | None = None,
    seeds: Seeds = 1,
    seed: int = 1,
    set: Mapping[str, str | int | float] | None = None,
    machine: str | None = None,
    jobs: int | None = None,
    stat: bool = False,
    trace: str | os.PathLike[str] | None = None,
    trace_from: str | None = None,
    trace_to: str | None = None,
    trace_vms: Sequence[str] = (),
    trace_cpus: str | None = None,
    name: str | None = None,
    progress: Progress = None,
) -> Simulation:
    """Run a scenario, once with each seed.

    The same scenario and seed give the same run, on every machine and with any number of jobs. Other Python threads go on
    meanwhile, and Ctrl-C ends it at once.

    Args:
        scenario: The path of a file, a name of the library such as "noisy-neighbour", or a dictionary.
        policy: The host's scheduler, instead of the scenario's own: "xen-credit", "xen-credit2", "linux", "tandem", or
            "object:PATH" of a compiled sched_ext scheduler.
        guest_policy: That of all guests: "linux", "tandem" or "object:PATH".
        seeds: How many seeds, from `seed` on, or a list of them.
        seed: The first seed.
        set: Values of parameters of the scenario, by name.
        machine: Another machine, for scenarios with a parameter of that name: a preset such as "xeon-e5620-2s",
            PACKAGESxCORESxTHREADS such as "2x64x2", or the path of a machine file.
        jobs: Runs at the same time; one for each CPU if not given.
        stat: Let the runs' JSON and text have accounting too, as `perf stat` and `perf sched latency` do.
        trace: Write every scheduling event into this file: .pftrace for Perfetto, .jsonl for JSON lines; of one seed.
        trace_from: Trace nothing before this simulated time, such as "10ms"; the warm-up counts.
        trace_to: Trace nothing from this simulated time on.
        trace_vms: Trace only these VMs, by their names or those of their groups.
        trace_cpus: Trace only what happens on these pCPUs, such as "0-3,8" or "node:1".
        name: What results call the scenario.
        progress: None shows it in terminals and notebooks, True and False always and never; or a function that is called
            with how many runs are done, which need not be whole, and how many are planned.

    Raises:
        ScenarioError: The scenario is wrong, or cannot run.
        InputError: Another argument is wrong.

    Warns:
        TandemWarning: A run ended, but its tasks wait for each other or CPUs idle beside work; or a table of the scenario
            does not hold under `policy`.
    """
    given, chosen = plain(scenario), which(seeds, seed)
    jobs = jobs_of(jobs)
    traced = None
    if trace is not None:
        if len(chosen) != 1:
            raise InputError(f"a trace is of one run, and there are {len(chosen)} seeds; give one")
        if isinstance(trace_vms, str):
            raise TypeError("`trace_vms` has to be a list of names, not a text")
        traced = (os.fspath(trace), trace_from, trace_to, list(trace_vms), trace_cpus)
    elif trace_from or trace_to or trace_vms or trace_cpus:
        raise InputError("a part of a trace is given, but no file; add `trace`")
    title = name or (given if isinstance(given, str) else "scenario")
    with lines_shown(given), shown(progress, title) as report:
        runs, table, note = _tandem.simulate(
            given, name, dict(set or {}), machine, policy, guest_policy, chosen, jobs, stat, traced, report
        )
    warn(title, [note, *(warning for _, _, warnings in runs for warning in warnings)])
    all_runs = zip(chosen, runs, strict=True)
    return Simulation(tuple(Run(one, data, text, tuple(warned)) for one, (data, text, warned) in all_runs), table)
