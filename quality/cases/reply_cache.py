"""Replies of models on disk. The sample's number is part of the key: without it k samples would collapse into one.

Only replies are kept, never errors; a file that cannot be read is no reply. The gate runs without it.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from engine.messages import BrokenCall, Reply, ToolCall
from engine.providers.protocol import Answer, Usage

VERSION: Final = 1  # another one wherever replies are read in another way


class ReplyCache:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def key(self, url: str, body: Mapping[str, Any], sample: int) -> str:
        text = json.dumps([VERSION, url, body, sample], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

    def get(self, key: str) -> tuple[Answer, str] | None:
        """The reply and its raw body."""
        try:
            stored = json.loads(self._path(key).read_bytes())
            reply = stored["answer"].pop("reply")
            calls = tuple(ToolCall(**call) for call in reply.pop("calls"))
            broken = tuple(BrokenCall(**call) for call in reply.pop("broken"))
            read = Reply(calls=calls, broken=broken, warnings=tuple(reply.pop("warnings")), **reply)
            usage = Usage(**stored["answer"].pop("usage"))
            warnings = tuple(stored["answer"].pop("warnings"))
            return Answer(reply=read, usage=usage, warnings=warnings, **stored["answer"]), str(stored["raw"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def put(self, key: str, answer: Answer, raw: str) -> None:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")  # renamed when whole: a run that is killed leaves no half of one
        draft.write_text(json.dumps({"answer": asdict(answer), "raw": raw}))
        draft.replace(path)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"
