"""Models that go round in circles."""

import json
from collections import Counter
from typing import Any


class RepeatGuard:
    """Refuses the n-th identical call of a turn; a model that asks on after it was told insists."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen: Counter[tuple[str, str]] = Counter()
        self._refused_in: set[int] = set()

    def admits(self, cycle: int, name: str, arguments: dict[str, Any] | None, raw_arguments: str) -> bool:
        key = (name, raw_arguments if arguments is None else canonical(arguments))
        self._seen[key] += 1
        if self._limit and self._seen[key] >= self._limit:
            self._refused_in.add(cycle)
            return False
        return True

    @property
    def is_insisted(self) -> bool:
        return len(self._refused_in) > 1

    def told(self) -> str:
        return (
            f"Error: this exact call was already made {self._limit - 1} times in this turn and is not run again. "
            "Use the results above, change the arguments, or answer the user."
        )


def canonical(arguments: dict[str, Any]) -> str:
    """One spelling for equal arguments, whatever the order of their keys."""
    return json.dumps(arguments, sort_keys=True, separators=(",", ":"))
