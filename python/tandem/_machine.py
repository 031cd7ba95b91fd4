"""`machine` and what it gives."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import NamedTuple

from . import _tandem


class Cpu(NamedTuple):
    """A logical CPU: an SMT thread, or a core without SMT."""

    #: The operating system's number.
    cpu: int
    #: The position of its core.
    core: int
    #: The position of its last-level cache; None if none is reported.
    llc: int | None
    #: The number of its NUMA node.
    node: int
    #: The number of its package.
    package: int
    #: Its speed, in thousandths of the machine's fastest CPU.
    capacity_permille: int


class Node(NamedTuple):
    """A NUMA node."""

    #: The operating system's number.
    node: int
    #: Its memory, bytes; 0 for none.
    memory_bytes: int
    #: The bandwidth that its memory sustains, bytes per second; 0 without memory.
    bandwidth_bytes_per_s: int
    #: Its CPUs, as a list such as "0-3,8".
    cpus: str


@dataclass(frozen=True)
class Machine:
    """A machine. Printed, it is the text of a machine file."""

    #: Its name.
    name: str
    #: Its logical CPUs.
    cpus: tuple[Cpu, ...] = field(repr=False)
    #: Its NUMA nodes.
    nodes: tuple[Node, ...]
    #: The machine file that describes it.
    toml: str = field(repr=False)

    def __str__(self) -> str:
        return self.toml


def machine(name: str | os.PathLike[str]) -> Machine:
    """The machine of a name, or of a file.

    Args:
        name: A preset such as "xeon-e5620-2s"; PACKAGESxCORESxTHREADS, such as "2x64x2", or with the last-level caches and
            NUMA nodes of each package "2x96x2:llcs=12,nodes=4"; or the path of a machine file.

    Raises:
        InputError: There is no such machine. The message lists the presets.
        ScenarioError: The file is wrong.
    """
    parts = _tandem.machine(os.fspath(name))
    return Machine(
        parts["name"],
        tuple(Cpu(*cpu) for cpu in parts["cpus"]),
        tuple(Node(*node) for node in parts["nodes"]),
        parts["toml"],
    )
