"""A reason as one plain sentence. It quotes what a model wrote: pages must show it as such."""

import json
from collections.abc import Callable
from typing import Any, Final

from engine.text import well_formed
from quality.cases.sample import Reason
from quality.cases.values import jsonable, steps_of

MAX_QUOTED = 120  # characters

CODES: Final[dict[str, str]] = {
    "wrong_argument": "An argument of the right tool has another value than expected.",
    "missing_argument": "An argument that is expected was not given.",
    "extra_argument": "An argument was given that is not expected.",
    "wrong_tool": "Another tool was called than the one expected.",
    "missing_call": "A call that is expected was not made.",
    "unexpected_call": "A call was made that is not expected.",
    "called_too_often": "A tool was called more often than the step allows.",
    "condition_not_met": "A step was called although its condition is not met.",
    "not_same_cycle": "Calls that belong into one reply were made in several.",
    "wrong_order": "The right calls were made in another order.",
    "no_call": "No tool was called at all.",
    "invalid_call": "A call could not have run: not readable, an unknown tool, or arguments against the schema.",
    "forbidden_call": "A call was made that is forbidden.",
    "too_many_calls": "More calls were made than the limit allows.",
    "too_many_cycles": "More model replies were needed than the limit allows.",
    "not_retried": "A tool failed and was not called again.",
    "called_after_error": "A call followed after a tool had failed.",
    "did_not_ask": "A tool failed and the reply does not ask the user anything.",
    "no_reply": "There is no final reply to check.",
    "reply_lacks": "The reply does not have what it must have.",
    "reply_has": "The reply has what it must not have.",
    "reply_judged_wrong": "The judging model found that the reply does not meet the rubric.",
    "not_judged": "A judging model is needed, and gave no answer.",
    "check_timeout": "A check could not be finished: the text is too long, or a pattern takes too much time.",
    "check_undecided": "A check could not tell: the text is too short for it.",
    "no_now": "A date is told from the case's now, and the case has none.",
    "bad_expectation": "The expectation itself cannot be used.",
    "sample_error": "The sample ended in an error that is not the model's.",
    "diverged": "A call had no recorded result, so the sample ended before the expectation was decided.",
    "running": "The sample goes on.",
}


def explain(reason: Reason) -> str:
    """What happened and what was expected, in one sentence."""
    tell = _SENTENCES.get(reason.code)
    try:
        text = tell(reason) if tell else CODES.get(reason.code, reason.code)
    except (KeyError, TypeError, AttributeError, ValueError):  # a stored reason, cut short or of another version
        text = CODES[reason.code]
    return well_formed(text)


def quote(value: Any) -> str:
    """A value as JSON, cut where it is long."""
    value = jsonable(value)
    text = value if isinstance(value, str) and _is_plain(value) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…"


def _is_plain(text: str) -> bool:
    """Reads as one word, so that quotation marks would only be noise; a number as text keeps them off as well."""
    return text != "" and text.isprintable() and not any(char.isspace() or char in "\"'" for char in text)


def describe(expected: Any) -> str:
    """A matcher in words: what comes after "expected"."""
    if not isinstance(expected, dict):
        return quote(expected)
    return " and ".join(_part(name, value, expected) for name, value in expected.items() if name != "strict_type")


def _part(name: str, value: Any, whole: dict[str, Any]) -> str:
    tell = _PHRASES.get(name)
    text = tell(value) if tell else "anything"
    return f"exactly {text}" if name == "equal" and whole.get("strict_type") else text


def _list(values: list[Any]) -> str:
    shown = ", ".join(describe(value) for value in values[:8])
    return f"{shown}, …" if len(values) > 8 else shown


def _near(value: dict[str, Any]) -> str:
    bounds = [quote(value["abs"])] if value.get("abs") else []
    bounds += [f"{quote(value['rel'])} times that"] if value.get("rel") else []
    return f"{quote(value['of'])}{f' within {" or ".join(bounds)}' if bounds else ''}"


