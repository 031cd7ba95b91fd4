"""Schedulers of hosts and guests: simulate, compare and replay.

`simulate` runs a scenario, `compare` runs it under several schedulers, `replay` runs a recording of a real machine again,
an `experiment` has published numbers beside its scenarios, and a `Study` runs a scenario at many points, here or on many
machines. The first two take a scenario as the path of a file, a name
of the library such as "noisy-neighbour", or a dictionary with what a file has. Results are tables that Polars, pandas,
PyArrow and DuckDB take without copies. The numbers are those of the `tandem` command, bit for bit.
"""

from pathlib import Path

from . import _tandem
from ._compare import Comparison, compare
from ._errors import InputError, ScenarioError, TandemError, TandemWarning
from ._evaluate import Evaluation, evaluate
from ._experiment import Experiment, Reproduction, experiment, experiments
from ._machine import Cpu, Machine, Node, machine
from ._replay import Replay, replay
from ._scenario import scenarios, to_toml
from ._schema import schema
from ._simulate import Run, Simulation, simulate
from ._study import Objective, Range, Replications, Space, Study, StudyResults, Tuned
from ._tandem import Table

__all__ = [
    "Comparison",
    "Cpu",
    "Evaluation",
    "Experiment",
    "InputError",
    "Machine",
    "Node",
    "Objective",
    "Range",
    "Replay",
    "Replications",
    "Reproduction",
    "Run",
    "ScenarioError",
    "Simulation",
    "Space",
    "Study",
    "StudyResults",
    "Table",
    "TandemError",
    "TandemWarning",
    "Tuned",
    "compare",
    "evaluate",
    "experiment",
    "experiments",
    "machine",
    "replay",
    "scenarios",
    "schema",
    "simulate",
    "to_toml",
    "version",
]

#: The version of the program, as `tandem --version` has it.
version: str = _tandem.VERSION
__version__ = version

_tandem._set_library(Path(__file__).parent / "library")
