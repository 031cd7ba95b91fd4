"""Scenarios and seeds as users give them."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from . import _tandem
from ._errors import InputError, ScenarioError, TandemWarning

SEED_MAX = 2**64 - 1
SEEDS_MAX = 10_000
#: How deep a dictionary may be nested; scenarios are less than twenty deep.
DEPTH_MAX = 100


@runtime_checkable
class ToDict(Protocol):
    """An object that gives the dictionary of a scenario."""

    def to_dict(self) -> dict[str, Any]:
        """The dictionary."""
        ...


#: A scenario: the path of a file, a name of the library, a dictionary, or an object with `to_dict`.
Scenario = str | os.PathLike[str] | Mapping[str, Any] | ToDict
#: How many seeds, from the first one on, or which.
Seeds = int | Iterable[int]


def plain(scenario: Scenario) -> str | dict[str, Any]:
    """The path, the name or the dictionary of a scenario."""
    if isinstance(scenario, (str, os.PathLike)):
        return os.fspath(scenario)
    if isinstance(scenario, (Mapping, ToDict)):
        # Tables of a dictionary may be objects, too.
        return {key: whole(value) for key, value in as_mapping(scenario).items()}
    kind = type(scenario).__name__
    raise InputError(f"a {kind} is no scenario; give a path, a name of the library or a dictionary")


def as_mapping(table: Mapping[str, Any] | ToDict) -> Mapping[str, Any]:
    """A table as a mapping."""
    return table if isinstance(table, Mapping) else table.to_dict()


def whole(value: Any, depth: int = 0) -> Any:
    """A value with dictionaries in the place of objects."""
    if depth > DEPTH_MAX:
        raise InputError(f"the scenario is nested more than {DEPTH_MAX} deep")
    if isinstance(value, (Mapping, ToDict)):
        return {key: whole(inner, depth + 1) for key, inner in as_mapping(value).items()}
    if isinstance(value, (list, tuple)):
        return [whole(inner, depth + 1) for inner in value]
    return value


def which(seeds: Seeds, seed: int) -> list[int]:
    """The seeds, each of which is one."""
    whole_number("seed", seed, 0, SEED_MAX)
    if isinstance(seeds, int):
        whole_number("seeds", seeds, 1, SEEDS_MAX)
        chosen: Sequence[int] = range(seed, seed + seeds)
    elif isinstance(seeds, (str, bytes, Mapping)) or not isinstance(seeds, Iterable):
        raise TypeError(f"`seeds` is a {type(seeds).__name__}; it has to be a whole number, or a list of seeds")
    else:
        if seed != 1:
            raise InputError("`seed` and a list of `seeds` are both given; leave `seed` out")
        chosen = list(seeds)
    if not 1 <= len(chosen) <= SEEDS_MAX:
        raise InputError(f"there are {len(chosen)} seeds; allowed are 1 to {SEEDS_MAX}")
    for one in chosen:
        whole_number("seeds", one, 0, SEED_MAX)
    if len(set(chosen)) < len(chosen):
        raise InputError("a seed is given twice; leave one out")
    return list(chosen)


def whole_number(name: str, number: object, least: int, most: int) -> int:
    """A whole number within bounds."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"`{name}` has a {type(number).__name__}; it has to be a whole number")
    if not least <= number <= most:
        raise InputError(f"`{name}` has {number}; allowed are whole numbers from {least} to {most}")
    return number


def jobs_of(number: int | None) -> int | None:
    """A number of jobs, or None for the default."""
    return None if number is None else whole_number("jobs", number, 1, 1024)


@contextlib.contextmanager
def lines_shown(scenario: str | dict[str, Any]) -> Iterator[None]:
    """Adds the line of a dictionary's text, which its user has never seen, to an error about it."""
    try:
        yield
    except ScenarioError as error:
        if isinstance(scenario, dict) and error.line is not None:
            # What is missing may be so from an empty text.
            excerpt = "".join(to_toml(scenario).splitlines()[error.line - 1 : error.line]).strip() or None
            raise ScenarioError(error.message, error.file, error.line, excerpt) from None
        raise


def warn(name: str, messages: Iterable[str | None]) -> None:
    """Warns the caller of the function that calls this."""
    for message in messages:
        if message is not None:
            warnings.warn(f"{name}: {message}", TandemWarning, stacklevel=3)


def to_toml(scenario: Mapping[str, Any] | ToDict) -> str:
    """The text of the scenario file that a dictionary stands for. Lines of errors are those of this text.

    Keys whose values are None are left out.
    """
    given = plain(scenario)
    if isinstance(given, str):
        raise InputError("a path is no dictionary; read the file instead")
    return _tandem.to_toml(given)


def scenarios() -> list[str]:
    """The names of the ready scenarios: those of the package, and those here or in the nearest folder above."""
    return _tandem.scenarios()
