"""Evidence as people look at it: JSON text as a bounded tree whose numbers keep their spelling.

What is left out is counted: a tree says how many members it hides, a string how long it is.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.text import boundary

MAX_NODES = 300
MAX_CHILDREN = 60
MAX_STRING = 1_500


class Number(str):
    """A number as it was spelled."""

    __slots__ = ()


class Members(list[tuple[str, Any]]):
    """An object's members in their order; a repeated key stays twice."""


@dataclass(slots=True)
class Node:
    """One value of a tree. `kind` is object, array, string, number or literal (true, false, null)."""

    kind: str
    text: str = ""
    size: int = 0  # characters of a string, members of a container
    children: list[tuple[str, "Node"]] = field(default_factory=list)  # an array's keys are its indexes

    @property
    def hidden(self) -> int:
        """How many characters or members are not shown."""
        return self.size - len(self.text if self.kind == "string" else self.children)

    @property
    def is_container(self) -> bool:
        return self.kind in {"object", "array"}


def decode(text: str) -> Any:
    """The value of a JSON text with objects as Members and numbers as Number; raises ValueError."""
    try:
        return _decoder.decode(text)
    except RecursionError as error:
        raise ValueError("Nested too deep to be shown as a tree.") from error


_decoder = json.JSONDecoder(
    object_pairs_hook=Members, parse_int=Number, parse_float=Number, parse_constant=Number, strict=False
)
# The scanner's two halves, by which a text can be read that is cut off somewhere.
_scan: Callable[[str, int], tuple[Any, int]] = vars(_decoder)["scan_once"]
_scan_string: Callable[[str, int, bool], tuple[str, int]] = vars(json.decoder)["scanstring"]


def string_start(text: str) -> str:
    """The readable part of a JSON string whose text was cut off anywhere; what is no string comes back as it is."""
    if not text.startswith('"'):
        return text
    for end in range(len(text), max(len(text) - 12, 0), -1):  # a surrogate pair's escapes are 12 characters
        try:
            return str(json.loads(text[:end] + '"', strict=False))
        except ValueError:
            continue
    return text


def tree(value: Any, *, max_string: int = MAX_STRING) -> Node:
    """The tree of a decoded value, within the budget of nodes."""
    budget = iter(range(MAX_NODES))
    next(budget)
    return _node(value, budget, max_string)


def _node(value: Any, budget: Iterator[int], max_string: int) -> Node:
    if isinstance(value, Members):
        return _container("object", list(value), budget, max_string)
    if isinstance(value, list):
        return _container("array", [(str(index), item) for index, item in enumerate(value)], budget, max_string)
    if isinstance(value, Number):
        return Node("number", value, len(value))
    if isinstance(value, str):
        return Node("string", value[: boundary(value, max_string)] if len(value) > max_string else value, len(value))
    return Node("literal", json.dumps(value))


def _container(kind: str, pairs: list[tuple[str, Any]], budget: Iterator[int], max_string: int) -> Node:
    node = Node(kind, size=len(pairs))
    for key, value in pairs[:MAX_CHILDREN]:
        if next(budget, None) is None:
            break
        node.children.append((key, _node(value, budget, max_string)))
    return node


def plain(value: Any) -> Any:
    """A decoded value as Python's own types, for validation. Numbers too long for a float become infinite."""
    if isinstance(value, Members):
        return {key: plain(item) for key, item in value}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, Number):
        return _number(value)
    return value


def _number(text: str) -> int | float:
    # Python refuses to read integers of more than 4,300 digits; for validation a float of that size will do.
    return int(text) if text.lstrip("-").isdigit() and len(text) < 4_000 else float(text)


def preview(text: str | None, *, pairs: int = 4, chars: int = 40) -> list[tuple[str, str]]:
    """Up to four `key, value` of arguments, for one line of a list. `text` may be cut anywhere; what is no object comes
    back as one value with an empty key."""
    if text is None:
        return []
    position = _skip(text, 0)
    if text[position : position + 1] != "{":
        return [("", _short(_unquoted(text), chars))]
    position = _skip(text, position + 1)
    found: list[tuple[str, str]] = []
    while len(found) < pairs and text[position : position + 1] == '"':
        try:
            key, position = _scan_string(text, position + 1, False)
        except ValueError:  # the cut went through a key
            break
        start = _skip(text, _skip(text, position) + 1)
        try:
            value, position = _scan(text, start)
        except (ValueError, StopIteration, RecursionError):  # the cut went through a value: show what there is
            found.append((key, _short(text[start:].removeprefix('"'), chars)))
            break
        found.append((key, _short(value if type(value) is str else text[start:position], chars)))
        position = _skip(text, position)
        position = _skip(text, position + 1) if text[position : position + 1] == "," else len(text)
    return found


def _unquoted(text: str) -> str:
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text.removeprefix('"')
    return value if isinstance(value, str) else text


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position


def _short(text: str, chars: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= chars else text[: boundary(text, chars)] + "…"
