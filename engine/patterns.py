"""Regular expressions that others wrote, matched against text that others wrote, in bounded time.

Python's engine backtracks: `(a+)+$` on forty characters runs for years and cannot be stopped from within. Expressions
that cannot do this are matched here; all others in a child process that is killed when its time is up.
"""

import atexit
import json
import os
import re
import select
import subprocess
import sys
import threading
from functools import lru_cache

from engine.errors import EngineError

MAX_PATTERN = 1_000  # characters
MAX_TEXT = 10_000
TIMEOUT_S = 0.1

_CHILD = """
import json, re, sys
for line in sys.stdin:
    pattern, text = json.loads(line)
    sys.stdout.write("1" if re.search(pattern, text) else "0")
    sys.stdout.flush()
"""
_START_S = 5.0  # a fresh interpreter on a busy machine


class PatternTimeout(EngineError):
    """An expression needed more time, or more text, than it is given."""


def pattern_fault(pattern: str) -> str | None:
    """Why `pattern` cannot be used, or None."""
    if len(pattern) > MAX_PATTERN:
        return f"is longer than {MAX_PATTERN} characters"
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as exc:
        return f"is no regular expression: {exc}"
    return None


def search(pattern: str, text: str, timeout_s: float = TIMEOUT_S) -> bool:
    """Whether `pattern` is found in `text`. Raises `PatternTimeout`."""
    if len(text) > MAX_TEXT:
        raise PatternTimeout(f"text of {len(text)} characters; patterns are matched against {MAX_TEXT} at most")
    if _is_tame(pattern):
        return re.search(pattern, text) is not None
    return _matcher.search(pattern, text, timeout_s)


@lru_cache(maxsize=1_000)
def _is_tame(pattern: str) -> bool:
    """Without groups and with one open repetition at most, an expression takes quadratic time at worst."""
    plain = re.sub(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", "c", pattern, flags=re.DOTALL)
    return "(" not in plain and len(re.findall(r"[*+?]|\{\d*,\d*\}", plain)) <= 1


class _Matcher:
    """One child process, started when needed and again after it was killed; one question at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None

    def search(self, pattern: str, text: str, timeout_s: float) -> bool:
        with self._lock:
            child = self._child or self._start()
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                child.stdin.write(json.dumps([pattern, text]).encode() + b"\n")
                child.stdin.flush()
                if not select.select([child.stdout], [], [], timeout_s)[0]:
                    raise PatternTimeout(f"pattern {pattern[:100]!r} took longer than {timeout_s:g} s")
                answer = child.stdout.read(1)
            except (PatternTimeout, OSError):
                self.stop()
                raise
            if answer not in (b"0", b"1"):
                self.stop()
                raise PatternTimeout(f"pattern {pattern[:100]!r} could not be matched")
            return answer == b"1"

    def _start(self) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(  # noqa: S603 our own interpreter and program; what is matched comes in by the pipe
            [sys.executable, "-I", "-S", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            bufsize=0,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b'["", ""]\n')  # the first answer says that it is up: its start is not charged to a pattern
        if select.select([child.stdout], [], [], _START_S)[0]:
            child.stdout.read(1)
        self._child = child
        return child

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    pipe.close()


_matcher = _Matcher()


@atexit.register
def _stop_child() -> None:
    _matcher.stop()


def _forget_child() -> None:
    """After a fork the pipes belong to the parent: two processes reading one pipe would swap their answers."""
    global _matcher  # noqa: PLW0603
    _matcher = _Matcher()


os.register_at_fork(after_in_child=_forget_child)
