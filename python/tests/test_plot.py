"""Pictures have what they are made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")

import matplotlib.colors
import pytest
import tandem
from tandem import plot


def points(line: Any) -> tuple[list[float], list[float]]:
    """What a line leads through."""
    return list(line.get_xdata()), list(line.get_ydata())


@pytest.fixture(scope="module")
def comparison() -> tandem.Comparison:
    return tandem.compare("noisy-neighbour", ["linux", "tandem", "xen-credit"], seeds=3, set={"length": "100ms"})


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    tandem.simulate("web-beside-batch", set={"length": "20ms"}, trace=path, trace_from="100ms", trace_to="105ms")
    return path


def test_effects_are_marks_at_their_factors(comparison: tandem.Comparison) -> None:
    axes = plot.effects(comparison, "web", measures=["response p50", "response p99"])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["response p50, us", "response p99, us"]
    marks = sorted(times[0] for times, _ in map(points, axes.lines) if len(times) == 1)
    effects = comparison.effects.to_dict()
    rows = zip(effects["group"], effects["measure"], effects["effect_pct"], strict=True)
    wanted = [
        1 + effect / 100
        for group, measure, effect in rows
        if group == "web" and measure in ("response p50", "response p99") and effect is not None
    ]
    low, high = axes.get_xlim()
    assert len(wanted) == 4
    assert marks == pytest.approx(sorted(min(max(factor, low ** (1 / 1.03)), high ** (1 / 1.03)) for factor in wanted))


def test_distributions_have_a_curve_for_each_policy(comparison: tandem.Comparison) -> None:
    axes = plot.distributions(comparison, "web")
    assert [line.get_label() for line in axes.lines] == comparison.policies
    for line in axes.lines:
        times, nines = points(line)
        assert times == sorted(times) and nines[0] == 0 and len(times) > 9
    [pooled] = [pooled for pooled in comparison.data["pooled"] if pooled["group"] == "web"]
    for response, (times, nines) in zip(pooled["response"], map(points, axes.lines), strict=True):
        median = min(range(len(nines)), key=lambda at: abs(nines[at] - 0.30103))
        assert times[median] == response["p50_us"]
    wakeups = plot.distributions(comparison, "web", measure="wake-up")
    assert "wake-ups" in wakeups.get_title("left")


def test_a_heat_map_has_a_number_in_each_cell() -> None:
    axes = plot.heat_map([[1.5, None], [-20, 0]], columns=[2, 4], rows=["pin", "soft"], title="gain")
    assert [text.get_text() for text in axes.texts] == ["+1.5", "-", "-20", "+0"]
    assert axes.get_title("left") == "gain, %"
    with pytest.raises(tandem.InputError, match="a list for each row"):
        plot.heat_map([[1]], columns=[1, 2], rows=["a"])


def test_a_trace_is_one_slice_after_the_other(trace: Path) -> None:
    slices = plot.slices(trace)
    lanes: dict[Any, list[plot.Slice]] = {}
    for piece in sorted(slices, key=lambda piece: piece.begin_ns):
        lanes.setdefault((piece.guest, piece.cpu), []).append(piece)
    assert {guest for guest, _ in lanes} > {None}
    for lane in lanes.values():
        assert all(100_000_000 <= piece.begin_ns <= piece.end_ns <= 105_000_000 for piece in lane)
        assert all(one.end_ns <= other.begin_ns for one, other in zip(lane, lane[1:], strict=False))
    starts = [event for event in map(json.loads, trace.read_text().splitlines()[1:]) if event["kind"] == "start"]
    assert {(event["at_ns"], event["task"]) for event in starts} <= {(piece.begin_ns, piece.task) for piece in slices} | {
        (event["at_ns"], event["task"]) for event in starts if event["at_ns"] >= 105_000_000
    }


def test_a_timeline_shows_both_levels(trace: Path, tmp_path: Path) -> None:
    host, guest = plot.timeline(trace, guests=["web-1"])
    assert {label.get_text() for label in host.get_yticklabels()} <= {f"pCPU {cpu}" for cpu in range(16)}
    assert "vCPU 0" in [label.get_text() for label in guest.get_yticklabels()]
    legend: Any = host.get_legend()
    assert [text.get_text() for text in legend.get_texts()][-3:] == ["web-0", "web-1", "web-2"]
    assert guest.get_title("left") == "the guest of web-1; pale without a pCPU"
    assert host.get_xlim() == guest.get_xlim()
    figure: Any = host.figure
    figure.savefig(tmp_path / "t.png")
    assert (tmp_path / "t.png").stat().st_size > 10_000
    assert len(plot.timeline(trace)) == 2 and len(plot.timeline(trace, guests=[])) == 1


def test_a_vcpu_without_a_pcpu_is_pale(tmp_path: Path) -> None:
    head = {"pcpus": 1, "vms": [{"name": "g", "group": "g", "vcpus": 2, "has_guest_kernel": True}]}
    events = [
        {"at_ns": 0, "kind": "start", "cpu": 0, "task": "g/vcpu0"},
        {"at_ns": 0, "kind": "start", "guest": "g", "cpu": 0, "task": "work"},
        {"at_ns": 0, "kind": "start", "guest": "g", "cpu": 1, "task": "other"},
        {"at_ns": 4000, "kind": "preempt", "cpu": 0, "task": "g/vcpu0"},
        {"at_ns": 10000, "kind": "end"},
    ]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [head, *events]))
    _, guest = plot.timeline(path)
    bars = [(bar.get_alpha(), bar.get_paths()) for bar in guest.collections]
    solid = [[path.get_extents().width for path in paths] for alpha, paths in bars if alpha is None]
    pale = [[path.get_extents().width for path in paths] for alpha, paths in bars if alpha == 0.3]
    # Of the first vCPU the guest takes 10 us to run, and 4 us do; of the second one, nothing says that it lost its pCPU.
    assert (solid, pale) == ([[4.0], [10.0]], [[10.0], [10.0]])


def test_what_cannot_be_drawn_is_an_error(comparison: tandem.Comparison, trace: Path, tmp_path: Path) -> None:
    cases: list[tuple[Any, str]] = [
        (lambda: plot.effects(comparison, "nobody"), "of group `nobody`"),
        (lambda: plot.distributions(comparison, "nobody"), "no `response` of a group `nobody`"),
        (lambda: plot.timeline(trace, guests=["kworker"]), "there is one in web-0, web-1, web-2"),
        (lambda: plot.slices(tmp_path / "x.jsonl"), "no trace in JSON lines"),
    ]
    (tmp_path / "x.jsonl").write_text("{}\n")
    for draw, words in cases:
        with pytest.raises(tandem.InputError, match=words):
            draw()


def test_own_axes_are_drawn_on(comparison: tandem.Comparison) -> None:
    import matplotlib.pyplot as plt

    axes = plt.subplots()[1]
    assert plot.effects(comparison, axes=axes) is axes
    assert plot.heat_map([[1]], columns=[1], rows=[1], axes=axes) is axes


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    import matplotlib.pyplot as plt

    plt.close("all")
