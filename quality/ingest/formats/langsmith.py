"""LangSmith runs: a flat list, or nested by `child_runs`.

The conversation is the metadata's `thread_id`, `session_id` or `conversation_id` of any run of the trace; a run's own
`session_id` is the project. Calls that a model asked for and no run answers are records, too.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from quality.ingest import evidence, messages, otlp_values
from quality.ingest.gathering import BadSpan, Found, gather
from quality.ingest.items import Checked, Parsed
from quality.ingest.jsontext import Node
from quality.ingest.messages import ToolAnswer
from quality.ingest.payloads import Args, inside, node_of, read_args, read_result
from quality.ingest.reader import ItemError
from quality.ingest.records import RecordError
from quality.ingest.spans import Model, Span, Tool

NAME = "langsmith"
LABEL = "LangSmith"

_MAX_LITERAL_CHARS = 100_000
_QUOTED = r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+\""""
_REPR = re.compile(rf"content=({_QUOTED})((?: [a-z_]++=.*+)?+)", re.DOTALL)
_REPR_ID = re.compile(r" tool_call_id='([^']{1,500})'")


def recognise(root: Node) -> bool:
    return isinstance(root.value, dict) and {"run_type", "id"} <= root.value.keys()


def read(items: Iterable[Checked | ItemError]) -> Iterator[Parsed | ItemError]:
    return gather(items, _spans, complete=_is_nested)


def _is_nested(root: Node) -> bool:
    return bool(root.value.get("child_runs")) and not root.value.get("parent_run_id")


def _spans(root: Node) -> Iterator[Found]:
    if not isinstance(root.value, dict):
        raise RecordError("not_an_object", "", "Expected an object: one run.")
    waiting: list[tuple[Node, str, str | None, str | None]] = [(root, "", None, None)]
    while waiting:
        node, path, trace, parent = waiting.pop()
        try:
            span = _span(node, f"{path}." if path else "", trace, parent)
        except RecordError as error:
            told = node.value.get("trace_id", trace) if isinstance(node.value, dict) else trace
            yield BadSpan(error, told if isinstance(told, str) else None)
            continue
        yield span
        children = node.get("child_runs")
        for position, child in enumerate(children.elements if children is not None else []):
            where = f"{path}.child_runs[{position}]" if path else f"child_runs[{position}]"
            waiting.append((child, where, span.trace, span.id))


def _span(node: Node, prefix: str, trace: str | None, parent: str | None) -> Span:
    value = node.value
    if not isinstance(value, dict):
        raise RecordError("not_an_object", prefix.rstrip("."), "Expected an object: one run.")

    def name(key: str) -> str | None:
        return evidence.name(value.get(key), f"{prefix}{key}")

    run_id = name("id")
    if run_id is None:
        raise RecordError("missing_field", f"{prefix}id", "Expected the id of the run.")
    extra = value["extra"] if isinstance(value.get("extra"), dict) else {}
    metadata = extra["metadata"] if isinstance(extra.get("metadata"), dict) else {}
    kind = value.get("run_type")
    return Span(
        source=NAME,
        trace=name("trace_id") or trace or run_id,
        id=run_id,
        parent=name("parent_run_id") or parent,
        started=otlp_values.nanoseconds_of_text(value.get("start_time")),
        ended=otlp_values.nanoseconds_of_text(value.get("end_time")),
        conversation=_word(metadata, prefix, "thread_id", "session_id", "conversation_id"),
        contact=_word(metadata, prefix, "user_id"),
        prompt_version=_word(metadata, prefix, "prompt_version", "revision_id"),
        tool=_tool(node, {**metadata, **extra}, prefix) if kind == "tool" else None,
        model=_model(node, metadata, run_id, prefix) if kind == "llm" else None,
        size=sum(len(part.raw) for key, part in node.members.items() if key != "child_runs"),
    )


def _word(metadata: dict[str, Any], prefix: str, *keys: str) -> str | None:
    for key in keys:
        value = metadata.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return evidence.name(value, f"{prefix}extra.metadata.{key}")
    return None


def _tool(node: Node, extra: dict[str, Any], prefix: str) -> Tool:
    value = node.value
    name = evidence.name(value.get("name"), f"{prefix}name")
    if name is None:
        raise RecordError("missing_field", f"{prefix}name", "A call needs the name of its tool.")
    outputs = node.get("outputs")
    output = outputs.get("output") if outputs is not None and "output" in outputs.members else outputs
    answer, warnings = messages.tool_answer(output), list[str]()
    if answer is None and (answer := _answer_of_repr(output)) is not None:
        warnings.append("result_python_repr")
    error, status = value.get("error"), value.get("status")
    failed = bool(error) or status == "error" if "error" in value or isinstance(status, str) else None
    if answer is not None and answer.failed:
        failed = True
    if failed and not error and answer is not None and answer.content is not None:
        error = answer.content.value
    return Tool(
        name=name,
        call_id=(answer.call_id if answer else None) or _word(extra, prefix, "tool_call_id"),
        args=_args(node.get("inputs")),
        result=read_result(answer.content if answer else output),
        is_error=failed,
        error=evidence.fault_text(error) if failed and error else None,
        warnings=tuple(warnings),
    )


def _args(inputs: Node | None) -> Args:
    """Older tracers wrote `{"input": "<a dict of Python as text>"}`. A tool that truly has one parameter `input` looks
    the same; then its text is no dict."""
    if inputs is None or not isinstance(inputs.value, dict) or list(inputs.value) != ["input"]:
        return read_args(inputs)
    text = inputs.value["input"]
    if not isinstance(text, str):
        return read_args(inputs)
    found = inside(text)
    if found is not None:
        return read_args(found) if isinstance(found.value, dict) else read_args(inputs)
    said = _as_json(_literal(text))
    return Args(said, ("args_python_repr",)) if said is not None else read_args(inputs)


def _literal(text: str) -> Any:
    if len(text) > _MAX_LITERAL_CHARS:
        return None
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _as_json(literal: Any) -> str | None:
    """JSON text of a dict with names for keys; None for anything else, or where JSON has no word for a value in it."""
    if not isinstance(literal, dict) or not all(isinstance(key, str) for key in literal):
        return None
    try:
        text = node_of(literal).text
    except (TypeError, ValueError, RecursionError):
        return None
    return text if inside(text) is not None else None


def _answer_of_repr(output: Node | None) -> ToolAnswer | None:
    """A ToolMessage as Python prints it: content='…' name='…' tool_call_id='…'."""
    if output is None or not isinstance(output.value, str):
        return None
    match = _REPR.fullmatch(output.value)
    call_id = _REPR_ID.search(match[2]) if match else None
    content = _literal(match[1]) if match and call_id else None
    if match is None or call_id is None or not isinstance(content, str):
        return None
    return ToolAnswer(node_of(content), evidence.name(call_id[1], "outputs.output"), " status='error'" in match[2])


def _model(node: Node, metadata: dict[str, Any], run_id: str, prefix: str) -> Model:
    extra = node.get("extra")
    parameters = extra.get("invocation_params") if extra is not None else None
    asked = parameters.value if parameters is not None and isinstance(parameters.value, dict) else {}
    provider = _word(metadata, prefix, "ls_provider")
    return Model(
        message=run_id,
        model=_word(metadata, prefix, "ls_model_name") or _word(asked, prefix, "model", "model_name"),
        provider=provider.lower() if provider else None,
        tools=messages.offered(parameters.get("tools") if parameters is not None else None),
        tells_unexecuted=True,
        **messages.exchange(messages.of_request(node.get("inputs")), messages.of_reply(node.get("outputs"))),
    )
