"""The coach without a model: one line for each kind of fault that was found more than once. Pure.

It says what reviewers said, in words that an agent can follow; it makes nothing up.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quality.improve.coach.advice import MAX_EXAMPLE, MAX_ITEMS, MAX_LINE, Advice, Kind, Suggestion
from quality.improve.coach.reading import Reading, Remark
from quality.improve.faults import spoken
from quality.models import Label

MIN_REMARKS = 2  # one remark is an accident, two are a habit
MIN_DETACH = 3
MAX_SHOWN = 80  # characters of a value or question quoted in a line

type Group = tuple[str, str, str]  # label, tool, fault


def advise(reading: Reading) -> Advice:
    """Guidance lines for the largest groups first, an example where a call was missing, skills that fit the tools."""
    groups = _groups(reading.remarks)
    items: list[Suggestion] = []
    for key, remarks in groups:
        if len(remarks) >= MIN_REMARKS:
            items.append(_guidance(key, remarks))
    items += _examples(groups)
    items += _attached(reading)
    items += _detached(reading)
    known = reading.text.to_text()
    items = [item for item in items if item.kind is not Kind.GUIDANCE or item.text not in known][:MAX_ITEMS]
    return Advice(items=items, summary=_summary(reading, groups, items))


def _groups(remarks: Iterable[Remark]) -> list[tuple[Group, list[Remark]]]:
    """Remarks by label, tool and fault; the largest groups first, then by name."""
    found: dict[Group, list[Remark]] = defaultdict(list)
    for remark in remarks:
        for fault in remark.faults or ("",):
            found[remark.label, remark.tool_name, fault].append(remark)
    return sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def _guidance(key: Group, remarks: Sequence[Remark]) -> Suggestion:
    label, tool, fault = key
    wording = {Label.BAD_ARGS: _on_argument, Label.WRONG_TOOL: _on_choice, Label.MISSING_TOOL: _on_missing}
    text = wording[Label(label)](tool, fault.partition(":")[2], remarks)
    return Suggestion(
        kind=Kind.GUIDANCE,
        text=text[:MAX_LINE],
        rationale=f"{len(remarks)} reviewers' remarks of the same kind ({Label(label).label}).",
        feedback_ids=_ids(remarks),
    )


def _on_argument(tool: str, pointer: str, remarks: Sequence[Remark]) -> str:
    if not pointer:
        return f"Before you call {tool}, check each argument against its description and what the user said."
    pairs = list(filter(None, (_changed(remark, pointer) for remark in remarks)))
    shown = f" For example {pairs[0][1]}, not {pairs[0][0]}." if pairs else ""
    return f"When you call {tool}, take care with {spoken(pointer)}: it was wrong {len(remarks)} times.{shown}"


def _on_choice(tool: str, other: str, remarks: Sequence[Remark]) -> str:
    asked = _asked(remarks)
    if other:
        return f"Use {other}, not {tool},{asked or ' where it fits what the user asks for'}."
    return f"Do not call {tool}{asked or ' unless the user asks for just that'}."


def _on_missing(tool: str, other: str, remarks: Sequence[Remark]) -> str:
    asked = _asked(remarks)
    return f"Call {other or 'the tool that fits'} before you answer{asked or '; do not answer from memory'}."


def _asked(remarks: Sequence[Remark]) -> str:
    questions = list(dict.fromkeys(remark.question.strip() for remark in remarks if remark.question.strip()))
    quoted = " or ".join(f"“{_short(question)}”" for question in questions[:2])
    return f" when the user says something like {quoted}" if quoted else ""


def _changed(remark: Remark, pointer: str) -> tuple[str, str] | None:
    """Wrong and right value at a pointer without wildcards, as JSON; None where they are not both known."""
    try:
        actual = json.loads(remark.args)
    except ValueError:  # the arguments were no JSON, or their text was cut
        return None
    wrong, right = _at(actual, pointer), _at(remark.correction.get("arguments"), pointer)
    return None if wrong is None or right is None else (_short(wrong), _short(right))


def _at(value: Any, pointer: str) -> str | None:
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, dict) or name not in value:
            return None
        value = value[name]
    return json.dumps(value, ensure_ascii=False)


def _examples(groups: Iterable[tuple[Group, list[Remark]]]) -> Iterable[Suggestion]:
    """For calls that were missing or wrong, and whose right arguments a reviewer wrote down."""
    for (label, _, _), remarks in groups:
        if label == Label.BAD_ARGS:
            continue
        for remark in remarks:
            tool, arguments = remark.correction.get("tool"), remark.correction.get("arguments")
            if tool and isinstance(arguments, dict) and remark.question.strip():
                yield Suggestion(
                    kind=Kind.EXAMPLE,
                    user=remark.question[:MAX_EXAMPLE],
                    assistant=f"(calls {tool} with {json.dumps(arguments, ensure_ascii=False)})"[:MAX_EXAMPLE],
                    rationale="A reviewer wrote down what the agent should have called.",
                    feedback_ids=(remark.feedback_id,),
                )
                break


def _attached(reading: Reading) -> Iterable[Suggestion]:
    """Skills that have a tool which reviewers missed and the style does not offer."""
    if not reading.text.skills:  # it offers all tools
        return
    offered = {tool for name in reading.text.skills for tool in reading.skills.get(name, ())}
    wanted = defaultdict(list)
    for remark in reading.remarks:
        tool = remark.correction.get("tool")
        if isinstance(tool, str) and tool not in offered:
            wanted[tool].append(remark)
    for tool, remarks in sorted(wanted.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        for name, tools in reading.skills.items():
            if tool in tools and name not in reading.text.skills:
                yield Suggestion(
                    kind=Kind.ATTACH_SKILL,
                    text=name,
                    rationale=f"Reviewers wanted {tool}, which this skill has and the style does not offer.",
                    feedback_ids=_ids(remarks),
                )
                break


def _detached(reading: Reading) -> Iterable[Suggestion]:
    """Skills whose tools were only ever the wrong choice; not the last one, for without any all tools are offered."""
    if len(reading.text.skills) < 2:
        return
    wrong = Counter(remark.tool_name for remark in reading.remarks if remark.label == Label.WRONG_TOOL)
    for name in reading.text.skills:
        tools: Mapping[str, int] = {tool: wrong[tool] for tool in reading.skills.get(name, ())}
        if sum(tools.values()) >= MIN_DETACH and not any(reading.good.get(tool) for tool in tools):
            remarks = [one for one in reading.remarks if one.label == Label.WRONG_TOOL and one.tool_name in tools]
            yield Suggestion(
                kind=Kind.DETACH_SKILL,
                text=name,
                rationale=f"Its tools were the wrong choice {len(remarks)} times, and never found right.",
                feedback_ids=_ids(remarks),
            )


def _summary(reading: Reading, groups: Sequence[tuple[Group, list[Remark]]], items: Sequence[Suggestion]) -> str:
    num = len(reading.remarks)
    told = f"{num} remark{'' if num == 1 else 's'} in {len(groups)} group{'' if len(groups) == 1 else 's'}"
    if not items:
        return f"{told}; none came up {MIN_REMARKS} times, so there is nothing to say yet."
    return f"{told}. Each line says what reviewers said at least {MIN_REMARKS} times."


def _ids(remarks: Iterable[Remark]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(remark.feedback_id for remark in remarks))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
