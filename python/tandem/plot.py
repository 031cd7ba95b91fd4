"""Pictures of results, in the look of the reports. They need matplotlib, which `pip install tandem-scheduler[plot]` brings.

Each function draws on the axes that it is given, or on new ones, and gives them back: what is there can be changed, and
`axes.figure.savefig(path)` writes it.
"""

from __future__ import annotations

import functools
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar

try:
    import matplotlib
except ImportError as error:
    raise ImportError("tandem.plot needs matplotlib; install it with `pip install tandem-scheduler[plot]`") from error
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter

from ._compare import Comparison
from ._errors import InputError

P = ParamSpec("P")
R = TypeVar("R")

#: The baseline's colour, and those of others: told apart also by those who are colour-blind (M. Okabe, K. Ito, 2002).
BASE = "#4b5157"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#b8629a", "#c48a00", "#6a3fb5", "#7a4a1e")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
#: Better and worse.
GAIN, LOSS = "#0072b2", "#d55e00"

#: The look of the reports.
STYLE: Any = {
    "figure.facecolor": "#fdfdfb",
    "axes.facecolor": "#fdfdfb",
    "axes.edgecolor": "#d9dcd6",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "grid.color": "#e6e8e3",
    "text.color": "#1c2024",
    "axes.labelcolor": "#595f66",
    "xtick.color": "#595f66",
    "ytick.color": "#595f66",
    "legend.frameon": False,
    "legend.fontsize": "small",
    "font.size": 10,
}

#: Ratios to the baseline that the scale of effects may end at.
RATIOS = (1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 16.0, 64.0)


def colour(contender: int) -> str:
    """The colour of a contender, of which the first one is the baseline."""
    return BASE if contender == 0 else COLOURS[(contender - 1) % len(COLOURS)]


def _in_style(draw: Callable[P, R]) -> Callable[P, R]:
    """The function, which draws in the look of the reports."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


def _axes(axes: Axes | None, width: float, height: float) -> Axes:
    """The axes, or new ones of that size in inches."""
    return axes if axes is not None else plt.subplots(figsize=(width, height), layout="constrained")[1]


def _rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """The rows of a table."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@_in_style
def effects(
    comparison: Comparison, group: str | None = None, *, measures: Iterable[str] | None = None, axes: Axes | None = None
) -> Axes:
    """The effects of each policy on the measures of a group, against the baseline, with their 95% confidence intervals.

    The scale is that of factors: twice as much is as far away as half. What is beyond its end is drawn at it.

    Args:
        comparison: What `tandem.compare` gave.
        group: The group; None is the host.
        measures: Which ones, such as "response p99"; all that have an effect if not given.
        axes: Where to draw; new axes if not given.
    """
    rows = [row for row in _rows(comparison.effects.to_dict()) if row["group"] == group and row["effect_pct"] is not None]
    wanted = list(dict.fromkeys(row["measure"] for row in rows)) if measures is None else list(measures)
    rows = [row for row in rows if row["measure"] in wanted]
    if not rows:
        raise InputError(f"there is no effect on these measures of {'the host' if group is None else f'group `{group}`'}")
    factors = [_factor(row["effect_pct"]) for row in rows]
    largest = max(max(factor, 1 / factor) for factor in factors)
    end = next((ratio for ratio in RATIOS if ratio >= largest), RATIOS[-1])
    others = comparison.policies[1:]
    axes = _axes(axes, 8, 1.1 + 0.22 * len(wanted) * max(len(others), 1.5))
    for contender, policy in enumerate(others, 1):
        for row in (row for row in rows if row["policy"] == policy):
            height = wanted.index(row["measure"]) + 0.7 * ((contender - 0.5) / len(others) - 0.5)
            place = min(max(_factor(row["effect_pct"]), 1 / end), end)
            if row["low_pct"] is not None:
                ends = [min(max(_factor(row[key]), 1 / end), end) for key in ("low_pct", "high_pct")]
                axes.plot(ends, [height, height], color=colour(contender), linewidth=1.8, solid_capstyle="butt")
            marker = MARKERS[(contender - 1) % len(MARKERS)]
            # Where chance explains the effect, the mark is hollow.
            face = colour(contender) if row["verdict"] is not None else axes.get_facecolor()
            axes.plot([place], [height], marker=marker, color=colour(contender), markerfacecolor=face, markersize=5.5)
    axes.set_xscale("log")
    axes.set_xlim(1 / end**1.03, end**1.03)
    ticks = [1 / end, end**-0.5, 1, end**0.5, end]
    axes.set_xticks(ticks, [_percent(tick) for tick in ticks])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.axvline(1, color="#8b9197", linewidth=1)
    units = {row["measure"]: row["unit"] for row in rows}
    axes.set_yticks(range(len(wanted)), [f"{name}, {units[name]}" if name in units else name for name in wanted])
    axes.set_ylim(len(wanted) - 0.5, -0.5)
    axes.set_xlabel(f"effect against {comparison.policies[0]}; hollow marks may be chance")
    axes.set_title("the host" if group is None else group)
    handles = [
        axes.plot([], [], color=colour(at), marker=MARKERS[(at - 1) % len(MARKERS)], label=policy)[0]
        for at, policy in enumerate(others, 1)
    ]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1))
    return axes


