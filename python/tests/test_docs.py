"""The examples of the book run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
CHAPTERS = [PROJECT / "docs/src" / name for name in ("python.md", "studies.md")]
RECORDING = PROJECT / "crates/tandem-lab/tests/twin/recordings/mix.parquet"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.stem)
def test_a_chapter_runs_from_its_first_example_to_its_last(
    chapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(RECORDING, "host.parquet")
    text = chapter.read_text()
    names: dict[str, Any] = {}
    examples = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert len(examples) == text.count("```python") > 0
    for example in examples:
        # The lines of errors are those of the chapter.
        before = text.count("\n", 0, example.start(1))
        exec(compile("\n" * before + example[1], str(chapter), "exec"), names)
    assert Path("runs.parquet").exists()
