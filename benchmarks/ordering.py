"""Bad calls found in the first fifth that is reviewed: "most useful next" against random order and newest first.

    python -m benchmarks.ordering [rounds]

A reviewer labels a set step by step; after every STEP labels what is left is put in order anew, from what he said so
far, by the very functions that order a queue (quality.review.queues.usefulness) on the hints that its rules give
(quality.review.hints). One JSON object a line and set: `value` is the share of all bad calls among the first 20 %, the
median over the rounds; `best` is what knowing all labels beforehand would find. A round draws the set and its order of
arrival anew.

| set | what |
| --- | --- |
| `bfcl` | answers to the 200 tasks of benchmarks.bfcl, five a task; one in five is damaged, in any way |
| `bfcl, some tools worse` | the same; of a fifth of the tasks six in ten are damaged, of the others one in ten |
| `small models` | what models of 0.1 to 1.5 B parameters answered (tests/corpus/data/small_models.jsonl), a case each |
"""

import json
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.bfcl_tasks import Answer, Task, answers, judge_of, right_answer, sample_of, tasks
from benchmarks.figures import figure
from quality.cases.toolset import Toolset
from quality.review.conversation import read_conversation
from quality.review.hints import SeenCall, SeenTurn, hints_of
from quality.review.queues.usefulness import Candidate, Counts, Known, best_first
from tests.corpus import corpus

STEP = 10  # labels between two refreshings
PART = 0.2
DRAWS = 5
ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Labelled:
    """An item as the order sees it, and what the reviewer will say of it."""

    candidate: Candidate
    is_bad: bool


type Draw = Callable[[Random], list[Labelled]]
type Order = Callable[[Sequence[Labelled], Random], list[int]]


# --- sets -------------------------------------------------------------------------------------------------------------
def bfcl(share_of: Callable[[int], float]) -> Draw:
    """Answers to the tasks, damaged with the probability `share_of(number of the task)`."""
    kinds = [(task, judge_of(task), _by_kind(task)) for task in tasks()]

    def draw(random: Random) -> list[Labelled]:
        found: list[Labelled] = []
        for number, (task, judge, damaged) in enumerate(kinds):
            for _ in range(DRAWS):
                answer = right_answer(task)
                if random.random() < share_of(number):
                    answer = random.choice(damaged[random.choice(sorted(damaged))])
                is_right = judge.judge(sample_of(answer)).passed
                found += _items(task, answer, is_right=is_right)
        random.shuffle(found)
        return found

    return draw


def _by_kind(task: Task) -> dict[str, list[Answer]]:
    kinds: dict[str, list[Answer]] = {}
    for kind, answer in answers(task):
        if kind != "right answer":
            kinds.setdefault(kind, []).append(answer)
    return kinds


def _items(task: Task, answer: Answer, *, is_right: bool) -> list[Labelled]:
    """An item each call, or the reply without one. Of an answer that is wrong, the calls that are not among the right
    ones are bad; where one is missing or in another order, the last."""
    asked = [{"id": f"c{place}", "type": "function", "function": {"name": name, "arguments": _text(arguments)}}
             for place, (name, arguments) in enumerate(answer)]  # fmt: skip
    turn = _turn(task["messages"], task["tools"], {"role": "assistant", "content": None, "tool_calls": asked})
    right = right_answer(task)
    wrong = [] if is_right else [place for place, call in enumerate(answer) if call not in right]
    if not is_right and not wrong:
        wrong = [max(len(answer) - 1, 0)]
    return [Labelled(one, place in wrong) for place, one in enumerate(_candidates(turn))]


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def small_models() -> Draw:
    """The recorded answers, as our own engine reads them: what is a call in words only stays a reply."""
    kept: list[Labelled] = []
    for case in corpus.load("small_models.jsonl"):
        turn = _turn(case["messages"], case["tools"], case["message"])
        kept += [Labelled(one, not case["is_right"]) for one in _candidates(turn)[:1]]

    def draw(random: Random) -> list[Labelled]:
        return random.sample(kept, len(kept))

    return draw