def _date(value: dict[str, Any]) -> str:
    within = f" within {value['tolerance']}" if "tolerance" in value else ""
    return f"the date {quote(value['of'])}{within}"


def _range(value: Any) -> str:
    if not isinstance(value, dict):
        return quote(value)
    if "min" in value and "max" in value:
        return f"{quote(value['min'])} to {quote(value['max'])}"
    return f"at least {quote(value['min'])}" if "min" in value else f"at most {quote(value['max'])}"


def place_of(path: str | None) -> str:
    """A pointer as people read it: `/items/0/sku` is `items[0].sku`."""
    text = ""
    for step in steps_of(path or ""):
        text += f"[{step}]" if step.isdigit() else f".{step}" if text else step
    return text


_PHRASES: Final[dict[str, Callable[[Any], str]]] = {
    "equal": quote,
    "gt": lambda value: f"above {quote(value)}",
    "gte": lambda value: f"at least {quote(value)}",
    "lt": lambda value: f"below {quote(value)}",
    "lte": lambda value: f"at most {quote(value)}",
    "one_of": lambda value: f"one of {_list(value)}",
    "number": _near,
    "text": lambda value: f"{quote(value['of'])}{' apart from folded differences' if len(value) > 1 else ''}",
    "regex": lambda value: f"text that matches {quote(value['pattern'] if isinstance(value, dict) else value)}",
    "date": lambda value: f"the date {quote(value)}" if isinstance(value, str) else _date(value),
    "set": lambda value: f"these in any order: {_list(value)}",
    "multiset": lambda value: f"exactly these in any order: {_list(value)}",
    "each": lambda value: f"each element {describe(value)}",
    "has": lambda value: f"an element that is {describe(value)}",
    "length": lambda value: f"a length of {_range(value)}",
    "object": lambda value: f"an object with {_fields(value['fields'])}",
    "judge": lambda value: f"what a judging model accepts by: {quote(value['rubric'])}",
    "schema": lambda value: "a value that is valid against the schema",
    "phone": quote,
    "email": quote,
    "url": quote,
    "not": lambda value: f"anything but {describe(value)}",
    "all": lambda value: " and ".join(describe(item) for item in value),
    "present": lambda value: "any value",
    "absent": lambda value: "nothing",
}


def _fields(fields: dict[str, Any]) -> str:
    return ", ".join(f"{name} {describe(value)}" for name, value in fields.items())


def _tool(reason: Reason) -> str:
    return reason.tool or "a tool"


def _wrong_argument(reason: Reason) -> str:
    where, expected = place_of(reason.path), describe(reason.expected)
    return f"{_tool(reason)} was called with {where} {quote(reason.got)}; expected {expected}."


def _missing_argument(reason: Reason) -> str:
    return f"{_tool(reason)} was called without {place_of(reason.path)}; expected {describe(reason.expected)}."


def _extra_argument(reason: Reason) -> str:
    where = place_of(reason.path)
    return f"{_tool(reason)} was called with {where} {quote(reason.got)}; no {where} is expected."


def _missing_call(reason: Reason) -> str:
    if isinstance(reason.got, dict):
        return f"{_tool(reason)} was called {reason.got['calls']} times; at least {reason.got['needed']} are needed."
    return f"{_tool(reason)} was not called."


def _unexpected_call(reason: Reason) -> str:
    if not isinstance(reason.got, dict) or not reason.got:
        return f"{_tool(reason)} was called; that call is not expected."
    return f"{_tool(reason)} was called with {_arguments(reason.got)}; that call is not expected."


def _arguments(arguments: dict[str, Any]) -> str:
    shown = ", ".join(f"{name} {quote(value)}" for name, value in list(arguments.items())[:6])
    return f"{shown}, …" if len(arguments) > 6 else shown


def _invalid_call(reason: Reason) -> str:
    where = f" at {place_of(reason.path)}" if reason.path else ""
    return f"{_tool(reason)} was called in a way that cannot run{where}: {reason.got}."


