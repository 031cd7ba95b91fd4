from collections.abc import Callable
from os import PathLike
from typing import Any, final

VERSION: str
__all__ = [
    "Plan",
    "Shards",
    "Study",
    "Table",
    "VERSION",
    "_confined",
    "_set_library",
    "compare",
    "evaluate",
    "experiment",
    "experiments",
    "machine",
    "paired_effect",
    "published",
    "replay",
    "reproduce",
    "scenarios",
    "schema",
    "simulate",
    "to_toml",
]

@final
class Table:
    """A table of results: named columns of texts, whole numbers and numbers, of which texts and numbers may be missing.

    Polars, pandas, PyArrow and DuckDB take it without copies, by Arrow's PyCapsule interface: `polars.DataFrame(table)`,
    `pandas.DataFrame.from_arrow(table)`, `pyarrow.table(table)`, or its name in a query of DuckDB.
    """

    @staticmethod
    def _of(columns: list[tuple[str, str, list[Any]]]) -> Table: ...
    @property
    def column_names(self) -> list[str]:
        """The names of the columns."""

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns by their names, each as a list; None where there is no value."""

    def to_parquet(self, path: str | PathLike[str]) -> None:
        """Write it as a Parquet file, compressed by Zstandard. The file appears under its name when it is complete."""

    def __len__(self) -> int: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class Study:
    """A study."""

    @staticmethod
    def read(path: str | PathLike[str]) -> Study: ...
    @staticmethod
    def new(path: str | PathLike[str], text: str, scenario: str | dict[str, Any]) -> Study: ...
    @staticmethod
    def from_texts(
        study: tuple[str | PathLike[str], str], scenario: tuple[str | PathLike[str], str]
    ) -> Study: ...
    def texts(self) -> tuple[PathLike[str], str, PathLike[str], str]: ...
    def with_points(
        self, points: list[list[str | int | float]], seed: int | None = None, replications: int | None = None
    ) -> Study: ...
    @property
    def dimensions(self) -> list[tuple[str, Any]]: ...
    def value(self, dimension: int, number: float) -> str | int | float: ...
    @property
    def points(self) -> list[list[str | int | float]]: ...
    def default_point(self) -> list[str | int | float] | None: ...
    @property
    def seeds(self) -> tuple[int, int]: ...
    @property
    def is_larger_better(self) -> bool | None: ...
    def plan(self, jobs: int | None = None) -> Plan: ...
    def missing(
        self, plan: Plan, shards: Shards, batch: int | None = None
    ) -> list[tuple[list[list[str | int | float]], list[str]]]: ...
    def compute(
        self, points: list[list[str | int | float]], expected: list[str]
    ) -> tuple[str, list[str], bytes]: ...
    def run(
        self,
        plan: Plan,
        shards: Shards,
        jobs: int | None = None,
        batch: int | None = None,
        progress: Callable[[float, int], None] | None = None,
    ) -> None: ...
    def results(self, plan: Plan, shards: Shards) -> tuple[str, str, Table]: ...
    def values(self, plan: Plan, shards: Shards) -> list[list[float]]: ...
    def rows(self, plan: Plan, shards: Shards) -> Table: ...
    def to_parquet(self, plan: Plan, shards: Shards, path: str | PathLike[str]) -> None: ...

@final
class Plan:
    """The keys of a study's points."""

    def __len__(self) -> int: ...

@final
class Shards:
    """A folder of results."""

    def __new__(cls, folder: str | PathLike[str]) -> Shards: ...
    @property
    def strangers(self) -> list[str]: ...
    def add(self, name: str, keys: list[str], bytes: bytes) -> None: ...

def paired_effect(
    baseline: list[float], variant: list[float]
) -> tuple[float, tuple[float, float] | None] | None: ...
def simulate(
    scenario: str | dict[str, Any],
    name: str | None,
    parameters: dict[str, Any],
    machine: str | None,
    policy: str | None,
    guest_policy: str | None,
    seeds: list[int],
    jobs: int | None,
    stat: bool,
    trace: tuple[str, str | None, str | None, list[str], str | None] | None,
    progress: Callable[[float, int], None] | None,
) -> tuple[list[tuple[str, str, list[str]]], Table, str | None]: ...
def compare(
    scenario: str | dict[str, Any],
    name: str | None,
    parameters: dict[str, Any],
    machine: str | None,
    policies: list[str],
    seed: int,
    seeds: int,
    precision_pct: float | None,
    jobs: int | None,
    with_page: bool,
    progress: Callable[[float, int], None] | None,
) -> tuple[str, str, str | None, list[Table], str | None]: ...
def evaluate(
    candidate: str | None,
    settings: str | dict[str, Any] | None,
    suite: str,
    split: str,
    seed: int,
    own: tuple[str, str],
) -> tuple[str, str]: ...
def _confined(arguments: list[str]) -> None: ...
def replay(
    recording: str,
    policy: str | None,
    settings: str | None,
    slice: str | None,
    machine: str | None,
    groups: dict[str, dict[str, Any]],
    guests: dict[str, str],
    by: str,
    seeds: list[int],
    progress: Callable[[float, int], None] | None,
) -> tuple[str, str, Table]: ...
def experiments(named: str | None) -> list[str]: ...
def experiment(name: str, named: str | None) -> tuple[str, str, str, list[str], str]: ...
def published(path: str) -> Table: ...
def reproduce(
    path: str, is_quick: bool, seed: int, jobs: int | None, progress: Callable[[float, int], None] | None
) -> tuple[str, str, Table]: ...
def machine(name: str) -> dict[str, Any]: ...
def schema(format: str) -> str: ...
def scenarios() -> list[str]: ...
def to_toml(scenario: dict[str, Any]) -> str: ...
def _set_library(folder: str | PathLike[str]) -> None: ...
