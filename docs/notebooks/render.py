"""Executes notebooks and makes pages of the book of them; scripts/notebooks starts it.

A notebook is a Markdown file beside this one, with cells of Python, which Jupyter opens by jupytext. Its page is
docs/src/notebooks/NAME.md, with a picture NAME-NUMBER.svg for each figure. A cell that draws says what is to be seen, for those who do
not see it: ```python alt="What the picture shows".

Everything in a page follows from its notebook: simulations are deterministic, and pictures have neither dates nor random
names. Texts have to be the same to the byte. Pictures may differ by what another processor's logarithms differ by: they have to
have the same elements, with coordinates within a tenth of a point.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

NOTEBOOKS = Path(__file__).parent
ROOT = NOTEBOOKS.parents[1]
PAGES = ROOT / "docs/src/notebooks"

#: Runs before the first cell: pictures as drawings, the same each time, with texts as texts; and no progress, at which nobody looks.
PREPARATION = """
import matplotlib
import tandem._progress
from matplotlib_inline.backend_inline import set_matplotlib_formats

set_matplotlib_formats("svg", metadata={"Date": None, "Creator": None})
matplotlib.rcParams.update({"svg.hashsalt": "tandem", "svg.fonttype": "none"})
tandem._progress.is_watched = lambda: False
"""
HEAD = "<!-- Made of docs/notebooks/{name}.md by `make notebooks`: change that, and make this again. -->\n\n"

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
#: Names in a picture follow from what they name, coordinates with it.
NAME = re.compile(r"\b[a-z][0-9a-f]{10}\b")
#: How far coordinates may be apart, points.
APART = 0.1


def executed(path: Path) -> Any:
    """The notebook with what its cells give."""
    notebook = jupytext.read(path)
    preparation = jupytext.reads(f"```python\n{PREPARATION}\n```", "md").cells
    notebook.cells = preparation + notebook.cells
    with tempfile.TemporaryDirectory() as scratch:
        # What cells write goes there; they find the examples as from here.
        folder = Path(scratch) / "docs/notebooks"
        folder.mkdir(parents=True)
        (Path(scratch) / "examples").symlink_to(ROOT / "examples")
        # Nothing of the user's settings has a say.
        os.environ |= {"IPYTHONDIR": scratch, "JUPYTER_CONFIG_DIR": scratch, "PYTHONDONTWRITEBYTECODE": "1"}
        # Sockets of this folder, not ports of the machine.
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{scratch}/kernel")
        client = NotebookClient(notebook, km=kernel, timeout=600, resources={"metadata": {"path": str(folder)}})
        client.execute(cleanup_kc=True)
    del notebook.cells[: len(preparation)]
    return notebook


def page(name: str, notebook: Any) -> dict[str, str]:
    """The files of a notebook's page, by their names."""
    files: dict[str, str] = {}
    texts: list[str] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            texts.append(cell.source)
            continue
        texts.append(f"```python\n{cell.source}\n```")
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                raise SystemExit(f"{name}: a cell writes to standard error, which no reader wants to see:\n{output.text}")
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/svg+xml" in data:
                if "alt" not in cell.metadata:
                    raise SystemExit(f"{name}: a cell that draws has no alt=...:\n{cell.source}")
                picture = f"{name}-{len(files) + 1}.svg"
                files[picture] = plain(data["image/svg+xml"])
                texts.append(f"![{cell.metadata['alt']}]({picture})")
            elif data.get("text/plain", "").strip():
                texts.append(f"```text\n{lines(data['text/plain'])}\n```")
    files[f"{name}.md"] = HEAD.format(name=name) + "\n\n".join(texts) + "\n"
    return files


def lines(text: str) -> str:
    """A text without blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def plain(svg: str) -> str:
    """A picture without what only files have at their heads."""
    return svg[svg.index("<svg") :].rstrip() + "\n"


def differences(files: dict[str, str]) -> Iterator[str]:
    """What is different in the pages that are there, in words."""
    for name, text in files.items():
        path = PAGES / name
        there = path.read_text() if path.exists() else None
        if there is None:
            yield f"{path.relative_to(ROOT)} is missing"
        elif name.endswith(".svg"):
            if not is_same_picture(there, text):
                yield f"{path.relative_to(ROOT)} is another picture"
        elif there != text:
            old, new = there.splitlines(), text.splitlines()
            at = next((at for at, (a, b) in enumerate(zip(old, new)) if a != b), min(len(old), len(new)))
            yield (
                f"{path.relative_to(ROOT)}:{at + 1} is\n    {''.join(old[at : at + 1])}\nand would be\n    {''.join(new[at : at + 1])}"
            )


def is_same_picture(one: str, other: str) -> bool:
    """Whether pictures have the same elements at almost the same places."""
    one, other = renamed(one), renamed(other)
    numbers = zip(NUMBER.findall(one), NUMBER.findall(other))
    return NUMBER.sub("#", one) == NUMBER.sub("#", other) and all(abs(float(a) - float(b)) < APART for a, b in numbers)


def renamed(svg: str) -> str:
    """A picture with names by their order."""
    names: dict[str, str] = {}
    return NAME.sub(lambda at: names.setdefault(at[0], f"name{len(names)}"), svg)


def main() -> int:
    options = argparse.ArgumentParser(prog="scripts/notebooks", description="Execute the notebooks of the book.")
    options.add_argument("--write", action="store_true", help="write the pages anew, instead of comparing them")
    options.add_argument("names", nargs="*", metavar="NAME", help="which ones; all if none is named")
    given = options.parse_args()
    known = sorted(path.stem for path in NOTEBOOKS.glob("*.md") if path.stem != "README")
    different = []
    for name in given.names or known:
        if name not in known:
            raise SystemExit(f"there is no notebook `{name}`; there are {', '.join(known)}")
        try:
            files = page(name, executed(NOTEBOOKS / f"{name}.md"))
        except CellExecutionError as error:
            raise SystemExit(f"{name}: {error}") from None
        of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"notebook {name}: {len(files) - 1} pictures, {of_children.ru_utime + of_children.ru_stime:.0f} s of CPU time so far")
        if given.write:
            PAGES.mkdir(exist_ok=True)
            for old in PAGES.glob(f"{name}-*.svg"):
                old.unlink()
            for file, text in files.items():
                (PAGES / file).write_text(text)
        else:
            different += differences(files)
    for difference in different:
        print(difference, file=sys.stderr)
    if different:
        print("the pages do not agree with their notebooks; `make notebooks` writes them anew", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