def _forbidden_call(reason: Reason) -> str:
    with_arguments = f" with {_arguments(reason.got)}" if isinstance(reason.got, dict) and reason.got else ""
    return f"{_tool(reason)} was called{with_arguments}, which is forbidden."


def _condition(reason: Reason) -> str:
    when = reason.expected if isinstance(reason.expected, dict) else {}
    rest = {name: value for name, value in when.items() if name not in ("result", "path")}
    where = place_of(when.get("path")) or "the result"
    condition = f"{where} of step {when.get('result')} is {describe(rest)}"
    return f"{_tool(reason)} was called, which is expected only if {condition}."


def _reply(reason: Reason, verb: str) -> str:
    return f"The reply {verb} {describe_check(reason.expected)}."


def describe_check(expected: Any) -> str:
    """A check of the reply in words: what comes after "the reply has"."""
    if not isinstance(expected, dict) or not expected:
        return "what is expected"
    name, value = next(iter(expected.items()))
    if name == "uses_result":
        source = value.get("tool") or f"step {value.get('result')}"
        return f"the value at {value['path'] or 'the top'} of what {source} returned"
    tell = _CHECKS.get(name)
    return tell(value) if tell else describe(expected)


_CHECKS: Final[dict[str, Callable[[Any], str]]] = {
    "contains": lambda value: json.dumps(value, ensure_ascii=False),
    "language": lambda value: f"language {value}",
    "number": lambda value: f"the number {describe({'number': value})}",
    "regex": lambda value: f"text that matches {quote(value)}",
}


def _bad_expectation(reason: Reason) -> str:
    where = f" (at {reason.path})" if reason.path else ""
    return f"The expectation cannot be used: {reason.got}{where}."


def _called_too_often(reason: Reason) -> str:
    return f"{_tool(reason)} was called {reason.got} times; at most {reason.expected} are allowed."


def _not_same_cycle(reason: Reason) -> str:
    return f"{_tool(reason)} was called in another reply than the calls that it belongs with."


def _called_after_error(reason: Reason) -> str:
    return f"{_tool(reason)} was called after {reason.got} had failed; nothing more should be."


def _undecided(reason: Reason) -> str:
    where = f"{_tool(reason)}, {place_of(reason.path)}: " if reason.tool else ""
    return f"{where}{CODES[reason.code]}"


_SENTENCES: Final[dict[str, Callable[[Reason], str]]] = {
    "wrong_argument": _wrong_argument,
    "missing_argument": _missing_argument,
    "extra_argument": _extra_argument,
    "wrong_tool": lambda reason: f"{quote(reason.got)} was called; expected {reason.expected}.",
    "missing_call": _missing_call,
    "unexpected_call": _unexpected_call,
    "called_too_often": _called_too_often,
    "condition_not_met": _condition,
    "not_same_cycle": _not_same_cycle,
    "wrong_order": lambda reason: f"The order was {', '.join(reason.got)}; expected {', '.join(reason.expected)}.",
    "invalid_call": _invalid_call,
    "forbidden_call": _forbidden_call,
    "too_many_calls": lambda reason: f"{reason.got} calls were made; at most {reason.expected} are allowed.",
    "too_many_cycles": lambda reason: f"The model replied {reason.got} times; at most {reason.expected} are allowed.",
    "not_retried": lambda reason: f"{_tool(reason)} failed and was not called again.",
    "called_after_error": _called_after_error,
    "did_not_ask": lambda reason: f"{_tool(reason)} failed and the reply does not ask the user anything.",
    "reply_lacks": lambda reason: _reply(reason, "lacks"),
    "reply_has": lambda reason: _reply(reason, "has"),
    "not_judged": _undecided,
    "check_timeout": _undecided,
    "no_now": _undecided,
    "bad_expectation": _bad_expectation,
    "sample_error": lambda reason: f"The sample could not be finished: {reason.got}.",
}
