#!/usr/bin/env python3
"""Breeds schedulers from template.bpf.c: a small evolutionary search.

A scheduler is its *genes*: which alternatives it takes, and its constants. A generation has a dozen children, each of two parents
that won against another one; each gene comes from one of the two and may change. The best dozen of all live on. Whatever the
random numbers decide follows from the seed, and the answers of `tandem evaluate` are kept in a file: the same command goes on where
it was interrupted, and the same search gives the same schedulers.

    ./evolve.py --generations 20
    ./evolve.py --print > found.bpf.c
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from evaluations import Candidate, Evaluations

FOLDER = Path(__file__).parent
#: The genes of what was found.
FOUND = FOLDER / "found.json"
TEMPLATE = (FOLDER / "template.bpf.c").read_text()
POPULATION = 12
#: How many of all that were tried the validation decides between: many, as training does not see all rules that may break.
FINALISTS = 60

GENE = re.compile(r"^#define (\w+) (\d+)(\s*/\* )(\d+)\.\.(\d+) \*/$", re.MULTILINE)
Genes = dict[str, int]


@dataclass(frozen=True)
class Range:
    """What a gene may be: few numbers are alternatives, many are a constant."""

    first: int
    last: int

    def draw(self, dice: random.Random) -> int:
        """Any of them; constants by their magnitude."""
        if self.last - self.first < 10:
            return dice.randint(self.first, self.last)
        if self.first == 0 and dice.random() < 0.2:
            return 0
        low = max(self.first, self.last / 100)
        return self._rounded(low * (self.last / low) ** dice.random())

    def near(self, value: int, dice: random.Random) -> int:
        """Another alternative; or a constant that is mostly within a factor of two."""
        if self.last - self.first < 10 or value == 0 or dice.random() < 0.2:
            return self.draw(dice)
        return self._rounded(value * math.exp(dice.gauss(0, 0.5)))

    def _rounded(self, value: float) -> int:
        digits = 1 - math.floor(math.log10(max(value, 1)))
        return min(max(int(round(value, digits)), self.first), self.last)


RANGES = {name: Range(int(first), int(last)) for name, _, _, first, last in GENE.findall(TEMPLATE)}
DEFAULTS: Genes = {name: int(value) for name, value, *_ in GENE.findall(TEMPLATE)}


def source(genes: Genes) -> str:
    """The scheduler with these genes."""
    return GENE.sub(lambda at: f"#define {at[1]} {genes[at[1]]}{at[3]}{at[4]}..{at[5]} */", TEMPLATE)


def candidate(genes: Genes) -> Candidate:
    """The same for the evaluator."""
    return Candidate(source=source(genes))


@dataclass(frozen=True)
class Generation:
    """Those who live, the best first, with their scores in training; and all that were tried so far."""

    living: list[tuple[float, Genes]]
    all: list[tuple[float, Genes]]

    @property
    def tried(self) -> int:
        """How many were tried so far."""
        return len(self.all)


def evolve(evaluations: Evaluations, seed: int, generations: int) -> Iterator[Generation]:
    """The generations, one after the other."""
    dice = random.Random(seed)
    strangers = [
        {name: gene.draw(dice) if dice.random() < 0.4 else DEFAULTS[name] for name, gene in RANGES.items()}
        for _ in range(POPULATION - 1)
    ]
    tried: list[tuple[float, Genes]] = []
    living: list[tuple[float, Genes]] = []
    born = [DEFAULTS, *strangers]
    for _ in range(generations + 1):
        scores = evaluations.scores([candidate(genes) for genes in born], "train")
        new = list(zip(scores, born, strict=True))
        tried += new
        # Among equals the elder one.
        living = sorted(living + new, key=lambda one: -one[0])[:POPULATION]
        yield Generation(living, list(tried))
        born = []
        while len(born) < POPULATION:
            child = breed(living, dice)
            if child not in born and all(child != genes for _, genes in tried):
                born.append(child)


def breed(living: list[tuple[float, Genes]], dice: random.Random) -> Genes:
    """A child of two, each the better one of two."""
    mother, father = (max(dice.sample(living, 2), key=lambda one: one[0])[1] for _ in range(2))
    child = {name: dice.choice([mother, father])[name] for name in RANGES}
    for name, gene in RANGES.items():
        if dice.random() < 2 / len(RANGES):
            child[name] = gene.near(child[name], dice)
    return child


def main() -> None:
    options = argparse.ArgumentParser(description="Breed schedulers from template.bpf.c.")
    options.add_argument("--seed", type=int, default=1, help="of the search")
    options.add_argument("--generations", type=int, default=20, help="how many, after the first one")
    options.add_argument("--store", type=Path, default=FOLDER / "evolution.jsonl", help="answers of the evaluator")
    options.add_argument("--jobs", type=int, help="evaluations at the same time; as many as CPUs if not given")
    options.add_argument("--print", action="store_true", help="print the source of what was found, and do not search")
    given = options.parse_args()
    if given.print:
        print(source(json.loads(FOUND.read_text())), end="")
        return
    evaluations = Evaluations(given.store, jobs=given.jobs)
    tried: list[tuple[float, Genes]] = []
    for number, generation in enumerate(evolve(evaluations, given.seed, given.generations)):
        tried = generation.all
        best, genes = generation.living[0]
        changed = {name: value for name, value in genes.items() if value != DEFAULTS[name]}
        print(f"generation {number}: {generation.tried} tried, best {best:.4f}, {changed}", flush=True)
    finalists = [genes for _, genes in sorted(tried, key=lambda one: -one[0])[:FINALISTS]]
    scores = evaluations.scores([candidate(genes) for genes in finalists], "validation")
    best, genes = max(zip(scores, finalists, strict=True), key=lambda one: one[0])
    print(f"validation: {sum(score > 0 for score in scores)} of {len(scores)} break no rule")
    FOUND.write_text(json.dumps(genes, indent=2) + "\n")
    print(f"{FOUND.name}: {best:.4f}")


if __name__ == "__main__":
    main()
