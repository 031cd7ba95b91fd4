"""`evaluate` and what it gives."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Literal

from . import _tandem
from ._errors import TandemError


class Evaluation(dict[str, Any]):
    """What became of a candidate: the JSON of `tandem evaluate --format json`. Printed, it is the text of that command.

    `combined_score` is a number, and minus infinity where the command has the text "-inf".
    """

    #: The text of `tandem evaluate`.
    text: str = ""

    @property
    def combined_score(self) -> float:
        """1 for a scheduler that is as good as Linux, more for a better one, minus infinity if there is a reason."""
        score: float = self["combined_score"]
        return score

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        """By the name of each scored case: its `score`, `work` and `tail`, and those of its `vms`."""
        parts: dict[str, dict[str, Any]] = self["parts"]
        return parts

    @property
    def reasons(self) -> list[dict[str, str]]:
        """Why it has no number, the most useful first: `kind`, `case`, `message` and `advice`."""
        reasons: list[dict[str, str]] = self["reasons"]
        return reasons

    def __str__(self) -> str:
        return self.text


def evaluate(
    candidate: str | os.PathLike[str] | None,
    *,
    suite: Literal["hosts", "guests", "tasks"] = "hosts",
    split: Literal["train", "validation", "test"] = "train",
    seed: int = 1,
    settings: str | os.PathLike[str] | Mapping[str, Any] | None = None,
) -> Evaluation:
    """Give a scheduler one number, or the reasons why it has none, for programs that search for better ones.

    Whoever wrote the candidate: it can do nothing to this process or to the machine. Other Python threads go on meanwhile, and
    Ctrl-C ends it. Threads may judge several candidates at a time.

    Args:
        candidate: A C source, NAME.bpf.c, or an object file, NAME.bpf.o. None, or "tandem", is Tandem's own scheduler, which
            takes a fraction of the time.
        suite: What to judge it by: "hosts" with some 20 VMs, "guests", or "tasks" of machines without VMs.
        split: Which cases of the suite: "train", "validation" or "test".
        seed: The seed that the cases are drawn from; candidates compare under one seed.
        settings: Settings of Tandem's own scheduler: a file as `tandem run` reads it, or a dictionary with what a file has.

    Raises:
        ScenarioError: The settings are wrong.
        InputError: Another argument is wrong, or the file is none.
        TandemError: This machine cannot judge, as it has no compiler or no Landlock.
    """
    executable, extension = sys.executable, _tandem.__file__
    if not executable or extension is None:
        raise TandemError("there is no interpreter to start; `sys.executable` has to name it")
    data, text = _tandem.evaluate(
        None if candidate is None else os.fspath(candidate),
        dict(settings) if isinstance(settings, Mapping) else None if settings is None else os.fspath(settings),
        suite,
        split,
        seed,
        (executable, extension),
    )
    evaluation = Evaluation(json.loads(data))
    evaluation["combined_score"] = float(evaluation["combined_score"])
    evaluation.text = text
    return evaluation
