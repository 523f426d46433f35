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
MAX_COLUMNS, MAX_ROWS, MAX_CELL = 12, 50, 200


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
    start: int = 0  # members that come before the first of these children

    @property
    def hidden(self) -> int:
        """How many characters or members are not shown behind those that are."""
        return self.size - self.start - len(self.text if self.kind == "string" else self.children)

    @property
    def next_start(self) -> int:
        """The place of the first member that is hidden behind these."""
        return self.start + len(self.children)

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


def tree(value: Any, *, max_string: int = MAX_STRING, start: int = 0) -> Node:
    """The tree of a decoded value, within the budget of nodes. Of a container, `start` members are passed over."""
    budget = iter(range(MAX_NODES))
    next(budget)
    if not start:
        return _node(value, budget, max_string)
    kind, pairs = ("object", list(value)) if isinstance(value, Members) else ("array", _numbered(value))
    return _container(kind, pairs, budget, max_string, start)


def at(value: Any, pointer: str) -> Any:
    """The part of a decoded value that a JSON pointer names; of a repeated key the last one. Raises LookupError."""
    if not pointer:
        return value
    if not pointer.startswith("/"):
        raise LookupError("A JSON pointer begins with a slash.")
    for step in pointer[1:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Members):
            value = dict(value)[key]
        elif isinstance(value, list) and key.isdecimal() and len(key) < 10:
            value = value[int(key)]
        else:
            raise LookupError(f"There is nothing at {pointer}.")
    return value


def pointer(parent: str, key: str) -> str:
    """The JSON pointer of a member."""
    return f"{parent}/{key.replace('~', '~0').replace('/', '~1')}"


def spelled(value: Any) -> str:
    """A decoded value as JSON text again, its numbers as they were spelled."""
    if isinstance(value, Members):
        return "{" + ", ".join(f"{json.dumps(key, ensure_ascii=False)}: {spelled(each)}" for key, each in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(spelled(each) for each in value) + "]"
    return str(value) if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


def _node(value: Any, budget: Iterator[int], max_string: int) -> Node:
    if isinstance(value, Members):
        return _container("object", list(value), budget, max_string)
    if isinstance(value, list):
        return _container("array", _numbered(value), budget, max_string)
    if isinstance(value, Number):
        return Node("number", value, len(value))
    if isinstance(value, str):
        return Node("string", value[: boundary(value, max_string)] if len(value) > max_string else value, len(value))
    return Node("literal", json.dumps(value))


def _numbered(value: list[Any]) -> list[tuple[str, Any]]:
    return [(str(index), each) for index, each in enumerate(value)]


def _container(kind: str, pairs: list[tuple[str, Any]], budget: Iterator[int], max_string: int, start: int = 0) -> Node:
    node = Node(kind, size=len(pairs), start=start)
    for key, value in pairs[start : start + MAX_CHILDREN]:
        if next(budget, None) is None:
            break
        node.children.append((key, _node(value, budget, max_string)))
    return node


@dataclass(slots=True)
class Table:
    """An array of flat objects: `columns` are the names of all of them, in the order of their first one; a cell is None
    where an object has no such member. `size` counts all rows, `hidden_columns` those left out."""

    columns: list[str]
    rows: list[list[Node | None]]
    size: int
    hidden_columns: int = 0

    @property
    def hidden(self) -> int:
        return self.size - len(self.rows)


def table(value: Any) -> Table | None:
    """A decoded value as a table, if it is an array of at least two flat objects, else None."""
    if not isinstance(value, list) or isinstance(value, Members) or len(value) < 2:
        return None
    if not all(isinstance(row, Members) and row and _is_flat(row) for row in value):
        return None
    names = list(dict.fromkeys(name for row in value for name, _ in row))
    shown = names[:MAX_COLUMNS]
    rows = [
        [_node(row[name], iter(()), MAX_CELL) if name in row else None for name in shown]
        for row in map(dict, value[:MAX_ROWS])
    ]
    return Table(shown, rows, len(value), len(names) - len(shown))


def _is_flat(row: Members) -> bool:
    return not any(isinstance(value, list) for _, value in row)


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