def _percent(factor: float) -> str:
    """The effect that a factor is."""
    pct = 100 * (factor - 1)
    return f"{pct:+.2g}%" if 0 < abs(pct) < 10 else f"{pct:+.0f}%" if pct else "0"


def _factor(pct: float) -> float:
    """The factor that an effect is; that of nothing left is very small."""
    return max(1 + pct / 100, 1e-9)


@_in_style
def distributions(
    comparison: Comparison,
    group: str,
    *,
    measure: Literal["response", "wake-up"] = "response",
    axes: Axes | None = None,
) -> Axes:
    """The share of the times of a group that are shorter than a time, of all seeds together, under each policy.

    Each nine of the shares has the same room, as delays are about their last percent.

    Args:
        comparison: What `tandem.compare` gave.
        group: The group.
        measure: "response" times, or delays of "wake-up"s.
        axes: Where to draw; new axes if not given.
    """
    rows = [row for row in _rows(comparison.distributions.to_dict()) if (row["group"], row["measure"]) == (group, measure)]
    if not rows:
        raise InputError(f"there is no `{measure}` of a group `{group}`")
    axes = _axes(axes, 6, 3.6)
    for contender, policy in enumerate(comparison.policies):
        points = [(row["time_us"], -math.log10(1 - row["below_pct"] / 100)) for row in rows if row["policy"] == policy]
        if points:
            times, nines = zip(*points, strict=True)
            axes.plot(times, nines, color=colour(contender), linewidth=1.8, label=policy)
    axes.set_xscale("log")
    shares = [0, 50, 90, 99, 99.9, 99.99]
    axes.set_yticks([-math.log10(1 - share / 100) for share in shares], [f"{share:g}%" for share in shares])
    axes.set_ylim(0, 4.05)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("us")
    axes.set_ylabel("shorter")
    axes.set_title(f"{group}: {measure} times" if measure == "response" else f"{group}: delays of wake-ups")
    # Curves rise from the left below to the right above.
    axes.legend(loc="upper left")
    return axes


