"""`experiments`, `experiment` and what they give."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from . import _tandem
from ._progress import Progress, shown
from ._scenario import jobs_of, which
from ._tandem import Table


@dataclass(frozen=True)
class Reproduction:
    """Published numbers beside simulated ones. Printed, it is the text of `tandem reproduce`.

    Polars, pandas, PyArrow and DuckDB take it as they take its `table`.
    """

    #: The JSON of `tandem reproduce --format json`, byte for byte: its numbers have six digits.
    json: str = field(repr=False)
    #: The text of `tandem reproduce`.
    text: str = field(repr=False)
    #: A row for each metric of each variant at each load: the `experiment`, its keys, `metric`, `unit`, `baseline`,
    #: `variant`, `role`; what was `published` and `simulated`, and both effects on the baseline in percent, the simulated one
    #: with the ends of its 95% confidence interval and of the range that the baseline leaves open.
    table: Table

    @cached_property
    def data(self) -> list[dict[str, Any]]:
        """The JSON as lists and dictionaries."""
        data: list[dict[str, Any]] = json.loads(self.json)
        return data

    def __str__(self) -> str:
        return self.text

    def __arrow_c_schema__(self) -> object:
        return self.table.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


@dataclass(frozen=True)
class Experiment:
    """An experiment: scenarios with several policies, beside a published table."""

    #: Its name, which is that of its folder.
    name: str
    #: Its title.
    title: str
    #: Where the published numbers come from.
    source: str
    #: What was done, what came out and why it matters, a sentence each.
    story: tuple[str, ...]
    #: The folder that it is in.
    folder: str = field(repr=False)

    def published(self) -> Table:
        """The published table: the keys of each cell, `metric`, `variant`, `value`, `effect_pct` and `stddev`."""
        return _tandem.published(self.folder)

    def run(
        self, *, quick: bool = False, seed: int = 1, jobs: int | None = None, progress: Progress = None
    ) -> Reproduction:
        """Run all of it, as `tandem reproduce` does: from seconds to hours, by the experiment.

        Args:
            quick: Fewer and shorter runs, for a first impression.
            seed: The seed of the first replication; the next ones count up from it.
            jobs: Runs at the same time; one for each CPU if not given.
            progress: As for `simulate`.
        """
        [seed] = which(1, seed)
        with shown(progress, self.name) as report:
            return Reproduction(*_tandem.reproduce(self.folder, quick, seed, jobs_of(jobs), report))


def experiments(folder: str | os.PathLike[str] | None = None) -> list[str]:
    """The names of the experiments: those of a folder, or those here, in the nearest folder above, or of the package."""
    return _tandem.experiments(None if folder is None else os.fspath(folder))


def experiment(name: str, folder: str | os.PathLike[str] | None = None) -> Experiment:
    """The experiment of a name, of those that `experiments` lists.

    Raises:
        InputError: There is none of that name. The message lists them.
        ScenarioError: Its files are wrong.
    """
    parts = _tandem.experiment(name, None if folder is None else os.fspath(folder))
    name, title, source, story, path = parts
    return Experiment(name, title, source, tuple(story), path)
