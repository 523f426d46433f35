"""Records of exports masked for who ordered them: the members that hold evidence, at their places; the rest of a line
stays byte for byte."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tenants.masking.masker import Masker
from tenants.masking.reading import Reading
from tenants.masking.rewriting import Key, Scalar, Text, rewrite, spelled

type Way = Callable[[Reading, str], str]
type Places = Mapping[str, "Way | Places"]


def _prose(reading: Reading, text: str) -> str:
    """Of a JSON string, or null."""
    if text[:1] != '"':
        return text
    value = json.loads(text)
    masked = reading.prose(value)
    return text if masked == value else spelled(masked)


_data, _structure = Reading.document, Reading.structure
_CALL: Places = {"args": _data, "result": _data, "error": _prose}

# Of each kind of record, where in it stands what the columns of our tables mask (quality.models.base).
RECORDS: Mapping[str, Places] = {
    "calls": {**_CALL, "context": {"contactId": _prose}},
    "feedback": {
        "note": _prose,
        "correction": _structure,
        "call": _CALL,
        "context": {"contactId": _prose, "messages": _structure},
    },
    "cases": {
        "input": {"args": _data, "messages": _structure},
        "observed": {"result": _data, "error": _prose},
        "expected": {"behavior": _prose, "expectation": _structure},
        "context": _structure,
        "stubs": _structure,
    },
    "proposals": {"reason": _prose, "resolution": {"note": _prose}},
}
# Cells are bare text.
CELLS: Mapping[str, Way] = {
    "args": _data,
    "result": _data,
    "correction": _structure,
    "note": Reading.prose,
    "error": Reading.prose,
    "contactId": Reading.prose,
}


@dataclass(frozen=True, slots=True)
class _Line:
    """Decides on a record: a value whose place has a way is masked in that way, whole."""

    reading: Reading

    def inward(self, place: "Way | Places | None", key: Key) -> "Way | Places | None":
        return place.get(str(key)) if isinstance(place, Mapping) else None

    def whole(self, place: "Way | Places | None", spelling: Callable[[], str]) -> str | None:
        return place(self.reading, spelling()) if callable(place) else None

    def scalar(self, place: "Way | Places | None", value: Scalar) -> str | None:
        return None

    def name(self, value: Text) -> str | None:
        return None


def masked_record(record: str, *, kind: str, masker: Masker) -> str:
    """JSON text of a record. What is masked for its place is masked in what stands before it, too."""
    line = _Line(Reading(masker))
    masked = rewrite(record, RECORDS[kind], line)
    found = [value for mark, value in line.reading.memory.items() if isinstance(value, str) and value != mark]
    again = (masker.paths or masker.keys) and any("\\" in masked or value in masked for value in found)
    return rewrite(masked, RECORDS[kind], line) if again else masked


def masked_cells(names: Sequence[str], cells: Sequence[str | None], masker: Masker) -> list[str | None]:
    """The same of a row of a table, whose columns have these names."""
    reading = Reading(masker)
    row = dict(zip(names, cells, strict=True))
    for name, way in CELLS.items():
        if text := row[name]:
            row[name] = way(reading, text)
    return list(row.values())
