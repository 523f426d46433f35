"""How fast the parser reads replies, whole and as a stream in pieces of 4 characters; then `benchmarks.engine_loop`.

    python -m benchmarks.engine [--megabytes 2] [--rounds 7] [--turns 200]

The yardstick, over the same bytes in the same run, is what any reader must at least do: one search of the text for
markers with a compiled expression, and `json.loads` of the calls that it finds; streamed, the same search piece by
piece. One JSON object a line and figure; `median` and `spread` (the middle half) are megabytes a second over the
rounds, `value` is the median, and `compared_with` names the yardstick and gives its median and the ratio.
"""

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from benchmarks import engine_loop
from engine.parsing import StreamParser, parse

PIECE = 4
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "save_note",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"}}},
        },
    }
]
PROSE = "The tide at Brest turns at 04:12; until then `quay 3` is dry, and x < y holds.\n\n"
ARGUMENTS = {"text": 'line one\nline "two" {x} é ' * 6, "count": 7}
MARKER = re.compile(r"<tool_call>|</tool_call>|<function=|\[TOOL_CALLS\]|<\|python_tag\|>")
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def hermes() -> str:
    return f"<tool_call>\n{json.dumps({'name': 'save_note', 'arguments': ARGUMENTS})}\n</tool_call>\n"


def qwen_xml() -> str:
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in ARGUMENTS.items())
    return f"<tool_call>\n<function=save_note>\n{values}</function>\n</tool_call>\n"


# An answer in prose, and answers in which a call follows every few lines.
REPLIES: dict[str, Callable[[], str]] = {
    "prose": lambda: PROSE,
    "hermes calls": lambda: PROSE * 4 + hermes(),
    "qwen xml calls": lambda: PROSE * 4 + qwen_xml(),
}


def repeated(unit: str, megabytes: float) -> str:
    return unit * max(int(megabytes * 1e6 / len(unit.encode())), 1)


def pieces(text: str) -> Iterator[str]:
    return (text[at : at + PIECE] for at in range(0, len(text), PIECE))


def parser_whole(text: str) -> None:
    parse(text, tools=TOOLS)


def parser_streamed(text: str) -> None:
    parser = StreamParser(TOOLS)
    for piece in pieces(text):
        parser.feed(piece)
    parser.finish("stop")


def yardstick_whole(text: str) -> None:
    for _ in MARKER.finditer(text):
        pass
    for found in CALL.finditer(text):
        if found[1].lstrip().startswith("{"):
            json.loads(found[1])


def yardstick_streamed(text: str) -> None:
    for piece in pieces(text):
        MARKER.search(piece)
    yardstick_whole(text)


def rates(read: Callable[[str], None], text: str, rounds: int) -> list[float]:
    """Megabytes a second of processor time, which other programs on the machine disturb least."""
    size = len(text.encode()) / 1e6
    found = []
    for _ in range(rounds):
        begin = time.process_time()
        read(text)
        found.append(size / (time.process_time() - begin))
    return found


def figure(name: str, ours: list[float], theirs: list[float], yardstick: str) -> dict[str, Any]:
    middle = statistics.quantiles(ours, n=4)
    median, other = statistics.median(ours), statistics.median(theirs)
    return {
        "name": name,
        "value": round(median, 3),
        "unit": "MB/s",
        "compared_with": {"name": yardstick, "value": round(other, 3), "ratio": round(median / other, 4)},
        "n": len(ours),
        "median": round(median, 3),
        "spread": [round(middle[0], 3), round(middle[2], 3)],
    }


def run(megabytes: float, rounds: int) -> Iterator[dict[str, Any]]:
    for name, unit in REPLIES.items():
        text = repeated(unit(), megabytes)
        yield figure(
            f"parser, whole, {name}",
            rates(parser_whole, text, rounds),
            rates(yardstick_whole, text, rounds),
            "json.loads and a compiled expression",
        )
        yield figure(
            f"parser, pieces of {PIECE} characters, {name}",
            rates(parser_streamed, text, rounds),
            rates(yardstick_streamed, text, rounds),
            f"json.loads and a compiled expression on pieces of {PIECE} characters",
        )


def main(arguments: list[str] | None = None) -> None:
    options = argparse.ArgumentParser(description="How fast the parser reads replies and the loop runs turns.")
    options.add_argument("--megabytes", type=float, default=2.0, help="length of a reply")
    options.add_argument("--turns", type=int, default=200, help="in flight at once")
    options.add_argument("--rounds", type=int, default=7, help="measurements per figure, at least 2")
    chosen = options.parse_args(arguments)
    for line in chain(run(chosen.megabytes, chosen.rounds), engine_loop.run(chosen.turns, 1.0, chosen.rounds)):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
