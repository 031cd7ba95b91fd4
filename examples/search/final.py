#!/usr/bin/env python3
"""The end of the searches: what they found, beside what they began with, in cases that neither has seen.

found.json and found.toml are looked at in the test split, once; then what each gene of found.json is good for, by the validation: the
found scheduler with one gene as it was.
"""

from __future__ import annotations

import json
from pathlib import Path

import evolve
import tune
from evaluations import SEEDS, Candidate, Evaluations, gain, score

FOLDER = Path(__file__).parent
#: How evolve.py was run.
SEED, GENERATIONS = 1, 20


FOUND: evolve.Genes = json.loads(evolve.FOUND.read_text())
CANDIDATES = {
    "template": evolve.candidate(evolve.DEFAULTS),
    "found template": evolve.candidate(FOUND),
    "tandem": Candidate(object="tandem"),
    "tuned tandem": Candidate(object="tandem", settings=(FOLDER / "found.toml").read_text()),
}
#: What is compared with what.
PAIRS = (("found template", "template"), ("tuned tandem", "tandem"), ("found template", "tandem"))


def trials() -> list[tuple[float, tune.Values]]:
    """The trials of tune.py: scores in training, and settings."""
    rows = [json.loads(line) for line in (FOLDER / "trials.jsonl").read_text().splitlines()]
    return [(row.pop("score"), row) for row in rows]


def without(name: str) -> Candidate:
    """The found scheduler with one gene as it was in the template."""
    return evolve.candidate(FOUND | {name: evolve.DEFAULTS[name]})


def changed() -> list[str]:
    """The genes that the search has changed."""
    return [name for name, value in FOUND.items() if value != evolve.DEFAULTS[name]]


def main() -> None:
    evaluations = Evaluations(FOLDER / "final.jsonl")
    for split in SEEDS:
        answers = dict(zip(CANDIDATES, evaluations.answers(list(CANDIDATES.values()), split), strict=True))
        print(f"{split}, seeds {', '.join(map(str, SEEDS[split]))}")
        for name, of_one in answers.items():
            broken = next((answer.reason for answer in of_one if answer.reason), None)
            print(f"  {name:16} {broken or format(score(of_one), '.4f')}")
        for one, other in PAIRS:
            if score(answers[one]) and score(answers[other]):
                effect, low, high = gain(answers[one], answers[other])
                print(f"  {one} against {other}: {effect:+.1f}% [{low:+.1f}, {high:+.1f}]")
    print("validation, the found template with one gene as it was")
    whole = evaluations.answers([CANDIDATES["found template"]], "validation")[0]
    for name, of_one in zip(changed(), evaluations.answers([without(name) for name in changed()], "validation"), strict=True):
        broken = next((answer.reason for answer in of_one if answer.reason), None)
        told = broken or "{:+.1f}% [{:+.1f}, {:+.1f}]".format(*gain(of_one, whole))
        print(f"  {name:16} {evolve.DEFAULTS[name]:>6} for {FOUND[name]:>6}: {told}")


if __name__ == "__main__":
    main()