def _turn(messages: list[dict[str, Any]], tools: list[dict[str, Any]], answer: dict[str, Any]) -> SeenTurn:
    """A turn that ends with this answer, as the rules see it."""
    said = [*messages, answer]
    if asked := answer.get("tool_calls"):
        said += [{"role": "tool", "tool_call_id": call.get("id", ""), "content": '"ok"'} for call in asked]
        said.append({"role": "assistant", "content": "Done."})
    offered = Toolset.read(json.dumps(tools))
    calls = [
        SeenCall(id=place, cycle=0, index=place, tool_name=call["function"]["name"], args=call["function"]["arguments"],
                 result='"ok"', is_error=False, tools=offered)
        for place, call in enumerate(asked or [])
    ]  # fmt: skip
    conversation = read_conversation(json.dumps(said))
    return SeenTurn(
        calls=tuple(calls), said=tuple(conversation.messages), is_whole=conversation.complete, tools=offered
    )


def _candidates(turn: SeenTurn) -> list[Candidate]:
    remarks = hints_of(turn)
    if not turn.calls:
        return [Candidate("", tuple(sorted({one.rule for one in remarks})))]
    return [
        Candidate(call.tool_name, tuple(sorted({one.rule for one in remarks if one.call is call})))
        for call in turn.calls
    ]


# --- orders -----------------------------------------------------------------------------------------------------------
def most_useful_next(items: Sequence[Labelled], random: Random) -> list[int]:
    """Places in the order in which they are reviewed; refreshed after every STEP labels."""
    left: list[int] = list(range(len(items)))
    reviewed: list[int] = []
    while left and len(reviewed) < round(len(items) * PART):
        known = _known([items[place] for place in reviewed])
        order = best_first([items[place].candidate for place in left], known)
        taken = [left[place] for place in order[:STEP]]
        reviewed += taken
        left = [place for place in left if place not in set(taken)]
    return reviewed


def _known(labelled: Sequence[Labelled]) -> Known:
    """What quality.review.queues.refreshing reads from the labels."""
    rules: Counter[tuple[str, bool]] = Counter()
    tools: Counter[tuple[str, bool]] = Counter()
    for one in labelled:
        tools[one.candidate.tool_name, one.is_bad] += 1
        rules.update((rule, one.is_bad) for rule in one.candidate.rules)

    def counts(of: Counter[tuple[str, bool]]) -> dict[str, Counts]:
        return {name: Counts(of[name, True], of[name, False]) for name in {name for name, _ in of}}

    bad = sum(one.is_bad for one in labelled)
    return Known(rules=counts(rules), tools=counts(tools), all=Counts(bad, len(labelled) - bad))


def at_random(items: Sequence[Labelled], random: Random) -> list[int]:
    return random.sample(range(len(items)), len(items))


def newest_first(items: Sequence[Labelled], random: Random) -> list[int]:
    """The set is in the order of arrival."""
    return list(range(len(items)))[::-1]


def hints_first(items: Sequence[Labelled], random: Random) -> list[int]:
    return sorted(newest_first(items, random), key=lambda place: -len(items[place].candidate.rules))


def best_possible(items: Sequence[Labelled], random: Random) -> list[int]:
    return sorted(range(len(items)), key=lambda place: not items[place].is_bad)


ORDERS: dict[str, Order] = {
    "useful": most_useful_next,
    "random": at_random,
    "newest": newest_first,
    "hints": hints_first,
    "best": best_possible,
}


def found(items: Sequence[Labelled], order: Sequence[int]) -> float:
    """Share of all bad items among the first PART of an order."""
    first = order[: round(len(items) * PART)]
    return sum(items[place].is_bad for place in first) / max(sum(one.is_bad for one in items), 1)


def measured(name: str, draw: Draw, rounds: int) -> dict[str, Any]:
    shares: dict[str, list[float]] = {order: [] for order in ORDERS}
    sizes, bad = [], []
    for seed in range(rounds):
        items = draw(Random(seed))
        sizes.append(len(items))
        bad.append(sum(one.is_bad for one in items))
        for order, ordered in ORDERS.items():
            shares[order].append(found(items, ordered(items, Random(seed + 1))))
    others = {order: round(statistics.median(shares[order]), 3) for order in ("newest", "hints", "best")}
    told = {"items": round(statistics.mean(sizes)), "bad": round(statistics.mean(bad))}
    what = f"bad calls in the first {PART:.0%}, most useful next: {name}"
    return figure(what, "share", shares["useful"], shares["random"], "random order", **others, **told)


def sets() -> Iterator[tuple[str, Draw]]:
    yield "bfcl", bfcl(lambda number: 0.2)
    yield "bfcl, some tools worse", bfcl(lambda number: 0.6 if number % 5 == 0 else 0.1)
    yield "small models", small_models()


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    for name, draw in sets():
        print(json.dumps(measured(name, draw, rounds)), flush=True)


if __name__ == "__main__":
    main()
