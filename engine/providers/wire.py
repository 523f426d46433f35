"""The shapes in which OpenAI-compatible servers put an answer on the wire, as the scripted server imitates them.

Three dialects, all seen from real servers: `llamacpp` (a call's first chunk already opens the arguments), `vllm` (the
first chunk has empty arguments, calls may be interleaved, reasoning has a field of its own) and `repeating`
(llama-cpp-python: every chunk repeats id, type and name and mirrors itself in the legacy `function_call`).
"""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

type Dialect = Literal["llamacpp", "vllm", "repeating"]
type Chunk = dict[str, Any]


@dataclass(frozen=True)
class Completion:
    """What a model answers: text, calls as (name, arguments as JSON text), why it stopped (by default from the calls).

    `reply` numbers the answers of a conversation, so that no two of them hold the same call id.
    """

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str | None = None
    reasoning: str = ""
    reply: int = 0

    @property
    def finish_reason(self) -> str:
        return self.finish or ("tool_calls" if self.calls else "stop")

    @property
    def usage(self) -> dict[str, int]:
        spoken = len(self.text) + len(self.reasoning) + sum(len(name) + len(args) for name, args in self.calls)
        return {"prompt_tokens": 20, "completion_tokens": spoken // 4 + 1, "total_tokens": 21 + spoken // 4}


def call_id(completion: Completion, index: int, dialect: Dialect = "llamacpp") -> str:
    """Ids as servers make them: 32 characters that say nothing, or a long name that says too much."""
    seed = f"{completion.reply}/{index}/{completion.calls[index]}"
    if dialect == "repeating":
        return f"call__{index}_{completion.calls[index][0]}_cmpl-{uuid.uuid5(uuid.NAMESPACE_OID, seed)}"
    return uuid.uuid5(uuid.NAMESPACE_OID, seed).hex


def whole(completion: Completion, model: str) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": completion.text}
    if completion.calls:
        message["tool_calls"] = [
            {"type": "function", "function": {"name": name, "arguments": arguments}, "id": call_id(completion, index)}
            for index, (name, arguments) in enumerate(completion.calls)
        ]
    if completion.reasoning:
        message["reasoning_content"] = completion.reasoning
    return {
        "choices": [{"finish_reason": completion.finish_reason, "index": 0, "message": message}],
        "created": 1796017257,
        "model": model,
        "object": "chat.completion",
        "usage": completion.usage,
        "id": "chatcmpl-scripted",
        "timings": {"predicted_ms": 1.0},
    }


def envelope(choices: list[Chunk], model: str) -> Chunk:
    return {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "model": model, "choices": choices}


def deltas(completion: Completion, dialect: Dialect = "llamacpp") -> Iterator[Chunk]:
    """The deltas of a stream, the role first; the finish reason and the usage are not among them."""
    yield {"role": "assistant", "content": None}
    for piece in pieces(completion.reasoning):
        yield {"reasoning_content": piece}
    for piece in pieces(completion.text):
        yield {"content": piece}
    streams = [list(_call(completion, index, dialect)) for index in range(len(completion.calls))]
    if dialect == "vllm":
        for row in zip_longest(*streams):
            yield from filter(None, row)
    else:
        for stream in streams:
            yield from stream


def _call(completion: Completion, index: int, dialect: Dialect) -> Iterator[Chunk]:
    name, arguments = completion.calls[index]
    head = {"index": index, "id": call_id(completion, index, dialect), "type": "function"}
    if dialect == "repeating":
        for piece in pieces(arguments):
            call = {**head, "function": {"name": name, "arguments": piece}}
            mirror = {"name": f"{name}:", "arguments": piece}
            yield {"role": None, "content": None, "function_call": mirror, "tool_calls": [call]}
        return
    opened = "" if dialect == "vllm" else arguments[:1]
    yield {"tool_calls": [{**head, "function": {"name": name, "arguments": opened}}]}
    for piece in pieces(arguments[len(opened) :]):
        yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def pieces(text: str, size: int = 3) -> Iterator[str]:
    """Token-sized pieces: they split keys, numbers and escapes."""
    for start in range(0, len(text), size):
        yield text[start : start + size]


TEXT_CALLS = {
    "hermes": '<tool_call>\n{{"name": "{name}", "arguments": {json}}}\n</tool_call>',
    "qwen_xml": "<tool_call>\n<function={name}>\n{qwen}</function>\n</tool_call>",
    "bare": '{{"name": "{name}", "arguments": {json}}}',
    "fenced": '```json\n{{"name": "{name}", "arguments": {json}}}\n```',
    "llama": '<|python_tag|>{{"name": "{name}", "parameters": {json}}}',
    "pythonic": "[{name}({python})]",
    "mistral": '[TOOL_CALLS][{{"name": "{name}", "arguments": {json}}}]',
    "deepseek": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "glm": "<tool_call>{name}\n{glm}</tool_call>",
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{json}"
        "<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "harmony": "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{json}<|call|>",
    "minimax": '<minimax:tool_call>\n<invoke name="{name}">\n{invoke}</invoke>\n</minimax:tool_call>',
    "granite": '<|tool_call|>[{{"name": "{name}", "arguments": {json}}}]',
    "phi": '<|tool_call|>[{{"name": "{name}", "arguments": {json}}}]<|/tool_call|>',
    "gemma": "<|tool_call>call:{name}{{{gemma}}}<tool_call|>",
}


def text_call(form: str, name: str, arguments: dict[str, Any]) -> str:
    """The call as a model's own text, in one of `TEXT_CALLS`."""
    plain = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
    return TEXT_CALLS[form].format(
        name=name,
        json=json.dumps(arguments),
        python=", ".join(f"{key}={value!r}" for key, value in arguments.items()),
        qwen="".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in plain.items()),
        glm="".join(f"<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>\n" for k, v in plain.items()),
        invoke="".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in plain.items()),
        gemma=",".join(
            f'{key}:<|"|>{value}<|"|>' if isinstance(value, str) else f"{key}:{json.dumps(value)}"
            for key, value in arguments.items()
        ),
    )
