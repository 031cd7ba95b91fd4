"""What candidates scored: asked from `tandem evaluate`, and kept, so that nothing is asked twice.

A store is a file of JSON lines, one for each answer. A search that was interrupted goes on where it was: it decides again what
it decided before, and finds the answers here.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import math
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

SUITE = "hosts"
#: What a search sees; what it chooses between its finds by; what is looked at once, at its end.
SEEDS = {"train": (1, 2, 3), "validation": tuple(range(1, 25)), "test": (301, 302, 303, 304, 305)}


@dataclass(frozen=True)
class Candidate:
    """A scheduler: a C source; or an object, maybe with settings, which a file in TOML has."""

    source: str = ""
    object: str = ""
    settings: str = ""

    @property
    def key(self) -> str:
        """Equal candidates have equal keys; comments and blanks make no difference. An object is known by its name."""
        code = " ".join(re.sub(r"/\*.*?\*/", " ", self.source, flags=re.DOTALL).split())
        return hashlib.sha256("\0".join([code, self.object, self.settings]).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Answer:
    """What `tandem evaluate` said of a candidate, a split and a seed."""

    #: The scores of the cases, in the order of their names; empty if it breaks a rule.
    cases: tuple[float, ...]
    #: The first reason why it has no number: its kind and message.
    reason: str | None


class Evaluations:
    """The answers in a file, and more of them from the command.

    Args:
        path: The file.
        command: The program, `tandem`.
        jobs: How many are asked at the same time; as many as there are CPUs if not given.
    """

    def __init__(self, path: Path, command: str | None = None, jobs: int | None = None) -> None:
        self.path = path
        self.command = command or os.environ.get("TANDEM_COMMAND", "tandem")
        self.jobs = jobs or len(os.sched_getaffinity(0))
        #: How many answers were asked for, not found in the file.
        self.asked = 0
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str, int], Answer] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            row = json.loads(line)
            self._answers[row["candidate"], row["split"], row["seed"]] = Answer(tuple(row["cases"]), row.get("reason"))

    def answers(self, candidates: Sequence[Candidate], split: str) -> list[list[Answer]]:
        """The answers for each candidate, by the seeds of the split up to the first with which it breaks a rule."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(lambda candidate: self._all(candidate, split), candidates))

    def scores(self, candidates: Sequence[Candidate], split: str) -> list[float]:
        """The score of each: the geometric mean over all cases of all seeds, or 0 if it breaks a rule."""
        return [score(answers) for answers in self.answers(candidates, split)]

    def kept(self, split: str) -> list[Answer]:
        """All answers about a split that are there, whoever was asked about."""
        return [answer for (_, of, _), answer in self._answers.items() if of == split]

    def ask(self, candidate: Candidate, split: str, seed: int) -> Answer:
        """Asks the command, whatever the file says."""
        with tempfile.TemporaryDirectory() as folder:
            return self._ask(candidate, Path(folder), split, seed)

    def _all(self, candidate: Candidate, split: str) -> list[Answer]:
        found = []
        with tempfile.TemporaryDirectory() as folder:
            for seed in SEEDS[split]:
                key = (candidate.key, split, seed)
                if key not in self._answers:
                    answer = self._ask(candidate, Path(folder), split, seed)
                    self._keep(key, answer)
                found.append(self._answers[key])
                if found[-1].reason:
                    break
        return found

    def _ask(self, candidate: Candidate, folder: Path, split: str, seed: int) -> Answer:
        path = candidate.object
        if not path:
            # Compiled once for all seeds.
            source, path = folder / "candidate.bpf.c", str(folder / "candidate.bpf.o")
            if not Path(path).exists():
                source.write_text(candidate.source)
                built = subprocess.run([self.command, "build", source, "--out", path], capture_output=True, text=True)
                if built.returncode:
                    raise SystemExit(built.stderr)
        arguments = [path, "--suite", SUITE, "--split", split, "--seed", str(seed), "--format", "json"]
        if candidate.settings:
            (folder / "settings.toml").write_text(candidate.settings)
            arguments += ["--settings", str(folder / "settings.toml")]
        said = subprocess.run([self.command, "evaluate", *arguments], capture_output=True, text=True)
        if said.returncode == 2 and candidate.settings:
            # Settings that do not go together.
            return Answer((), said.stderr.strip().removeprefix(f"tandem: {folder}/"))
        if said.returncode:
            raise SystemExit(said.stderr)
        told = json.loads(said.stdout)
        if told["reasons"]:
            reason = told["reasons"][0]
            return Answer((), f"{reason['kind']}: {reason['message']}")
        return Answer(tuple(round(part["score"], 6) for _, part in sorted(told["parts"].items())), None)

    def _keep(self, key: tuple[str, str, int], answer: Answer) -> None:
        row = {"candidate": key[0], "split": key[1], "seed": key[2], "cases": answer.cases}
        if answer.reason:
            row["reason"] = answer.reason
        with self._lock:
            self.asked += 1
            self._answers[key] = answer
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def score(answers: Iterable[Answer]) -> float:
    """The geometric mean over all cases, or 0 if a rule is broken: no search prefers that."""
    answers = list(answers)
    if any(answer.reason for answer in answers):
        return 0.0
    logs = [math.log(case) for answer in answers for case in answer.cases]
    return math.exp(sum(logs) / len(logs))


def gain(candidate: Iterable[Answer], base: Iterable[Answer]) -> tuple[float, float, float]:
    """By how many percent a candidate scores more than another one in the same cases, and the 95% interval of that.

    The ratios of cases are pairs; the interval is Student's, of the mean of their logarithms.
    """
    pairs = zip(candidate, base, strict=True)
    logs = [math.log(one / other) for pair in pairs for one, other in zip(pair[0].cases, pair[1].cases, strict=True)]
    mean = sum(logs) / len(logs)
    deviation = math.sqrt(sum((log - mean) ** 2 for log in logs) / (len(logs) - 1))
    margin = STUDENT[len(logs) - 1] * deviation / math.sqrt(len(logs))
    return tuple(100 * math.expm1(log) for log in (mean, mean - margin, mean + margin))  # type: ignore[return-value]


#: Student's t for two-sided 95% by the degrees of freedom: of 3, 5 and 24 seeds with three cases each.
STUDENT = {8: 2.306, 14: 2.145, 71: 1.994}