@_in_style
def heat_map(
    values: Sequence[Sequence[float | None]],
    *,
    columns: Sequence[object],
    rows: Sequence[object],
    title: str = "",
    unit: str = "%",
    axes: Axes | None = None,
) -> Axes:
    """A table of gains: blue for more than 0, orange for less, and the number in each cell.

    Args:
        values: A list for each row; None where there is no value.
        columns: The labels of the columns.
        rows: The labels of the rows.
        title: What the numbers are.
        unit: Their unit.
        axes: Where to draw; new axes if not given.
    """
    if len(values) != len(rows) or any(len(row) != len(columns) for row in values):
        raise InputError("`values` has to be a list for each row, with a value for each column")
    axes = _axes(axes, 1.8 + 0.75 * len(columns), 0.9 + 0.42 * len(rows))
    numbers = [[math.nan if value is None else value for value in row] for row in values]
    most = max((abs(value) for row in numbers for value in row if math.isfinite(value)), default=0) or 1
    colours = LinearSegmentedColormap.from_list("tandem", [LOSS, "#fdfdfb", GAIN])
    axes.imshow(numbers, cmap=colours, vmin=-most, vmax=most, aspect="auto")
    for at, row in enumerate(numbers):
        for column, value in enumerate(row):
            text = "-" if math.isnan(value) else f"{value:+.3g}"
            # White on the strong colours.
            ink = "#fdfdfb" if abs(value) > 0.62 * most else "#1c2024"
            axes.text(column, at, text, ha="center", va="center", color=ink, fontsize="small")
    axes.set_xticks(range(len(columns)), [str(column) for column in columns])
    axes.set_yticks(range(len(rows)), [str(row) for row in rows])
    axes.grid(visible=False)
    axes.set_title(f"{title}, {unit}" if title else unit)
    return axes


@dataclass(frozen=True)
class Slice:
    """A task on a CPU, of the host if there is no guest. Times are ns since the start of the run."""

    guest: str | None
    cpu: int
    task: str
    begin_ns: int
    end_ns: int


def slices(path: str | os.PathLike[str]) -> list[Slice]:
    """The slices of a trace in JSON lines, as `tandem.simulate(..., trace="run.jsonl")` and `tandem sim --trace` write it."""
    _, found = _read(path)
    return found


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Slice]]:
    """The head of a trace, and its slices."""
    try:
        return _read_lines(path)
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError):
        message = "is no trace in JSON lines, or not all of one; write one with the ending .jsonl"
        raise InputError(f"{os.fspath(path)} {message}") from None


def _read_lines(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[Slice]]:
    found: list[Slice] = []
    runs: dict[tuple[str | None, int], tuple[int, str]] = {}
    with open(path, encoding="utf-8") as lines:
        head: dict[str, Any] = json.loads(next(lines, "{}"))
        if "pcpus" not in head:
            raise KeyError("pcpus")
        selection = head.get("selection") or {}
        begin_ns, end_ns = selection.get("from_ns") or 0, 0
        for line in lines:
            event = json.loads(line)
            at_ns, kind = event["at_ns"], event["kind"]
            lane = (event.get("guest"), event.get("cpu"))
            if kind == "end":
                end_ns = min(at_ns, selection.get("to_ns") or at_ns)
            elif kind == "start":
                runs[lane] = (at_ns, event["task"])
            elif kind in ("preempt", "yield", "block", "exit"):
                # What ran before the part that is traced has begun before it.
                since_ns, task = runs.pop(lane, (begin_ns, event["task"]))
                found.append(Slice(*lane, task, since_ns, at_ns))
    found += [Slice(*lane, task, since_ns, end_ns) for lane, (since_ns, task) in runs.items() if since_ns < end_ns]
    return head, found


