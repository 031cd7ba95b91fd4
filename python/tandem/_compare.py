"""`compare` and what it gives."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from . import _tandem
from ._errors import InputError
from ._progress import Progress, shown
from ._scenario import Scenario, Seeds, jobs_of, lines_shown, plain, warn, which
from ._tandem import Table

#: How many seeds there are if nothing is said, and at most with a precision.
SEEDS = 10
SEEDS_FOR_PRECISION = 100
#: The least precision, percent: what texts print.
PRECISION_MIN_PCT = 0.1


@dataclass(frozen=True)
class Comparison:
    """Schedulers on one scenario. Printed, it is the text of `tandem compare`.

    Polars, pandas, PyArrow and DuckDB take it as they take its `values`.
    """

    #: The JSON of `tandem compare --format json`, byte for byte.
    json: str = field(repr=False)
    #: The text of `tandem compare`.
    text: str = field(repr=False)
    #: The page with pictures, if it was asked for.
    html: str | None = field(repr=False)
    #: A row for each measure of each run, with the columns of `Simulation.table`.
    values: Table
    #: A row for each measure and policy: its `mean`, and, but for the baseline, the `effect_pct` against that with the ends
    #: of its 95% confidence interval, `low_pct` and `high_pct`, in percent; `verdict` is "better" or "worse" where chance
    #: alone does not explain the effect.
    effects: Table
    #: The times of all seeds together, of each `policy` and `group`: `time_us` is the time that `below_pct` percent of the
    #: times do not exceed; the `measure` is "response" or "wake-up".
    distributions: Table

    @cached_property
    def data(self) -> dict[str, Any]:
        """The JSON as dictionaries and lists."""
        data: dict[str, Any] = json.loads(self.json)
        return data

    @property
    def policies(self) -> list[str]:
        """The schedulers; the first one is the baseline."""
        policies: list[str] = self.data["policies"]
        return policies

    @property
    def seeds(self) -> list[int]:
        """The seeds that all have run with."""
        seeds: list[int] = self.data["seeds"]
        return seeds

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the values as a Parquet file, as `tandem compare --format parquet` does."""
        self.values.to_parquet(path)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the page with pictures, which `compare` makes with `page=True`."""
        if self.html is None:
            raise InputError("the comparison has no page; compare with `page=True`")
        Path(path).write_text(self.html, encoding="utf-8")

    def __str__(self) -> str:
        return self.text

    def __arrow_c_schema__(self) -> object:
        return self.values.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.values.__arrow_c_stream__(requested_schema)


def compare(
    scenario: Scenario,
    policies: Sequence[str],
    *,
    seeds: Seeds | None = None,
    seed: int = 1,
    precision_pct: float | None = None,
    set: Mapping[str, str | int | float] | None = None,
    machine: str | None = None,
    jobs: int | None = None,
    page: bool = False,
    name: str | None = None,
    progress: Progress = None,
) -> Comparison:
    """Run a scenario under several schedulers with the same seeds.

    Other Python threads go on meanwhile, and Ctrl-C ends it at once.

    Args:
        scenario: The path of a file, a name of the library such as "noisy-neighbour", or a dictionary.
        policies: Schedulers of the host: "xen-credit", "xen-credit2", "linux", "tandem", or "object:PATH" of a compiled
            sched_ext scheduler; or of all guests, such as "guest=tandem". The first one is the baseline of the others; with
            one alone, the scenario's own is.
        seeds: How many seeds, from `seed` on, or a list of consecutive ones; 10 if not given, and at most 100 with
            `precision_pct`.
        seed: The first seed.
        precision_pct: Run with as many seeds as make the intervals reach no further than so many percent of the baseline to
            either side, at most `seeds`.
        set: Values of parameters of the scenario, by name.
        machine: Another machine, for scenarios with a parameter of that name.
        jobs: Runs at the same time; one for each CPU if not given.
        page: Make the page with pictures too.
        name: What results call the scenario.
        progress: As for `simulate`.

    Raises:
        ScenarioError: The scenario is wrong, or cannot run.
        InputError: Another argument is wrong, or two policies are the same.

    Warns:
        TandemWarning: A table of the scenario does not hold under a policy.
    """
    given = plain(scenario)
    if isinstance(policies, str) or not policies:
        raise InputError("`policies` has to be a list of one or more names, such as [\"linux\", \"tandem\"]")
    if precision_pct is not None and not PRECISION_MIN_PCT <= precision_pct <= 100:
        raise InputError(f"`precision_pct` is {precision_pct}; allowed are {PRECISION_MIN_PCT} to 100")
    if seeds is None:
        seeds = SEEDS if precision_pct is None else SEEDS_FOR_PRECISION
    chosen = which(seeds, seed)
    if chosen != list(range(chosen[0], chosen[0] + len(chosen))):
        raise InputError("the seeds of a comparison count up by one; give `seed` and how many `seeds`")
    if precision_pct is not None and len(chosen) < 2:
        raise InputError("`precision_pct` needs an interval, which takes two `seeds` or more")
    jobs = jobs_of(jobs)
    title = name or (given if isinstance(given, str) else "scenario")
    with lines_shown(given), shown(progress, title) as report:
        data, text, html, tables, note = _tandem.compare(
            given,
            name,
            dict(set or {}),
            machine,
            list(policies),
            chosen[0],
            len(chosen),
            precision_pct,
            jobs,
            page,
            report,
        )
    warn(title, [note])
    return Comparison(data, text, html, *tables)
