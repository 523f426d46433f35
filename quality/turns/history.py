"""Earlier messages as a caller gives them along. What a model server could not read is refused with the message at
fault, before there is a turn: else the turn would fail, and say nothing that helps."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_FAULTS = 10


def check_history(messages: Sequence[Mapping[str, Any]]) -> None:
    """Raises ValidationError for messages that are not in OpenAI form."""
    faults = [
        ValidationError(_("Message %(number)s: %(why)s") % {"number": number, "why": reason}, "invalid_message")
        for number, message in enumerate(messages, start=1)
        for reason in _faults(message)
    ]
    if faults:
        raise ValidationError({"history": faults[:MAX_FAULTS]})


def _faults(message: Mapping[str, Any]) -> Iterator[str]:
    role, content, calls = (message.get(name) for name in ("role", "content", "tool_calls"))
    if role not in ROLES:
        yield f"`role` is one of {', '.join(ROLES)}."
    is_parts = isinstance(content, list) and all(isinstance(part, Mapping) for part in content)
    if content is not None and not isinstance(content, str) and not is_parts:
        yield "`content` is text, null or an array of parts."
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield "`tool_call_id` says which call it answers."
    if calls is not None and not (isinstance(calls, list) and all(_is_call(call) for call in calls)):
        yield "`tool_calls` is an array of calls, each with `id` and `function`, which has `name` and `arguments`."


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, Mapping) else None
    return isinstance(function, Mapping) and isinstance(call.get("id"), str) and isinstance(function.get("name"), str)
