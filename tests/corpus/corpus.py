"""Case files, one JSON object a line: adding a line adds a test.

`CORPUS_DIR` points the tests at another folder of the same shape; a file that is not there has no cases.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest


def folder() -> Path:
    return Path(os.environ.get("CORPUS_DIR") or Path(__file__).parent / "data")


def load(name: str) -> list[dict[str, Any]]:
    """The cases of `<folder>/<name>`, in order."""
    path = folder() / name
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip()]


def cases(name: str) -> list[Any]:
    """One pytest parameter a case, named by its id; a single skipped one, with the reason, if the file is absent."""
    rows = load(name)
    if not rows:
        reason = f"{folder() / name} is not there"
        return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=reason))]
    return [pytest.param(row, id=row["id"]) for row in rows]
