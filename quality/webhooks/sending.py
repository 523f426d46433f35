"""Webhooks as they leave: signed by the Standard Webhooks specification, through the outbound guard, no redirects.

`standardwebhooks`, the library of the specification's authors, makes the signature: receivers verify it with the same
library, or its siblings in other languages.
"""

import asyncio
import base64
import datetime as dt
import secrets
import time
import uuid
from dataclasses import dataclass

from django.utils import timezone
from standardwebhooks import Webhook

from engine import net
from tenants import outbound

SECRET_BYTES = 32
TIME_LIMIT_S = 15.0
GONE = 410


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one try. `status` None: no answer came. `error` is empty where it was taken."""

    status: int | None = None
    error: str = ""
    is_final: bool = False

    @property
    def was_taken(self) -> bool:
        return not self.error


def new_secret() -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}"


def shown(url: str, *, in_full: bool) -> str:
    """An address as people see it. Its path may be a secret, which is for those who set it: others see its host."""
    return url if in_full or not url else f"{outbound.origin(url)}/…"


def headers_of(secret: str, message_id: uuid.UUID, body: str, moment: dt.datetime) -> net.Headers:
    """The headers that prove who sent `body`. `moment` is aware."""
    name = f"msg_{message_id.hex}"
    in_utc = moment.astimezone(dt.UTC)
    return (
        ("Content-Type", "application/json"),
        ("webhook-id", name),
        ("webhook-timestamp", str(int(in_utc.timestamp()))),
        ("webhook-signature", Webhook(secret).sign(name, in_utc, body)),
    )


def post(guard: net.Guard, url: str, *, secret: str, message_id: uuid.UUID, body: str) -> Answer:
    """Send it once. Whatever goes wrong is in the answer; addresses and bodies of the other side are not."""
    headers = headers_of(secret, message_id, body, timezone.now())
    try:
        request = net.Request("POST", net.parse_url(url), headers, body.encode())
        response = asyncio.run(guard.fetch(request, deadline=time.monotonic() + TIME_LIMIT_S))
    except net.Refused as error:
        return Answer(error=f"{outbound.reason(error)} ({error.code})")
    return _judged(response.status)


def _judged(status: int) -> Answer:
    if 200 <= status < 300:
        return Answer(status)
    if status == GONE:
        return Answer(status, "The receiver says that it is gone: nothing more is sent to it.", is_final=True)
    if 300 <= status < 400:
        return Answer(status, "The answer is a redirect, which is not followed. Enter the address it leads to.")
    return Answer(status, f"The receiver answered {status}.")
