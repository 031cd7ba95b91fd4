#!/usr/bin/env python3
"""Tunes the settings of Tandem's own scheduler: a search with Optuna.

Eight settings are asked to be better than the defaults, by the TPE sampler: which values go together with good scores, and which
with others. A few are asked for at a time, so that all CPUs have work; how many is part of the search. As with evolve.py, answers are
kept in a file, the same command goes on where it was interrupted, and the same search finds the same settings.

    ./tune.py --trials 60
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import optuna
from evaluations import Candidate, Evaluations

FOLDER = Path(__file__).parent
#: Trials that are asked for before the first of them is known.
AT_ONCE = 4
#: How many of the best the validation decides between.
FINALISTS = 5


@dataclass(frozen=True)
class Setting:
    """A time of the settings' file: its table, its default and its range, us."""

    table: str
    default: int
    first: int
    last: int


SETTINGS = {
    "slice": Setting("fairness", 20_000, 1_000, 40_000),
    "slice_min": Setting("fairness", 500, 200, 4_000),
    "sleeper_credit": Setting("fairness", 1_500, 100, 20_000),
    "preempt_margin": Setting("fairness", 2_800, 50, 20_000),
    "sync_run_max": Setting("fairness", 50, 5, 500),
    "migration_margin": Setting("fairness", 12_000, 200, 50_000),
    "balance_interval": Setting("fairness", 4_000, 1_000, 32_000),
    "ratelimit": Setting("rate_control", 1_000, 100, 5_000),
}
Values = dict[str, int]
DEFAULTS: Values = {name: setting.default for name, setting in SETTINGS.items()}


def text(values: Values) -> str:
    """The settings' file."""
    tables: dict[str, list[str]] = {}
    for name, value in values.items():
        tables.setdefault(SETTINGS[name].table, []).append(f'{name} = "{value} us"')
    return "\n".join(f"[{table}]\n" + "\n".join(lines) + "\n" for table, lines in tables.items())


def candidate(values: Values) -> Candidate:
    """Tandem's scheduler with these settings."""
    return Candidate(object="tandem", settings=text(values))


def rounded(value: float) -> int:
    """To two digits, as people write settings."""
    return int(round(value, 1 - math.floor(math.log10(value))))


def tune(evaluations: Evaluations, seed: int, trials: int) -> Iterator[tuple[float, Values]]:
    """The trials with their scores in training, one after the other; the first one is the defaults."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True))
    study.enqueue_trial({name: float(value) for name, value in DEFAULTS.items()})
    done = 0
    while done < trials:
        asked, values = [], []
        for _ in range(min(AT_ONCE, trials - done)):
            trial = study.ask()
            asked.append(trial)
            values.append(
                {
                    name: rounded(trial.suggest_float(name, setting.first, setting.last, log=True))
                    for name, setting in SETTINGS.items()
                }
            )
        scores = evaluations.scores([candidate(one) for one in values], "train")
        for trial, score, one in zip(asked, scores, values, strict=True):
            study.tell(trial, score)
            yield score, one
        done += len(asked)


def main() -> None:
    options = argparse.ArgumentParser(description="Tune the settings of Tandem's scheduler.")
    options.add_argument("--seed", type=int, default=1, help="of the search")
    options.add_argument("--trials", type=int, default=60, help="how many settings are tried")
    options.add_argument("--store", type=Path, default=FOLDER / "settings.jsonl", help="answers of the evaluator")
    options.add_argument("--jobs", type=int, help="evaluations at the same time; as many as CPUs if not given")
    given = options.parse_args()
    evaluations = Evaluations(given.store, jobs=given.jobs)
    tried: list[tuple[float, Values]] = []
    for number, (score, values) in enumerate(tune(evaluations, given.seed, given.trials), 1):
        if not tried or score > max(tried, key=lambda one: one[0])[0]:
            print(f"trial {number}: {score:.4f}, {values}", flush=True)
        tried.append((score, values))
    lines = [json.dumps({"score": round(score, 6), **values}) for score, values in tried]
    (FOLDER / "trials.jsonl").write_text("\n".join(lines) + "\n")
    finalists = [values for _, values in sorted(tried, key=lambda one: -one[0])[:FINALISTS]]
    scores = evaluations.scores([candidate(values) for values in finalists], "validation")
    best, values = max(zip(scores, finalists, strict=True), key=lambda one: one[0])
    print("validation:", ", ".join(f"{score:.4f}" for score in scores))
    (FOLDER / "found.toml").write_text(text(values))
    print(f"found.toml: {best:.4f}")


if __name__ == "__main__":
    main()
