"""How much a label of an item would be worth: the order "most useful next". Pure: plain values in, a score out.

| part | is high where |
| --- | --- |
| `hints` | a rule noticed something; each rule weighs as much as people agreed with it so far |
| `disagreement` | reviewers said different things |
| `tool_rate` | people found much fault with the tool's calls so far |
| `unsure` | the tool's rate could as well be another: its few labels leave it open |
| `rare_tool` | calls of the tool are seldom labelled |
| `rare_fault` | what the rules noticed is seldom seen among what was labelled |

Rates are means of Beta distributions with a prior, so that what nobody labelled yet is worth a look, and one label is
no verdict on a rule or a tool. The parts are added with the WEIGHTS; each is between 0 and 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, Final

type Why = dict[str, dict[str, Any]]
"""The parts of a score by name: `score`, weighed, and the figures that a line about it tells."""

WEIGHTS: Final = {
    "hints": 1.0,
    "disagreement": 0.6,
    "tool_rate": 0.5,
    "unsure": 0.25,
    "rare_tool": 0.15,
    "rare_fault": 0.1,
}
RULE_PRIOR: Final = (2.0, 2.0)  # bad and good labels that each rule begins with
TOOL_PRIOR: Final = 4.0  # labels that each tool begins with, bad in the share of all
LEAST: Final = 0.005  # parts below are not worth a word
MAX_SCORE: Final = sum(WEIGHTS.values())


@dataclass(frozen=True, slots=True)
class Counts:
    """Of what people labelled: how many were bad, how many were not."""

    bad: int = 0
    good: int = 0

    @property
    def n(self) -> int:
        return self.bad + self.good


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What people said so far: by rule of the hints that were on the items, by tool, and over all."""

    rules: Mapping[str, Counts] = field(default_factory=dict)
    tools: Mapping[str, Counts] = field(default_factory=dict)
    all: Counts = field(default_factory=Counts)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An item that waits: its tool, the rules that noticed something, and how many different labels it has so far."""

    tool_name: str
    rules: tuple[str, ...] = ()
    num_kinds: int = 0


@dataclass(frozen=True, slots=True)
class Useful:
    score: float
    why: Why

    @property
    def priority(self) -> int:
        return round(self.score * 1_000)


def useful(candidate: Candidate, known: Known) -> Useful:
    """The score of a candidate, and its parts."""
    tool = known.tools.get(candidate.tool_name, Counts())
    rate, spread = _rate(tool, known.all)
    parts: Why = {
        "hints": {"score": _noticed(candidate.rules, known), "rules": list(candidate.rules)},
        "disagreement": {"score": _apart(candidate.num_kinds), "labels": candidate.num_kinds},
        "tool_rate": {"score": rate, "bad": tool.bad, "of": tool.n},
        "unsure": {"score": spread, "of": tool.n},
        "rare_tool": {"score": _rarity(tool.n), "of": tool.n},
        "rare_fault": {"score": _rare_fault(candidate.rules, known)},
    }
    weighed = {name: part | {"score": round(part["score"] * WEIGHTS[name], 4)} for name, part in parts.items()}
    why = {name: part for name, part in weighed.items() if part["score"] >= LEAST}
    return Useful(score=sum(part["score"] for part in weighed.values()), why=why)


def best_first(candidates: Sequence[Candidate], known: Known) -> list[int]:
    """Places of the candidates, the most useful one first; equal ones stay in their order."""
    scores: dict[Candidate, float] = {}
    for one in candidates:
        if one not in scores:
            scores[one] = useful(one, known).score
    return sorted(range(len(candidates)), key=lambda place: -scores[candidates[place]])


def _noticed(rules: Sequence[str], known: Known) -> float:
    """How likely at least one of the rules is right, taken as if each judged for itself."""
    wrong = 1.0
    for rule in rules:
        wrong *= 1.0 - _trust(known.rules.get(rule, Counts()))
    return 1.0 - wrong


def _trust(counts: Counts) -> float:
    """The share of a rule's hints that people called bad, with the prior."""
    bad, good = RULE_PRIOR
    return (counts.bad + bad) / (counts.n + bad + good)


def _rate(tool: Counts, every: Counts) -> tuple[float, float]:
    """Mean of the tool's share of bad calls, and its spread: 1 for a tool that nobody labelled yet."""
    share = (every.bad + 1.0) / (every.n + 2.0)
    bad, good = tool.bad + TOOL_PRIOR * share, tool.good + TOOL_PRIOR * (1 - share)
    total = bad + good
    deviation = sqrt(bad * good / (total * total * (total + 1)))
    widest = sqrt(share * (1 - share) / (TOOL_PRIOR + 1))
    return bad / total, min(deviation / widest, 1.0)


def _rarity(num_labelled: int) -> float:
    return 1.0 / sqrt(1.0 + num_labelled)


def _rare_fault(rules: Sequence[str], known: Known) -> float:
    return max((_rarity(known.rules.get(rule, Counts()).n) for rule in rules), default=0.0)


def _apart(num_kinds: int) -> float:
    return 0.0 if num_kinds < 2 else min(num_kinds - 1, 2) / 2
