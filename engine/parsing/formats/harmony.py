"""gpt-oss: Harmony messages, `<|start|>role<|channel|>name to=recipient<|message|>text<|end|>`.

`analysis` is reasoning, `final` and a `commentary` without recipient are for the user, a recipient `functions.N` makes
a call. A server that drops the special tokens leaves `commentary to=functions.N json{…}`: a call to an offered tool.
"""

import re

from engine.parsing.calls import found
from engine.parsing.format import Block
from engine.parsing.formats.json_block import read_object
from engine.parsing.source import Cut, Marks, Source, Wait
from engine.parsing.toolbox import Toolbox

OPENS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>")
RECIPIENTS = tuple(
    f"{words}to=functions."
    for words in ("", "assistant ", "commentary ", "analysis ", "assistantcommentary ", "assistantanalysis ")
)

_IN_HEADER = Marks("<|message|>", "<|channel|>", "<|constrain|>")
_REASONING_ENDS = Marks("<|end|>", "<|start|>", "<|return|>", "<|channel|>")
_BODY_ENDS = Marks("<|end|>", "<|start|>", "<|return|>", "<|call|>", "<|channel|>")
_CALL_ENDS = Marks("<|end|>", "<|return|>", "<|call|>")
_HEADER_TEXT = re.compile(r"[^\n<]*")
_TO = re.compile(r"to=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_TOOL_NAME = re.compile(r"[\w.-]*")
_CHANNEL_WORD = re.compile(r"(?:commentary|analysis)$")
_WORDS = Marks("commentary", "analysis", "json", "code", "<|constrain|>json", "<|constrain|>code")
_MAX_HEADER = 400
_TO_NOBODY = ("assistant", "user", "all")


def read(source: Source, tools: Toolbox, opening: str) -> Wait[Block | None]:
    header = opening if opening == "<|message|>" else (yield from _read_header(source, opening))
    return None if header is None else (yield from _read_body(source, tools, header))


def read_recipient(source: Source, tools: Toolbox, opening: str) -> Wait[Block | None]:
    """`to=functions.N`, in the role part of a header, or left over of one whose special tokens were dropped."""
    name = yield from source.match(_TOOL_NAME)
    if source.pos >= source.end or source.ends_within(_IN_HEADER):
        if tools.may_become(name):
            raise Cut
        return None
    if (yield from source.at(_IN_HEADER)):
        header = yield from _read_header(source, opening + name)
        return None if header is None else (yield from _read_body(source, tools, header))
    if name not in tools:
        name = _CHANNEL_WORD.sub("", name)
    if name not in tools:
        return None
    yield from source.blanks()
    while (yield from source.take(_WORDS)):
        yield from source.blanks()
    if (yield from source.peek()) != "{":
        return None
    return (yield from _read_call(source, tools, name))


def _read_header(source: Source, opening: str) -> Wait[str | None]:
    """The header up to and with `<|message|>`; None if it is none. A header that ends early is dropped as it is: ""."""
    header = opening
    while len(header) < _MAX_HEADER:
        header += yield from source.match(_HEADER_TEXT)
        mark = yield from source.take(_IN_HEADER)
        if mark == "<|message|>":
            return header
        if not mark:
            break
        header += mark
    if source.pos >= source.end or source.ends_within(_IN_HEADER):
        raise Cut
    return "" if (yield from source.at(_BODY_ENDS)) else None


def _read_body(source: Source, tools: Toolbox, header: str) -> Wait[Block | None]:
    if not header:
        return Block()
    recipient = _TO.findall(header)[-1:] or [""]
    channel = _CHANNEL.findall(header)[-1:] or [""]
    name = recipient[0]
    if name.startswith("functions.") or name in tools:
        yield from source.blanks()
        return (yield from _read_call(source, tools, name))
    if name and name not in _TO_NOBODY:  # a built-in tool that was not offered
        yield from source.until(_BODY_ENDS)
        return Block()
    if channel[0] == "analysis":
        return Block(reasoning=(yield from _read_reasoning(source)))
    return Block(verbatim=channel[0] == "final")


def _read_reasoning(source: Source) -> Wait[str]:
    """The body of an analysis message. `<|channel|>` ends it only where a whole header follows."""
    start = source.pos
    while (yield from source.until(_REASONING_ENDS)) == "<|channel|>":
        here = source.pos
        source.pos += len("<|channel|>")
        try:
            header = yield from _read_header(source, "")
        except Cut:
            header = None
        if header:
            source.rewind(here)
            break
        source.rewind(here + len("<|channel|>"))
    return source.slice(start, source.pos)


def _read_call(source: Source, tools: Toolbox, name: str) -> Wait[Block | None]:
    if (yield from source.at(_BODY_ENDS)):
        return Block([found(name, None, "", tools)])
    text = yield from read_object(source)
    if not (yield from source.take(_CALL_ENDS)) and source.ends_within(_BODY_ENDS):
        source.pos = source.end
    return Block([found(name, text, text, tools)])
