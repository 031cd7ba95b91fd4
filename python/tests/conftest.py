"""What tests share: the command that the package has to agree with, and small scenarios."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., bytes]


@pytest.fixture(autouse=True, scope="session")
def listens_for_ctrl_c() -> None:
    """A shell starts what runs in the background with Ctrl-C ignored, which Python then leaves as it is."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def command() -> Command:
    """Runs `tandem` with these arguments; gives what it prints."""
    program = os.environ["TANDEM_COMMAND"]

    def run(*args: str) -> bytes:
        done = subprocess.run([program, *args], check=False, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    return run


@pytest.fixture
def hogs() -> dict[str, Any]:
    """Three busy vCPUs and one that sleeps most of the time, on two CPUs."""
    return {
        "length": "20ms",
        "machine": "1x2x1",
        "policy": {"host": "linux"},
        "programs": {
            "hog": {"ops": [{"forever": [{"compute": "1ms"}, {"count": "rounds"}]}]},
            "light": {"ops": [{"forever": [{"compute": {"exponential": "100us"}}, {"sleep": "1ms"}]}]},
        },
        "vm": [
            {"group": "hogs", "vcpus": 2, "memory": "1GiB", "programs": ["hog"]},
            {"group": "light", "vcpus": 1, "memory": "1GiB", "programs": ["light"]},
        ],
    }


@pytest.fixture
def hogs_file(tmp_path: Path, hogs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    """The same as a file of the current folder."""
    import tandem

    monkeypatch.chdir(tmp_path)
    Path("hogs.toml").write_text(tandem.to_toml(hogs))
    return "hogs.toml"
