"""All strings at which the scanner stops, put together from the table of formats."""

import re
from collections.abc import Iterable
from functools import cache

from engine.parsing.format import Format
from engine.parsing.formats import FORMATS
from engine.parsing.formats.harmony import RECIPIENTS
from engine.parsing.formats.reasoning import ANSWERS, BLOCKS
from engine.parsing.source import Marks

SPECIAL_TOKENS = (
    *("<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|begin_of_text|>"),
    *("<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "</s>"),
    *("<|end|>", "<|return|>", "<|call|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|system|>"),
    *("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>", "<｜Assistant｜>", "<｜User｜>"),
    *(
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|START_OF_TURN_TOKEN|>",
        "<|END_OF_TURN_TOKEN|>",
        "<|CHATBOT_TOKEN|>",
    ),
    *("<start_of_turn>", "<end_of_turn>", "<|turn>", "<turn|>", "<|tool_response>", "<tool_response|>", "<|think|>"),
    *("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "[/INST]", "[INST]"),
)

# Parts of blocks that are markup even when they stand alone.
PARTS = (
    *("</parameter>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "[ARGS]", "[CALL_ID]", '<|"|>'),
    *("<｜tool▁sep｜>", "<|tool_call_argument_begin|>", "<|plugin|>", "<|sep|>"),
)

OPENINGS: dict[str, tuple[Format, ...]] = {}
for _format in FORMATS:
    for _opening in _format.opens:
        OPENINGS[_opening] = (*OPENINGS.get(_opening, ()), _format)

REASONING = {opening: Marks(closing) for opening, closing in BLOCKS.items()}
REASONING_END_SET = frozenset(BLOCKS.values())
REASONING_ENDS = Marks(*REASONING_END_SET, *ANSWERS)  # of a block that the prompt opened
CLOSES = frozenset(closing for form in FORMATS for closing in form.closes)
BRACKETS = ("{", "[")
FENCES = ("```", "~~~")

_WORDS = (*RECIPIENTS, "functools[")  # found by a later part of theirs
_PLAIN = {*BRACKETS, *FENCES}
_SOFT = {opening for opening, forms in OPENINGS.items() if forms[0].soft}
_TAGS = {*OPENINGS, *REASONING, *REASONING_END_SET, *CLOSES, *SPECIAL_TOKENS, *PARTS} - {*_PLAIN, *_WORDS}
_HARD = _TAGS - _SOFT
_WRAPPER_ENDS = [closing for closing in CLOSES if closing not in ("</function>", "</parameter>", "</invoke>")]

# Tags that any XML document may hold are markup only where one of these follows.
NEEDS_FOLLOWER = {
    "</function>": Marks(*_WRAPPER_ENDS, "<tool_call>", "<function="),
    "</invoke>": Marks(*_WRAPPER_ENDS),
    "</parameter>": Marks(*_WRAPPER_ENDS, "</function>", "</invoke>"),
}
ENDS_TEXT = frozenset({"</function>", "</invoke>"})  # … or the end of the output, if they begin a line

SPACES = re.compile(r"[ \t]*")
BACKTICKS = re.compile(r"`*")
_PLAIN_START = r'(?:\{[ \t\r\n]*+(?:"|\Z)|\[[ \t\r\n]*+(?:[{\w]|\Z))'  # what can be seen at a glance
LINE_START = re.compile(r"([ \t\r\n]*)([{\[]|`{1,3}|~{1,3})?")
LINE_OR_HARD = Marks("\n", *_HARD)


def _trie(words: Iterable[str]) -> str:
    """A pattern of alternatives that share their beginnings, so that a near miss costs little."""
    tails: dict[str, list[str]] = {}
    for word in words:
        tails.setdefault(word[:1], []).append(word[1:])
    options = [re.escape(head) + _trie(rest) for head, rest in tails.items() if head]
    if not options:
        return ""
    inner = options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"
    return f"(?:{inner})?" if "" in tails else inner


def _tries(words: Iterable[str]) -> list[str]:
    """One such pattern for each first character, which stands plainly in front."""
    ordered = sorted(words)
    return [_trie(word for word in ordered if word[0] == first) for first in sorted({word[0] for word in ordered})]


# A run of "<" is stepped over at once. Words that begin with a letter are found by their later, rarer part. A line
# break counts where a plain call may follow.
# All alternatives begin with a plain character, or the search would try them at every place.
ANY = re.compile(
    "|".join(
        [r"<<*(?=<)", r"\[(?<=functools\[)", *_tries(_TAGS), r"=(?<=to=)functions\.", rf"\n(?=[ \t\r]*+{_PLAIN_START})"]
    )
)
HARD = re.compile("|".join(_tries(_HARD)))

_RECIPIENT = re.compile("(?:" + "|".join(map(re.escape, sorted(RECIPIENTS, key=len, reverse=True))) + r")\Z")
_LONGEST = max(map(len, _TAGS))
_HEADS = frozenset(tag[:n] for tag in _TAGS for n in range(1, len(tag)))
_FIRSTS = sorted({tag[0] for tag in _TAGS})
_FIRST = re.compile(f"[{re.escape(''.join(_FIRSTS))}]")
_WORD_HEADS = frozenset(word[:n] for word in _WORDS for n in range(1, len(word)))
_WORD_LONGEST = max(map(len, _WORDS))


def start_of(window: str, index: int, found: re.Match[str]) -> int:
    """Where the mark that was found begins."""
    text = found.group()
    if text == "=functions.":
        words = _RECIPIENT.search(window, max(index, found.start() - _WORD_LONGEST), found.end())
        return words.start() if words else found.start()
    if text == "[":
        start = found.start() - len("functools")
        return found.start() if start < index else start
    return found.start()


def mark_of(window: str, start: int, found: re.Match[str]) -> str:
    """The mark, or "" if what was found is none after all."""
    text = window[start : found.end()]
    return "" if text in ("=functions.", "[", "\n") or not text.strip("<") else text


def undecided(window: str, start: int) -> bool:
    """Whether the mark at `start` may become a longer one."""
    return window[start : start + _LONGEST] in _HEADS


def held_back(window: str, index: int) -> int:
    """How many characters at the end of the window may still become a mark."""
    stop = len(window)
    floor = max(index, stop - _LONGEST)
    held = 0
    for first in _FIRSTS if _FIRST.search(window, floor) else ():
        start = window.rfind(first, floor)
        while start >= 0:
            if window[start:] in _HEADS:
                held = max(held, stop - start)
            start = window.rfind(first, floor, start)
    if window[-1:] in _WORD_ENDS:
        for start in range(max(index, stop - _WORD_LONGEST), stop):
            if window[start:] in _WORD_HEADS:
                return max(held, stop - start)
    return held


_WORD_ENDS = frozenset(head[-1] for head in _WORD_HEADS)


@cache
def closes_of(formats: tuple[Format, ...]) -> Marks:
    return Marks(*(closing for form in formats for closing in form.closes))


@cache
def ends_of(formats: tuple[Format, ...], opening: str) -> Marks:
    """Where a broken block may end: at its end, or where the next begins; without an end of its own, with the line."""
    closes = closes_of(formats).literals
    return Marks(*closes, opening) if closes else LINE_OR_HARD


@cache
def hard_or(closes: Marks) -> Marks:
    return Marks(*_HARD, *closes.literals)
