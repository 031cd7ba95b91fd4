from collections.abc import Callable
from os import PathLike
from typing import Any, final

VERSION: str
__all__ = [
    "Table",
    "VERSION",
    "_confined",
    "_set_library",
    "compare",
    "evaluate",
    "experiment",
    "experiments",
    "machine",
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
