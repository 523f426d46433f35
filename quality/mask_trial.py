"""Rules of masking tried on texts before they are kept: what they would hide, and in how many calls."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import QuerySet
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from quality.models import ToolCall
from quality.starts import Start
from tenants import masks
from tenants.masking import reading
from tenants.masking.masker import MARK, Masker, Memory, Rule, is_marked
from tenants.models import MaskRule, Role

MAX_TEXT = 20_000  # characters of one text
NEWEST = 200  # calls that are counted
MAX_COUNTED = 2_000  # characters of arguments, and of the result, of each of them
MAX_SHOWN = 5  # calls that are named
EXPORT = "export"


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a text that stays, the value hidden after it ("" if it was hidden before), and its mark."""

    kept: str
    hidden: str = ""
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """One text. `is_cut`: there is more of it."""

    name: str | Promise
    pieces: list[Piece]
    is_cut: bool = False


@dataclass(slots=True)
class Trial:
    """`hits`: values hidden, by rule."""

    parts: list[Part] = field(default_factory=list)
    hits: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.hits.total()

    @property
    def masked(self) -> str:
        """All that is left, one part after the other."""
        return "".join(piece.kept + piece.mark for part in self.parts for piece in part.pieces)

    @property
    def by_rule(self) -> list[tuple[str, int]]:
        return self.hits.most_common()


@dataclass(frozen=True, slots=True)
class Touched:
    """How many of the newest calls rules hide something of: `count` of `of`, by tool, and the ids of the newest."""

    count: int
    of: int
    tools: list[tuple[str, int]]
    calls: list[int]


def rules_for(draft: MaskRule, reader: str) -> list[Rule]:
    """The draft alone, or with the other rules that hold for `reader`, a role or EXPORT (as an admin orders one)."""
    if not reader:
        return [masks.kept_as(draft).rule]
    rows = [draft, *MaskRule.objects.filter(is_enabled=True).exclude(pk=draft.pk).order_by("name")]
    kept = [masks.kept_as(row) for row in rows]
    if reader == EXPORT:
        return [one.rule for one in kept if one.masks_exports or one.hides_from(Role.ADMIN) or not one.keeps_raw]
    return [one.rule for one in kept if one.hides_from(Role(reader)) or not one.keeps_raw]


def try_text(masker: Masker, text: str) -> Trial:
    """A text that somebody wrote: arguments or a result if it is JSON, else prose."""
    trial = Trial()
    _add(trial, masker, {}, text[:MAX_TEXT], name=_("Text"), is_data=is_json(text), is_cut=len(text) > MAX_TEXT)
    return trial


def try_last_call(masker: Masker, tool: str) -> tuple[Trial, int | None]:
    """The newest call of a tool, as whoever looks may read it, and its id; None: there is none."""
    call = _newest(MAX_TEXT + 1).filter(tool_name=tool).first()
    trial = Trial()
    memory: Memory = {}
    if call is None:
        return trial, None
    for name, text, is_data in (
        (_("Arguments"), call["args_start"], True),
        (_("Result"), call["result_start"], True),
        (pgettext_lazy("of a call", "Error"), call["error_start"], False),
    ):
        if text:
            _add(trial, masker, memory, text[:MAX_TEXT], name=name, is_data=is_data, is_cut=len(text) > MAX_TEXT)
    return trial, call["pk"]


def count_touched(masker: Masker) -> Touched:
    """Of the newest calls those in whose arguments, result or error something would be hidden. They are read as they
    are stored, and nothing but their number leaves."""
    with reading.as_stored():
        rows = list(_newest(MAX_COUNTED)[:NEWEST])
    found = [row for row in rows if _is_touched(masker, row)]
    tools = Counter(row["tool_name"] for row in found)
    return Touched(len(found), len(rows), tools.most_common(MAX_SHOWN), [row["pk"] for row in found[:MAX_SHOWN]])


def is_json(text: str) -> bool:
    """Whether a text is an object or a list of JSON."""
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _newest(length: int) -> QuerySet[ToolCall, dict[str, Any]]:
    starts = {f"{name}_start": Start(ToolCall, name, length) for name in ("args", "result", "error")}
    return ToolCall.objects.annotate(**starts).order_by("-started_at", "-pk").values("pk", "tool_name", *starts)


def _is_touched(masker: Masker, row: dict[str, Any]) -> bool:
    memory: Memory = {}
    data, prose = (row["args_start"], row["result_start"]), row["error_start"]
    return any(_num_marks(masker.document(text, memory)) > _num_marks(text) for text in data if text) or bool(
        prose and _num_marks(masker.prose(prose, memory)) > _num_marks(prose)
    )


def _num_marks(text: str) -> int:
    return len(MARK.findall(text)) if is_marked(text) else 0


def _add(
    trial: Trial, masker: Masker, memory: Memory, text: str, *, name: str | Promise, is_data: bool, is_cut: bool
) -> None:
    before = Counter(mark.group(1) for mark in MARK.finditer(text))
    masked = masker.document(text, memory) if is_data else masker.prose(text, memory)
    after = Counter(mark.group(1) for mark in MARK.finditer(masked))
    trial.hits += after - before
    trial.parts.append(Part(name, list(_pieces(masked, memory)), is_cut))


def _pieces(masked: str, memory: Memory) -> Iterable[Piece]:
    done = 0
    for mark in MARK.finditer(masked):
        value = memory.get(mark.group())
        hidden = "" if value is None or value == mark.group() else value if isinstance(value, str) else value.spelling
        yield Piece(masked[done : mark.start()], hidden, mark.group())
        done = mark.end()
    if done < len(masked):
        yield Piece(masked[done:])
