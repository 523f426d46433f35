"""The formats that can be imported: one module each, entered in one table.

A module gives
- `NAME`, as in the table and in `source`; `LABEL`, for people;
- `recognise(root)`: is this item one of ours? Cheap; looks at keys only;
- `read(items)`: a stream of checked items into turns, or refusals; what was refused before passes through. Formats
  whose items stand alone use `items.each`; one whose turns are spread over items (pairs, spans) keeps what it needs,
  within a bound.

To add one, copy a neighbour and enter it here.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from quality.ingest.formats import (
    anthropic_messages,
    langfuse,
    langsmith,
    mlflow,
    neutral,
    openai_chat,
    openai_responses,
    openinference,
    otel_genai,
    vercel_ui,
)
from quality.ingest.items import Checked, Parsed
from quality.ingest.jsontext import Node
from quality.ingest.reader import ItemError


class Format(Protocol):
    NAME: str
    LABEL: str

    def recognise(self, root: Node) -> bool: ...

    def read(self, items: Iterable[Checked | ItemError]) -> Iterator[Parsed | ItemError]: ...


_MODULES = (
    neutral,
    openai_chat,
    openai_responses,
    anthropic_messages,
    vercel_ui,
    otel_genai,
    openinference,
    langfuse,
    langsmith,
    mlflow,
)

FORMATS: dict[str, Format] = {module.NAME: module for module in _MODULES}


SPAN_FORMATS = frozenset(module.NAME for module in (otel_genai, openinference, langfuse, langsmith, mlflow))
_CARRIED_ALIKE = frozenset({otel_genai.NAME, openinference.NAME})  # a trace may hold spans of both, and each reads both


def recognise(root: Node) -> Format | None:
    """The first format that takes the item as one of its own."""
    return next((format for format in FORMATS.values() if format.recognise(root)), None)


def are_read_alike(one: Format, other: Format) -> bool:
    """Does a stream of the one go on with items of the other?"""
    return one is other or {one.NAME, other.NAME} <= _CARRIED_ALIKE
