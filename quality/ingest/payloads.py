"""Arguments and results as sources record them: text, JSON inside text, or JSON itself; read by `evidence`'s rules."""

from dataclasses import dataclass
from typing import Any

from quality.ingest import evidence
from quality.ingest.jsontext import MAX_DEPTH, JsonError, Node, dump, escape_surrogates, parse


@dataclass(frozen=True, slots=True)
class Args:
    """Arguments as JSON text; None with a warning if none were recorded."""

    text: str | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A result as JSON text, and what it says itself of an error."""

    text: str
    is_error: bool
    error: str | None
    warnings: tuple[str, ...]


NO_ARGS = Args(None, ("args_missing",))


def node_of(value: Any) -> Node:
    """A value that has no spelling of its own, with one."""
    return Node(dump(value).encode(), value)


def inside(text: str) -> Node | None:
    """The JSON that a text holds; None if it holds none."""
    try:
        return parse(escape_surrogates(text).encode(), depth=MAX_DEPTH, repeated_keys=True)
    except JsonError:
        return None


def decoded(node: Node | None) -> Node | None:
    """What a value says once JSON inside text is read; the text itself if it holds none. None for null."""
    if node is None or node.value is None:
        return None
    if not isinstance(node.value, str):
        return node
    found = inside(node.value)
    return node if found is None else None if found.value is None else found


def read_args(node: Node | None) -> Args:
    if node is None or node.value is None:
        return NO_ARGS
    if isinstance(node.value, str):
        return Args(*evidence.args_from_text(node.value))
    return Args(*evidence.args_from_value(evidence.on_one_line(node)))


def read_result(node: Node | None) -> Result | None:
    if node is None or node.value is None:
        return None
    text = node.value if isinstance(node.value, str) else evidence.joined_text(node.value)
    if text is None:
        kept, value = evidence.on_one_line(node).text, node.value
    else:
        kept, value = evidence.result_from_text(text, node.text if isinstance(node.value, str) else None)
    is_error, error = evidence.fault_in_result(value)
    return Result(kept, is_error, error, evidence.suspicions(value))
