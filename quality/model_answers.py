"""JSON that a model was asked for, as it comes back in text. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from engine.strict_json import JsonError, read_json


class InvalidAnswer(ValueError):
    """The model's answer is not what was asked for; the message says where and why."""


def json_in(text: str) -> Any:
    """The JSON object of an answer, with or without a fence or words around it; raises InvalidAnswer."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        raise InvalidAnswer("There is no JSON object in it.")
    try:
        return read_json(text[begin : end + 1])
    except JsonError as error:
        raise InvalidAnswer(f"It is not JSON: {error}.") from error


def messages_again(messages: Sequence[Mapping[str, str]], answer: str, reason: str) -> list[dict[str, str]]:
    """The same question, after an answer that could not be read."""
    return [
        *map(dict, messages),
        {"role": "assistant", "content": answer},
        {"role": "user", "content": f"This cannot be used: {reason} Answer again with the JSON object alone."},
    ]
