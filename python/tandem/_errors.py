"""Exceptions and warnings."""

from __future__ import annotations


class TandemError(Exception):
    """Any error of this package."""


class InputError(TandemError, ValueError):
    """Something asked for is wrong. The message says what, and what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        #: One sentence: what is wrong, and what is allowed.
        self.message = message


class ScenarioError(InputError):
    """A scenario, or another file, is wrong, or cannot run."""

    def __init__(self, message: str, file: str, line: int | None = None, excerpt: str | None = None) -> None:
        super().__init__(message)
        # What pickle gives to the constructor.
        self.args = (message, file, line, excerpt)
        #: The file, or the name of the dictionary.
        self.file = file
        #: The line, from 1; None if the error concerns the whole file. Of a dictionary that of `to_toml`.
        self.line = line
        #: The text of that line, where the scenario is a dictionary.
        self.excerpt = excerpt

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        excerpt = "" if self.excerpt is None else f" (the line is `{self.excerpt}`)"
        return f"{place}: {self.message}{excerpt}"


class TandemWarning(UserWarning):
    """A run came to its end, but something about it is wrong, or part of its scenario does not hold."""
