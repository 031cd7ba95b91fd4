"""Tables: what Arrow's consumers get, and what is in Parquet files."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
import tandem

COLUMNS = ["scenario", "machine", "policy", "seed", "group", "measure", "unit", "value"]


@pytest.fixture
def simulation(hogs: dict[str, Any]) -> tandem.Simulation:
    return tandem.simulate(hogs, seeds=3)


@pytest.fixture
def comparison(hogs: dict[str, Any]) -> tandem.Comparison:
    return tandem.compare(hogs, ["linux", "xen-credit"], seeds=3)


def test_a_table_has_a_row_for_each_measure_of_each_run(simulation: tandem.Simulation) -> None:
    table = simulation.table
    assert table.column_names == COLUMNS
    columns = table.to_dict()
    assert len(table) == len(columns["value"]) > 0
    assert set(columns["seed"]) == {1, 2, 3} and set(columns["group"]) == {"hogs", "light", None}
    rows = list(zip(columns["seed"], columns["group"], columns["measure"], columns["unit"], strict=True))
    assert len(set(rows)) == len(rows), "a row is named by these columns"
    values = dict(zip(rows, columns["value"], strict=True))
    for run in simulation:
        [hogs, _] = run.data["groups"]
        assert values[run.seed, "hogs", "rounds", "/s"] == hogs["counts_per_s"]["rounds"]
        assert values[run.seed, "hogs", "run", "% of life"] == hogs["run_pct"]
        assert values[run.seed, None, "mean run", "us"] == run.data["host"]["mean_run_us"]


def test_consumers_of_arrow_get_the_values(simulation: tandem.Simulation, comparison: tandem.Comparison) -> None:
    sources: list[tuple[tandem.Simulation | tandem.Comparison, tandem.Table]] = [
        (simulation, simulation.table),
        (comparison, comparison.values),
    ]
    for source, table in sources:
        expected = table.to_dict()
        arrow = pyarrow.table(source)
        assert arrow.to_pydict() == expected
        arrow.validate(full=True)
        assert [str(field.type) for field in arrow.schema] == ["string"] * 3 + ["uint64"] + ["string"] * 3 + ["double"]
        assert pyarrow.record_batch(table).to_pydict() == expected
        assert pyarrow.schema(table) == arrow.schema
        assert polars.DataFrame(source).to_dict(as_series=False) == expected
        frame = pandas.DataFrame.from_arrow(source)
        assert frame["value"].to_list() == expected["value"]
        assert [None if pandas.isna(group) else group for group in frame["group"]] == expected["group"]
    values = comparison.values
    [[rows, seeds]] = duckdb.execute("select count(*), count(distinct seed) from values").fetchall()
    assert (rows, seeds) == (len(values), 3)


def test_a_hand_over_copies_nothing(simulation: tandem.Simulation) -> None:
    one, other = pyarrow.table(simulation.table), pyarrow.table(simulation.table)
    for column in ["seed", "value", "group"]:
        addresses = [[buffer and buffer.address for buffer in table[column].chunk(0).buffers()] for table in (one, other)]
        assert addresses[0] == addresses[1], "both are views of the table's own memory"


def test_what_is_handed_over_outlives_its_table(hogs: dict[str, Any]) -> None:
    table = tandem.simulate(hogs).table
    expected = table.to_dict()
    arrow = pyarrow.table(table)
    del table
    junk = [bytes(1 << 16) for _ in range(64)]
    assert arrow.to_pydict() == expected
    del junk


def test_a_capsule_that_nobody_takes_is_released(simulation: tandem.Simulation) -> None:
    for _ in range(1000):
        simulation.table.__arrow_c_array__()
        simulation.table.__arrow_c_stream__()
        simulation.table.__arrow_c_schema__()


def test_parquet_has_what_arrow_hands_over(tmp_path: Path, comparison: tandem.Comparison) -> None:
    for name, table in [("values", comparison.values), ("effects", comparison.effects)]:
        path = tmp_path / f"{name}.parquet"
        table.to_parquet(path)
        arrow = pyarrow.table(table)
        read = pyarrow.parquet.read_table(path)
        assert read.equals(arrow) and read.schema == arrow.schema
        assert polars.read_parquet(path).to_dict(as_series=False) == table.to_dict()
        [[rows]] = duckdb.execute(f"select count(*) from read_parquet('{path}')").fetchall()
        assert rows == len(table)


def test_parquet_of_every_shape_comes_back(tmp_path: Path) -> None:
    # More rows than a group has, more words than a byte counts, no words, no values, no rows.
    large = 300_000
    columns: list[tuple[str, str, list[Any]]] = [
        ("word", "text", [None if row % 7 == 0 else f"w{row % 1000}" for row in range(large)]),
        ("nothing", "text", [None] * large),
        ("count", "count", [2**64 - 1 - row if row % 2 else row for row in range(large)]),
        ("number", "number", [None if row % 3 == 0 else row / 7 for row in range(large)]),
        ("same", "text", ["same"] * large),
    ]
    path = tmp_path / "t.parquet"
    for rows in [large, 9, 8, 1, 0]:
        table = tandem.Table._of([(name, kind, values[:rows]) for name, kind, values in columns])
        table.to_parquet(path)
        arrow = pyarrow.table(table)
        arrow.validate(full=True)
        assert pyarrow.parquet.read_table(path).equals(arrow)
        assert arrow.to_pydict() == table.to_dict() == {name: values[:rows] for name, _, values in columns}
        if rows:
            assert polars.read_parquet(path).equals(polars.DataFrame(table))
            [[most]] = duckdb.execute(f"select max(count) from read_parquet('{path}')").fetchall()
            assert most == max(columns[2][2][:rows])


def test_effects_are_those_of_the_comparison(comparison: tandem.Comparison) -> None:
    effects = polars.DataFrame(comparison.effects)
    for row in comparison.data["rows"]:
        for policy, figure in zip(comparison.policies, row["figures"], strict=True):
            group = polars.col("group") == row["group"] if row["group"] else polars.col("group").is_null()
            name = polars.concat_str("measure", polars.lit(", "), "unit") == row["measure"]
            name |= polars.concat_str("measure", polars.lit(" "), "unit") == row["measure"]
            [found] = effects.filter(group & name & (polars.col("policy") == policy)).to_dicts()
            assert (found["mean"], found["effect_pct"]) == (figure["mean"], figure["effect_pct"])
            interval = None if found["low_pct"] is None else [found["low_pct"], found["high_pct"]]
            assert interval == figure["interval_pct"]


def test_results_can_be_pickled(simulation: tandem.Simulation, comparison: tandem.Comparison) -> None:
    for result in [simulation, comparison, simulation.table, comparison.effects, tandem.machine("2x4x2")]:
        assert pickle.loads(pickle.dumps(result)) == result
    table = tandem.Table._of([("n", "number", [0.1, None, math.inf])])
    assert pickle.loads(pickle.dumps(table)).to_dict() == {"n": [0.1, None, math.inf]}


def test_tables_that_differ_are_not_equal(simulation: tandem.Simulation, comparison: tandem.Comparison) -> None:
    assert simulation.table != comparison.values
    assert simulation.table != 1
