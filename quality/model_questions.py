"""Asking a model for JSON: by the shape that the server is held to, and once more if the answer cannot be used.

`seat_of` needs an open tenant scope; what it gives is good outside of it, for none is open while a model thinks.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

from engine.net import Guard
from engine.providers.openai import OpenAIModel
from engine.providers.protocol import Answer, Exchange, ModelError, Request, Usage
from quality.model_answers import InvalidAnswer, messages_again
from tenants import endpoints, outbound
from tenants.endpoints import ChosenModel
from tenants.envelope import SecretInvalid
from tenants.models import ModelEndpoint


class Unavailable(Exception):
    """The model cannot be asked; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Seat:
    """All that is needed to ask a model."""

    chosen: ChosenModel
    guard: Guard
    key: str | None


@dataclass(slots=True)
class Talk:
    """What was said to the model and back, kept whatever came of it."""

    exchanges: list[Exchange] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)


def seat_of(label: str, *, run: str) -> Seat:
    """The seat of an enabled model; `run` is who uses its key. Raises Unavailable."""
    endpoint = ModelEndpoint.objects.filter(label=label, is_enabled=True).first()
    if endpoint is None:
        raise Unavailable(f"The model {label} is gone or switched off. Ask another one.")
    try:
        key = endpoints.read_key(endpoint.pk, run=run)
    except SecretInvalid as error:
        raise Unavailable(f"The key of {label} cannot be read. Set it again on its page.") from error
    return Seat(endpoints.chosen(endpoint), outbound.guard(), key)


async def ask[T](
    model: OpenAIModel,
    messages: Sequence[Mapping[str, str]],
    talk: Talk,
    *,
    response_format: Mapping[str, Any],
    read: Callable[[str], T],
    deadline: float,
) -> T:
    """What `read` makes of the answer; it raises InvalidAnswer where it cannot use it, and then the model is told why
    and asked once more. `deadline` is monotonic, for both. Raises ModelError, and InvalidAnswer after the second."""
    model = replace(model, timeout_s=deadline - time.monotonic())  # nobody waits at a screen
    shaped = replace(model, parameters={**model.parameters, "response_format": response_format})
    try:
        answer = await _said(shaped, messages, talk, deadline)
    except ModelError as error:
        if error.status != HTTPStatus.BAD_REQUEST:
            raise
        shaped = model  # the server does not know `response_format`
        answer = await _said(shaped, messages, talk, deadline)
    try:
        return _read(answer, shaped, read)
    except InvalidAnswer as invalid:
        again = messages_again(messages, _text(answer, shaped), str(invalid))
    return _read(await _said(shaped, again, talk, deadline), shaped, read)


async def _said(model: OpenAIModel, messages: Sequence[Mapping[str, str]], talk: Talk, deadline: float) -> Answer:
    request = Request(messages, [], deadline)
    try:
        answer = await model.answer(request)
    finally:
        talk.exchanges += request.exchanges
    talk.usage += answer.usage
    return answer


def _read[T](answer: Answer, model: OpenAIModel, read: Callable[[str], T]) -> T:
    try:
        return read(_text(answer, model))
    except InvalidAnswer as error:
        if answer.finish_reason != "length":
            raise
        number = answer.usage.completion_tokens
        told = f"It was cut off after {number} tokens: it has to be shorter, or max_tokens of the model higher."
        raise InvalidAnswer(told) from error


def _text(answer: Answer, model: OpenAIModel) -> str:
    """What the model said, without any key that a server echoed."""
    return model.redactor.text(answer.reply.text)
