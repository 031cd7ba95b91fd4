"""Evaluations are those of the command, behind the same fences."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tandem
from conftest import Command

PROJECT = Path(__file__).parents[2]
CHEATS = PROJECT / "tests/schedulers/cheats"
SECRET = "zq-secret-zq"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def as_told(printed: bytes) -> dict[str, Any]:
    """What the command prints, with the score as Python has it."""
    told: dict[str, Any] = json.loads(printed)
    told["combined_score"] = float(told["combined_score"])
    return told


@pytest.fixture
def honest(tmp_path: Path) -> Path:
    source = tmp_path / "honest.bpf.c"
    source.write_text((CHEATS / "base.bpf.h").read_text())
    return source


def test_a_source_and_an_object_are_judged_as_by_the_command(command: Command, honest: Path) -> None:
    arguments = ["evaluate", str(honest), "--suite", "tasks"]
    evaluation = tandem.evaluate(honest, suite="tasks")
    # The order of a few numbers in the debugging information depends on where clang's memory is.
    different = {"object_hash": evaluation["object_hash"]}
    assert evaluation == as_told(command(*arguments, "--format", "json")) | different
    assert str(evaluation).encode() == command(*arguments)
    assert evaluation.reasons == [] and math.isfinite(evaluation.combined_score)
    command("build", str(honest))
    by_object = tandem.evaluate(honest.with_suffix(".o"), suite="tasks", split="validation", seed=3)
    options = ["--suite", "tasks", "--split", "validation", "--seed", "3", "--format", "json"]
    assert by_object == as_told(command("evaluate", str(honest.with_suffix(".o")), *options))
    copy = pickle.loads(pickle.dumps(by_object))
    assert copy == by_object and str(copy) == str(by_object)


def test_what_is_wrong_has_a_reason(command: Command, tmp_path: Path) -> None:
    source = tmp_path / "wrong.bpf.c"
    for text, kind in [("u65 x;", "compile"), ("int x;", "load")]:
        source.write_text(text)
        evaluation = tandem.evaluate(source)
        assert evaluation.combined_score == -math.inf
        assert [reason["kind"] for reason in evaluation.reasons] == [kind]
        assert evaluation == as_told(command("evaluate", str(source), "--suite", "hosts", "--format", "json"))


def test_a_stranger_reads_no_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\nu65 {SECRET};\n")
    source = tmp_path / "curious.bpf.c"
    for line in [f'#include "{secret}"', f'const char x[] = {{\n#embed "{secret}"\n}};', '#include "/etc/shadow"']:
        source.write_text(line + "\n")
        evaluation = tandem.evaluate(source)
        assert evaluation.combined_score == -math.inf
        assert SECRET not in str(dict(evaluation)) and "root:" not in str(dict(evaluation))


def test_settings_are_a_candidate(command: Command, tmp_path: Path) -> None:
    own = tandem.evaluate(None)
    assert own == tandem.evaluate("tandem") == as_told(command("evaluate", "tandem", "--suite", "hosts", "--format", "json"))
    assert own.reasons == []
    file = tmp_path / "settings"
    file.write_text('[fairness]\nslice = "2ms"\n')
    of_file = tandem.evaluate(None, settings=file)
    assert of_file == as_told(command("evaluate", "--settings", str(file), "--suite", "hosts", "--format", "json"))
    assert of_file.parts != own.parts
    of_dictionary = tandem.evaluate(None, settings={"fairness": {"slice": "2ms"}})
    assert of_dictionary == of_file


def test_errors_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(tandem.InputError, match="there is no suite `none`; there are hosts, guests, tasks"):
        tandem.evaluate(None, suite="none")  # type: ignore[arg-type]
    with pytest.raises(tandem.InputError, match="there is no split `none`; there are train, validation, test"):
        tandem.evaluate(None, split="none")  # type: ignore[arg-type]
    with pytest.raises(tandem.InputError, match="nowhere.bpf.o"):
        tandem.evaluate("nowhere.bpf.o")
    with pytest.raises(tandem.InputError, match="`settings` are for Tandem's own scheduler"):
        tandem.evaluate("mine.bpf.o", settings={})
    with pytest.raises(tandem.ScenarioError, match="slice of \\[fairness\\] is 1 us; allowed is from 100 us to 1 s"):
        tandem.evaluate(None, settings={"fairness": {"slice": "1us"}})


def test_ctrl_c_ends_it(tmp_path: Path) -> None:
    # Nothing would end it otherwise within a minute.
    source = tmp_path / "endless.bpf.c"
    source.write_text("#define A0 x\n" + "".join(f"#define A{n} {f'A{n - 1} ' * 16}\n" for n in range(1, 12)) + "int y = A11;\n")

    def send() -> None:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    begun_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        tandem.evaluate(source)
    sender.join()
    assert time.monotonic() - begun_s < 10
