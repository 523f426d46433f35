"""What every importer promises, whatever it reads: tests of a format give it files and hold it to these."""

import json
import random
from collections.abc import Iterator
from typing import Any

from quality.ingest.items import Parsed
from quality.ingest.reader import ItemError
from quality.ingest.records import TurnRecord, to_neutral
from tenants.models import Tenant
from tests.ingest.helpers import outcomes, state, take

_DEEP: Any = {}
for _ in range(60):
    _DEEP = {"content": [_DEEP]}
ODD: list[Any] = [
    None, True, 0, -1, 1.5, 10**300, "", "x", "\0", "\ud800", "é" * 600, "y" * 100_000, [], {}, [[]], [1], ["a"],
    [None], {"a": 1}, {"type": 1}, {"type": "text"}, {"role": "assistant"}, [{"type": "tool_use"}], _DEEP,
]  # fmt: skip


def changes_nothing_when_sent_again(data: bytes, tenant: Tenant, format_name: str = "auto") -> dict[str, Any]:
    """What is stored."""
    first = take(data, tenant, format_name)
    assert (first.rejected, first.unchanged) == ([], 0)
    before = state(tenant)
    again = take(data, tenant, format_name)
    assert (again.accepted, again.unchanged, again.rejected) == (0, first.accepted, [])
    assert (again.num_turns, again.num_calls) == (0, 0)
    assert state(tenant) == before
    return before


def completes_after_a_cut(data: bytes, cut: int, tenant: Tenant, other: Tenant) -> ItemError:
    """Send the first `cut` bytes, then all; the result is as if only all had been sent. The fault that was told."""
    (fault,) = take(data[:cut], tenant).rejected
    assert state(tenant)["turns"], "nothing of the first half was kept"
    assert take(data, tenant).rejected == []
    take(data, other)
    assert _names_alone(state(tenant)) == _names_alone(state(other))
    return fault


def _names_alone(stored: dict[str, Any]) -> dict[str, Any]:
    """Without hashes, which tell the same content in other spellings apart."""
    for row in (*stored["turns"], *stored["calls"]):
        row.pop("content_sha256", None)
    return stored


def stays_with_its_tenant(data: bytes, tenant: Tenant, other: Tenant) -> None:
    """Two tenants send the same; each has its own, and neither sees more of it."""
    take(data, tenant)
    alone = state(tenant)
    assert not state(other)["turns"]
    assert not take(data, other).rejected
    assert state(tenant) == alone == state(other)


def records(turns: list[TurnRecord]) -> list[dict[str, Any]]:
    return sorted((to_neutral(call) for turn in turns for call in turn.calls), key=json.dumps)


def shuffled(value: Any, random_: random.Random) -> Any:
    """The same JSON with the keys of all objects in another order."""
    if isinstance(value, dict):
        keys = random_.sample(list(value), len(value))
        return {key: shuffled(value[key], random_) for key in keys}
    return [shuffled(item, random_) for item in value] if isinstance(value, list) else value


def refuses_or_reads_anything(good: Any, format_name: str) -> int:
    """Put odd values in each place of a good item. Number of those that were refused."""
    refused = 0
    for changed in _changed(good):
        data = json.dumps(changed if isinstance(changed, list) else [changed]).encode()
        for outcome in outcomes(data, format_name):
            if isinstance(outcome, ItemError):
                assert outcome.code
                assert outcome.message
                refused += 1
            else:
                _can_be_stored(outcome)
    return refused


def _changed(value: Any) -> Iterator[Any]:
    """Copies of a value in which one place is odd, or gone."""
    yield from ODD
    if isinstance(value, dict):
        for key, member in value.items():
            yield {name: kept for name, kept in value.items() if name != key}
            yield from ({**value, key: changed} for changed in _changed(member))
    elif isinstance(value, list):
        for place, element in enumerate(value):
            for changed in _changed(element):
                yield [*value[:place], changed, *value[place + 1 :]]


def _can_be_stored(parsed: Parsed) -> None:
    for turn in parsed.turns:
        for row in (turn, *turn.calls):
            fields = {name: getattr(row, name) for name in row.__struct_fields__}
            evidence = {
                name: fields.pop(name) for name in ("args", "result", "messages", "system", "tools") & fields.keys()
            }
            for text in evidence.values():
                assert text is None or json.loads(text) == json.loads(text.encode())
                assert text is None or "\0" not in text
            for value in (value for value in fields.values() if isinstance(value, str)):
                assert "\0" not in value
                value.encode()
