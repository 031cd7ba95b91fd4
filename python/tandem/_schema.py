"""`schema`."""

from __future__ import annotations

import json
from typing import Any

from . import _tandem


def schema(format: str = "scenario") -> dict[str, Any]:
    """The JSON Schema of a file format, as `tandem schema` prints it.

    Args:
        format: "scenario", "experiment", "machine", or "settings" of `tandem run`.
    """
    schema: dict[str, Any] = json.loads(_tandem.schema(format))
    return schema
