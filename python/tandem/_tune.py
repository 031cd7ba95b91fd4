"""`Study.tune`: a search by Optuna."""

from __future__ import annotations

import os
from typing import Any

from . import _tandem
from ._errors import InputError, ScenarioError, TandemError
from ._progress import Progress, shown
from ._study import Folder, Tuned, Value, computed


def tune(
    study: _tandem.Study,
    trials: int,
    folder: str | os.PathLike[str] | None,
    sampler: Any,
    seed: int,
    at_once: int,
    held_out: int,
    executor: Any,
    jobs: int | None,
    progress: Progress,
) -> Tuned:
    """Searches: see `Study.tune`."""
    try:
        import optuna
    except ImportError:
        raise InputError("Optuna is not installed; `pip install tandem-scheduler[tune]` brings it") from None
    if study.is_larger_better is None:
        raise InputError("the study has no objective to search by; give it one")
    if not study.dimensions:
        raise InputError("the study has no dimension to search in; give its space one")
    kept = Folder(folder)
    names = [name for name, _ in study.dimensions]
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    search = optuna.create_study(
        direction="maximize" if study.is_larger_better else "minimize",
        sampler=sampler if sampler is not None else optuna.samplers.TPESampler(seed=seed),
    )
    distributions = {name: distribution(optuna, domain) for name, domain in study.dimensions}

    def means(study: _tandem.Study) -> list[float | None]:
        results = computed(study, kept, executor, jobs, None, False)
        return [point["mean"] for point in results.data["points"]]

    points: list[list[Value]] = []
    values: list[float | None] = []
    curve: list[float | None] = []
    pick = max if study.is_larger_better else min
    with shown(progress, "tune") as report:
        while len(points) < trials:
            asked = [search.ask(distributions) for _ in range(min(at_once, trials - len(points)))]
            chosen = [
                [value_of(study, at, trial.params[name]) for at, name in enumerate(names)] for trial in asked
            ]
            found = means_or_none(means, study, chosen)
            for trial, mean in zip(asked, found, strict=True):
                state = optuna.trial.TrialState.FAIL if mean is None else optuna.trial.TrialState.COMPLETE
                search.tell(trial, mean, state=state)
                values.append(mean)
                known = [value for value in values if value is not None]
                curve.append(pick(known) if known else None)
            points += chosen
            if report is not None:
                report(len(points), trials)
    known = [value for value in values if value is not None]
    if not known:
        raise TandemError("no point that was tried has a value of the objective; see what `run` says of them")
    best = points[values.index(pick(known))]
    default = study.default_point()
    first, count = study.seeds
    last = [best] if default is None or default == best else [best, default]
    again = study.with_points(last, first + count, held_out)
    results = computed(again, kept, executor, jobs, None, False)
    known_again = [point["mean"] for point in results.data["points"]]
    if known_again[0] is None:
        raise TandemError("the best point has no value of the objective on other seeds; see what `run` says of it")
    base = None if default is None else known_again[-1]
    effect: tuple[float, tuple[float, float] | None] | None = None
    if len(last) == 2 and base is not None:
        _, plan, shards, _ = results._source
        ours, theirs = again.values(plan, shards)
        effect = _tandem.paired_effect(theirs, ours)
    return Tuned(
        best=dict(zip(names, best, strict=True)),
        searched=pick(known),
        held_out=known_again[0],
        default=base,
        effect_pct=None if effect is None else effect[0],
        interval_pct=None if effect is None else effect[1],
        curve=tuple(curve),
        optuna=search,
        is_minimized=not study.is_larger_better,
    )


def means_or_none(means: Any, study: _tandem.Study, points: list[list[Value]]) -> list[float | None]:
    """The mean of each point; None of one that does not fit the scenario."""
    distinct = [point for at, point in enumerate(points) if point not in points[:at]]
    try:
        found = means(study.with_points(distinct))
    except ScenarioError:
        # None of them fits.
        found = [None] * len(distinct)
    return [found[distinct.index(point)] for point in points]


def distribution(optuna: Any, domain: Any) -> Any:
    """A dimension as Optuna has it."""
    if isinstance(domain, list):
        return optuna.distributions.CategoricalDistribution(domain)
    low, high, is_whole, is_log = domain
    if is_whole:
        return optuna.distributions.IntDistribution(int(low), int(high), log=is_log)
    return optuna.distributions.FloatDistribution(low, high, log=is_log)


def value_of(study: _tandem.Study, dimension: int, chosen: Any) -> Value:
    """The value that Optuna's choice stands for."""
    _, domain = study.dimensions[dimension]
    value: Value = chosen if isinstance(domain, list) else study.value(dimension, float(chosen))
    return value
