"""The rules of the stand-in model: pick a tool by its words, fill its arguments from the text, retell its result.

No language model: it lets the product be tried with no key and no download, and says so in what it answers.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.providers.wire import Completion

WORD = re.compile(r"[^\W_]+")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])")
QUOTED = re.compile(r"[\"“«]([^\"”»]+)[\"”»]")
REFERENCE = re.compile(r"\b[A-Z]{1,5}-?\d[\w-]*\b|(?<=#)\w+|\b\d{3,}\b")
NAME = re.compile(r"(?:\b(?:in|for|to|from|at|of|near|с|в|для)\s+)((?:[^\W\d_a-z][\w'’-]*)(?:\s+[^\W\d_a-z][\w'’-]*)*)")
FORMATS = {
    "email": re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    "uri": re.compile(r"https?://\S+"),
    "date": re.compile(r"\b\d{4}-\d\d-\d\d\b"),
    "date-time": re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?Z?)?"),
}
FREE_TEXT = {"query", "q", "text", "message", "question", "note", "content", "body", "prompt", "comment", "sql"}
COMMON_WORDS = (
    "a an and are as at be by can could do for from get give has have i in is it me my of on or please show tell that "
    "the this to us want was we what when where which will with would you your"
)
COMMON = frozenset(COMMON_WORDS.split())
LABEL = "[stand-in model]"
NAME_WEIGHT, ENOUGH = 3, 2


def answer(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> Completion:
    """The stand-in's next reply to a conversation in OpenAI form."""
    if results := list(_fresh_results(messages)):
        return Completion(f"{LABEL} {' '.join(results)}")
    text = last_user_text(messages)
    tool = pick(text, tools)
    if tool is None:
        known = ", ".join(_function(tool)["name"] for tool in tools) or "none"
        return Completion(f"{LABEL} A rule-based script answers here. No tool fits these words; on offer: {known}.")
    function = _function(tool)
    schema = function.get("parameters") or {}
    arguments = fill(schema, text)
    if missing := [name for name in schema.get("required", []) if name not in arguments]:
        return Completion(f"{LABEL} To use {function['name']} I need: {', '.join(missing)}.")
    return Completion(calls=((function["name"], json.dumps(arguments, ensure_ascii=False)),))


def pick(text: str, tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The tool whose name and description share most words with the text; None below a floor."""
    asked = _stems(text)

    def score(tool: Mapping[str, Any]) -> int:
        function = _function(tool)
        name = _stems(function["name"].replace("_", " "))
        described = _stems(str(function.get("description") or "")) - name
        return NAME_WEIGHT * len(asked & name) + len(asked & described)

    best = max(tools, key=score, default=None)
    return best if best is not None and score(best) >= ENOUGH else None


def fill(schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Arguments found in the text; what is not found is left out."""
    numbers = iter(NUMBER.findall(text))
    found = {}
    for name, rule in (schema.get("properties") or {}).items():
        value = _value(name, rule if isinstance(rule, dict) else {}, text, numbers)
        if value is None and name in schema.get("required", []) and name.lower() in FREE_TEXT:
            value = text
        if value is not None:
            found[name] = value
    return found


def example(schema: Mapping[str, Any], text: str = "") -> dict[str, Any]:
    """Arguments that keep to the schema, whatever the text: the scripted behaviours call with these."""
    found = fill(schema, text)
    for name in schema.get("required", []):
        rule = (schema.get("properties") or {}).get(name) or {}
        found.setdefault(name, (rule.get("enum") or [_blank(rule)])[0])
    return found


def last_user_text(messages: Sequence[Mapping[str, Any]]) -> str:
    for message in reversed(messages):
        if message.get("role") == "user":
            content = message.get("content") or ""
            if isinstance(content, str):
                return content
            return " ".join(part.get("text", "") for part in content if isinstance(part, dict))
    return ""


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    return tool["function"]


def _stems(text: str) -> set[str]:
    words = {word.lower() for word in WORD.findall(text)} - COMMON
    return {re.sub(r"(ing|ed|es|s)$", "", word) if len(word) > 4 else word for word in words}


def _value(name: str, rule: Mapping[str, Any], text: str, numbers: Iterator[str]) -> Any:
    lowered = text.lower()
    if "enum" in rule:
        return next((value for value in rule["enum"] if str(value).lower() in lowered), None)
    kinds = rule.get("type", "string")
    kind = next((k for k in kinds if k != "null"), "string") if isinstance(kinds, list) else kinds
    if kind == "integer":
        return next((int(number) for number in numbers if "." not in number), None)
    if kind == "number":
        return next((float(number) if "." in number else int(number) for number in numbers), None)
    if kind == "array":
        return NAME.findall(text) or None
    return _words(name.lower(), rule, text) if kind == "string" else None


def _words(name: str, rule: Mapping[str, Any], text: str) -> str | None:
    form = rule.get("format") or next((form for form in ("email", "date") if form in name), None)
    if form in FORMATS:
        return _first(FORMATS[form], text)
    if name in FREE_TEXT:
        return _first(QUOTED, text)
    if re.search(r"(^|_)(id|no|number|ref|reference|code|key)$", name):
        return _first(REFERENCE, text)
    return _first(QUOTED, text) or _first(NAME, text)


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[match.lastindex or 0] if match else None


def _blank(rule: Mapping[str, Any]) -> Any:
    kind = rule.get("type", "string")
    return {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}.get(kind, "Paris")


def _fresh_results(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Sentences on the tool results that came after the last thing the user or the model said."""
    names: dict[str, str] = {}
    start = len(messages)
    while start and messages[start - 1].get("role") == "tool":
        start -= 1
    if start and start < len(messages):
        for call in messages[start - 1].get("tool_calls") or []:
            names[call.get("id", "")] = (call.get("function") or {}).get("name", "")
    for message in messages[start:]:
        name, content = names.get(message.get("tool_call_id", "")) or "A tool", str(message.get("content") or "")
        failed = content.startswith(("Error:", '{"error"'))
        yield f"{name} {'failed' if failed else 'says'}: {content[:300]}"
