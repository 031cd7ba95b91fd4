"""Other threads, Ctrl-C and progress while runs go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import tandem

#: So long that no machine ends it while a test waits.
FOREVER = {"length": "3600s"}


@pytest.fixture
def endless(hogs: dict[str, Any]) -> dict[str, Any]:
    return hogs | FOREVER


def interrupted(work: Callable[[], object]) -> float:
    """Sends Ctrl-C while it works; gives how long it took to end after that, seconds."""
    sent: list[float] = []

    def send() -> None:
        time.sleep(0.3)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(KeyboardInterrupt):
        work()
    ended_s = time.monotonic()
    sender.join()
    return ended_s - sent[0]


def test_ctrl_c_ends_a_run_at_once(endless: dict[str, Any]) -> None:
    # Nothing would end it otherwise: the limit only keeps a broken build from hanging.
    assert interrupted(lambda: tandem.simulate(endless, seeds=4)) < 30


def test_ctrl_c_ends_a_comparison_at_once(endless: dict[str, Any]) -> None:
    assert interrupted(lambda: tandem.compare(endless, ["linux", "tandem"], seeds=2)) < 30


def test_a_program_that_does_not_catch_it_dies_of_the_signal(endless: dict[str, Any]) -> None:
    code = f"import tandem; print('runs', flush=True); tandem.simulate({endless!r})"
    program = subprocess.Popen(
        [sys.executable, "-I", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "runs\n"
    time.sleep(0.3)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == -signal.SIGINT and "KeyboardInterrupt" in errors


def test_other_threads_go_on(endless: dict[str, Any]) -> None:
    steps = 0

    def count() -> None:
        nonlocal steps
        # They end the run themselves: it goes on for ever if they cannot.
        while steps < 1_000:
            steps += 1
            time.sleep(0)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=count)
    with pytest.raises(KeyboardInterrupt):
        tandem.simulate(endless, progress=lambda done, planned: None if thread.ident else thread.start())
    thread.join()
    assert steps == 1_000


def test_several_threads_can_run_at_once(hogs: dict[str, Any]) -> None:
    results: dict[int, str] = {}
    threads = [
        threading.Thread(target=lambda seed=seed: results.update({seed: tandem.simulate(hogs, seeds=[seed])[0].json}))
        for seed in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[seed] for seed in range(4)] == [tandem.simulate(hogs, seeds=[seed])[0].json for seed in range(4)]


def test_progress_is_counted_in_runs(hogs: dict[str, Any]) -> None:
    calls: list[tuple[float, int]] = []
    tandem.simulate(hogs, seeds=3, progress=lambda done, planned: calls.append((done, planned)))
    assert calls[-1] == (3, 3)
    tandem.compare(hogs, ["linux", "tandem"], seeds=2, progress=lambda done, planned: calls.append((done, planned)))
    assert calls[-1] == (4, 4)


def test_progress_goes_on_within_a_run(endless: dict[str, Any]) -> None:
    calls: list[float] = []

    class Enough(Exception):
        pass

    def progress(done: float, planned: int) -> None:
        calls.append(done)
        if 0 < done < planned:
            raise Enough

    # A run of a second at least, of which parts are seen.
    with pytest.raises(Enough):
        tandem.simulate(endless | {"length": "100s"}, progress=progress)
    assert calls == sorted(calls)


def test_what_progress_raises_ends_the_runs(endless: dict[str, Any]) -> None:
    def progress(done: float, planned: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        tandem.simulate(endless, progress=progress)


@pytest.mark.parametrize(("has_tqdm", "line"), [(False, "mine: 1.0 of 1 runs"), (True, "mine: 100%")])
def test_progress_is_shown_if_it_is_asked_for(
    hogs: dict[str, Any],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    has_tqdm: bool,
    line: str,
) -> None:
    from tandem import _progress

    monkeypatch.setattr(_progress, "SHOWN_AFTER_S", 0.0)
    if not has_tqdm:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    tandem.simulate(hogs, name="mine", progress=True)
    assert line in capfd.readouterr().err
    tandem.simulate(hogs, progress=False)
    tandem.simulate(hogs)
    assert capfd.readouterr().err == "", "nobody looks at a file"
