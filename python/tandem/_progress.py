"""Progress of what takes long: in terminals and notebooks, by tqdm if that is installed."""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

#: None: where somebody looks; True or False: always or never; or a function, which is called with how many runs are done,
#: which need not be whole, and how many are planned.
Progress = bool | Callable[[float, int], None] | None

#: What takes less, in seconds, needs no bar, which would only flash.
SHOWN_AFTER_S = 1.0
#: Time between two lines where there is no tqdm, seconds.
LINE_EVERY_S = 0.5


@contextlib.contextmanager
def shown(progress: Progress, name: str) -> Iterator[Callable[[float, int], None] | None]:
    """The function that shows the progress of work of that name, if anybody is to see it."""
    if callable(progress):
        yield progress
    elif not (progress is None or isinstance(progress, bool)):
        raise TypeError(f"`progress` is a {type(progress).__name__}; it has to be None, True, False or a function")
    elif progress or (progress is None and is_watched()):
        bar = Bar(name)
        try:
            yield bar.show
        finally:
            bar.close()
    else:
        yield None


def is_watched() -> bool:
    """Whether somebody looks: at a terminal, or at a notebook."""
    try:
        return sys.stderr.isatty() or is_notebook()
    except (AttributeError, ValueError):
        # It is closed, or something that is no file.
        return False


def is_notebook() -> bool:
    """Whether this runs in a notebook."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class Bar:
    """A bar of tqdm, or a line that is written again and again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.start_s = time.monotonic()
        self.next_s = self.start_s + SHOWN_AFTER_S
        self.bar: Any = None
        self.is_line = False

    def show(self, done: float, planned: int) -> None:
        """So many of so many runs are done."""
        now_s = time.monotonic()
        if now_s < self.next_s:
            return
        if self.bar is None and not self.is_line:
            self.bar = tqdm_bar(self.name)
            self.is_line = self.bar is None
        if self.bar is not None:
            self.bar.total = planned
            self.bar.n = round(done, 2)
            self.bar.refresh()
        else:
            self.next_s = now_s + LINE_EVERY_S
            sys.stderr.write(f"\r{self.name}: {done:.1f} of {planned} runs, {now_s - self.start_s:.0f} s ")
            sys.stderr.flush()

    def close(self) -> None:
        """The work is at its end."""
        if self.bar is not None:
            self.bar.close()
        elif self.is_line:
            sys.stderr.write("\n")


def tqdm_bar(name: str) -> Any:
    """A bar of tqdm, or None if that is not installed."""
    try:
        with warnings.catch_warnings():
            # It warns if a notebook cannot show widgets, and shows text then.
            warnings.simplefilter("ignore")
            return importlib.import_module("tqdm.auto").tqdm(total=0, desc=name, unit="run")
    except ImportError:
        return None