@_in_style
def timeline(
    path: str | os.PathLike[str],
    *,
    guests: Sequence[str] | None = None,
    from_ns: int | None = None,
    to_ns: int | None = None,
) -> list[Axes]:
    """Who had the CPUs, at both levels: of the host by VMs, and below that of guests by tasks.

    Of more VMs than there are colours, those of a group have one together.

    A task of a guest is pale where its vCPU has no pCPU: the guest takes it to run, and it does not. A pCPU on which
    nothing happens in what is traced is not shown, and a vCPU that it runs is taken to have it; trace the whole run, and
    show a part by `from_ns` and `to_ns`, where that matters.

    Args:
        path: A trace in JSON lines, as `tandem.simulate(..., trace="run.jsonl")` and `tandem sim --trace` write it.
        guests: The VMs whose guests are shown; the first one with a guest kernel if not given.
        from_ns: What is shown begins there, ns since the start of the run; by default with the trace.
        to_ns: It ends there; by default with the trace.

    Returns:
        The axes of the host, and of each guest.
    """
    head, found = _read(path)
    known = [vm["name"] for vm in head["vms"] if vm["has_guest_kernel"]]
    chosen = known[:1] if guests is None else list(guests)
    for name in chosen:
        if name not in known:
            raise InputError(f"there is no guest kernel in a VM `{name}`; there is one in {', '.join(known) or 'none'}")
    if not found:
        raise InputError(f"{os.fspath(path)} has no slice of a task")
    begin = min(piece.begin_ns for piece in found) if from_ns is None else from_ns
    end = max(piece.end_ns for piece in found) if to_ns is None else to_ns
    found = [piece for piece in found if piece.begin_ns < end and piece.end_ns > begin]
    seen = {piece.task.rsplit("/", 1)[0] for piece in found if piece.guest is None}
    vms = [vm for vm in head["vms"] if vm["name"] in seen]
    shown = {vm["name"]: vm["name"] if len(vms) <= len(COLOURS) else vm["group"] for vm in vms}
    panels: list[str | None] = [None, *chosen]
    lanes = [sorted({piece.cpu for piece in found if piece.guest == panel}) for panel in panels]
    heights = [max(len(lane), 1) for lane in lanes]
    size = (9, 1.2 + 0.24 * sum(heights) + 0.5 * len(chosen))
    _, drawn = plt.subplots(
        len(panels), 1, figsize=size, height_ratios=heights, sharex=True, squeeze=False, layout="constrained"
    )
    all_axes: list[Axes] = list(drawn[:, 0])
    running = {(piece.task, piece.begin_ns, piece.end_ns) for piece in found if piece.guest is None}
    for axes, panel, lane in zip(all_axes, panels, lanes, strict=True):
        own = [piece for piece in found if piece.guest == panel]
        labels = [shown.get(piece.task.rsplit("/", 1)[0], piece.task) if panel is None else piece.task for piece in own]
        names = list(dict.fromkeys(sorted(labels)))
        colours = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(names)}
        for piece, label in zip(own, labels, strict=True):
            bar = (piece.begin_ns / 1e3, (piece.end_ns - piece.begin_ns) / 1e3)
            at = (lane.index(piece.cpu) - 0.4, 0.8)
            axes.broken_barh([bar], at, facecolor=colours[label], alpha=1 if panel is None else 0.3, linewidth=0)
            if panel is not None:
                parts = _both(piece, running)
                axes.broken_barh(parts, at, facecolor=colours[label], linewidth=0)
        axes.set_yticks(range(len(lane)), [f"{'pCPU' if panel is None else 'vCPU'} {cpu}" for cpu in lane])
        axes.set_ylim(len(lane) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.set_title("the host" if panel is None else f"the guest of {panel}; pale without a pCPU")
        patches = [Patch(color=colours[name], label=name) for name in names[: len(COLOURS)]]
        axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1, 1))
    all_axes[-1].set_xlabel("us since the start of the run")
    all_axes[-1].set_xlim(begin / 1e3, end / 1e3)
    return all_axes


def _both(piece: Slice, running: set[tuple[str, int, int]]) -> list[tuple[float, float]]:
    """The parts of a guest's slice in which its vCPU had a pCPU, as beginnings and lengths in us."""
    name = f"{piece.guest}/vcpu{piece.cpu}"
    own = [(begin, end) for task, begin, end in running if task == name]
    # Where no event of the host is about it, it has run all the time: else its guest would have done nothing.
    own = own or [(piece.begin_ns, piece.end_ns)]
    parts = [(max(piece.begin_ns, begin), min(piece.end_ns, end)) for begin, end in own]
    return [(begin / 1e3, (end - begin) / 1e3) for begin, end in parts if begin < end]
