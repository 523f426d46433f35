"""Chat models behind OpenAI's chat completions protocol, and behind servers that only nearly speak it.

Streaming first. An answer that comes out empty although tools were offered is asked for once more without streaming:
servers whose tool parser does not match the model swallow the call, or cannot stream one.
"""

import asyncio
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import httpx

from engine.errors import OutboundError
from engine.providers.completion import Streamed, read_whole
from engine.providers.protocol import Answer, Exchange, Listen, ModelError, Piece, Request, TextPiece, unheard
from engine.providers.retry import RetryPolicy, is_retried, parse_retry_after
from engine.redaction import Redactor

EXCERPT_CHARS = 300
LINGER_S = 2.0  # after the finish reason: the usage and [DONE] may follow, and some servers send neither
DRAIN_S = 0.2  # after [DONE]: a connection whose body ends can be used again
UNREACHED = frozenset({"connect_failed", "dns_failed", "protocol_error"})
# A server that could not parse its own model's output says so. Asked the same way at a low temperature it fails again.
UNPARSED = re.compile(r"does not match the expected|failed to parse", re.IGNORECASE)
WARMER = 0.5


@dataclass(frozen=True)
class OpenAIModel:
    """`base_url` ends before `/chat/completions`. `parameters` go into each request as they are (`temperature` …).

    `client` comes from the outbound guard. `timeout_s` bounds one request from connect to its last byte, inside the
    deadline of the turn; `max_bytes` bounds its answer. `secrets`, and the key, are taken out of all that is kept.
    """

    base_url: str
    name: str
    client: httpx.AsyncClient
    key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 120.0
    connect_timeout_s: float = 10.0
    max_bytes: int = 8 * 1024 * 1024
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    async def answer(self, request: Request, listen: Listen = unheard) -> Answer:
        dialogue = Dialogue(self, request, listen)
        answer = await dialogue.ask(streamed=True)
        if answer.is_empty and request.tools:
            dialogue.warnings.append("asked_again_without_streaming")
            answer = await dialogue.ask(streamed=False)
            if answer.reply.text:
                await listen(TextPiece(answer.reply.text))
        return answer

    @property
    def url(self) -> str:
        return f"{self.base_url.rstrip('/')}/chat/completions"

    @cached_property
    def redactor(self) -> Redactor:
        return Redactor({**self.secrets, "MODEL_KEY": self.key or ""})

    def body(self, request: Request, *, streamed: bool, changed: Mapping[str, Any]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.name, "messages": list(request.messages), **self.parameters}
        if request.tools:
            body |= {"tools": list(request.tools), "tool_choice": "auto"}
        body |= {**changed, "stream": streamed}
        if streamed:
            body["stream_options"] = {"include_usage": True}
        return body

    def sent_headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **self.headers}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        return headers


class Dialogue:
    """The requests that one answer takes: tries share one count, and text that was shown is never shown twice."""

    def __init__(self, model: OpenAIModel, request: Request, listen: Listen) -> None:
        self.model, self.request = model, request
        self.warnings: list[str] = []
        self._listen = listen
        self._spoke = False
        self._failed = 0
        self._changed: dict[str, Any] = {}

    async def ask(self, *, streamed: bool) -> Answer:
        while True:
            try:
                return await self._exchange(streamed=streamed)
            except ModelError as error:
                self._failed += 1
                left_s = self.request.deadline - time.monotonic()
                delay_s = self.model.retry.delay_s(self._failed, error.retry_after_s, left_s)
                if self._spoke or not error.is_retried or delay_s is None:
                    raise
                self.warnings.append(f"asked_again_after_{error.status or error.code}")
                self._change_after(error)
                await asyncio.sleep(delay_s)

    def _change_after(self, error: ModelError) -> None:
        """Asks differently after output that the server could not parse: warmer; then for the bare text, which we read
        ourselves ("none" leaves the tools in the prompt of such servers, and their parser out of the way)."""
        if not self.request.tools or not UNPARSED.search(str(error)):
            return
        temperature = self.model.parameters.get("temperature")
        is_low = isinstance(temperature, int | float) and temperature < WARMER
        if is_low and not self._changed:
            self._changed = {"temperature": WARMER}
        else:
            self._changed = {**self._changed, "tool_choice": "none"}

    async def _heard(self, piece: Piece) -> None:
        self._spoke = self._spoke or isinstance(piece, TextPiece)
        await self._listen(piece)

    async def _exchange(self, *, streamed: bool) -> Answer:
        """One request, put on record however it ends."""
        exchange = Exchange(streamed=streamed, changed=dict(self._changed))
        received: list[bytes] = []
        started = time.monotonic()
        try:
            left_s = self.request.deadline - started
            async with asyncio.timeout(min(self.model.timeout_s, left_s)):
                return await self._converse(exchange, received)
        except TimeoutError as error:
            exchange.fault = "timed_out"
            raise self._timed_out(time.monotonic() - started) from error
        except ModelError as error:
            exchange.fault = error.code
            raise
        except BaseException as error:
            exchange.fault = "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__
            raise
        finally:
            exchange.duration_ms = round((time.monotonic() - started) * 1000)
            exchange.body = self.model.redactor.text(b"".join(received).decode("utf-8", "replace"))
            self.request.exchanges.append(exchange)

    async def _converse(self, exchange: Exchange, received: list[bytes]) -> Answer:
        model = self.model
        body = model.body(self.request, streamed=exchange.streamed, changed=exchange.changed)
        timeout = httpx.Timeout(model.timeout_s, connect=model.connect_timeout_s)
        outgoing = model.client.build_request(
            "POST", model.url, content=encoded(body), headers=model.sent_headers(), timeout=timeout
        )
        outgoing.extensions["deadline"] = self.request.deadline
        try:
            response = await model.client.send(outgoing, stream=True)
        except (OutboundError, httpx.TransportError) as error:
            raise self._fault(error, has_begun=False) from error
        exchange.status = response.status_code
        try:
            return await self._read(response, exchange, received, len(outgoing.content))
        finally:
            await response.aclose()

    async def _read(self, response: httpx.Response, exchange: Exchange, received: list[bytes], num_sent: int) -> Answer:
        is_ok = response.status_code == httpx.codes.OK
        stream = Streamed(self.request.known, self._heard) if exchange.streamed and is_ok else None
        fault = await self._receive(response, received, stream)
        text = b"".join(received).decode("utf-8-sig", "replace").strip()
        if not is_ok:
            raise self._http_error(response, text)
        if fault and not (stream and stream.is_finished):  # after the finish reason nothing of the answer is missing
            raise fault
        # A server may answer a request for a stream with one object, or a proxy with a page.
        is_whole = stream is None or (not stream.num_events and text.startswith(("{", "<")))
        try:
            answer = read_whole(text, self.request.known) if stream is None or is_whole else await stream.finish()
        except ModelError as error:
            raise self._located(error) from error
        return answer.completed(num_sent, sum(map(len, received)), tuple(self.warnings))

    async def _receive(
        self, response: httpx.Response, received: list[bytes], stream: Streamed | None
    ) -> ModelError | None:
        """Reads to the end of the body; a fault that ended it too early is returned, one in what it says is raised."""
        num_bytes = 0
        try:
            async with asyncio.timeout(None) as patience:
                async for chunk in response.aiter_raw():
                    num_bytes += len(chunk)
                    received.append(chunk)
                    if num_bytes > self.model.max_bytes:
                        raise ModelError("too_large", f"sent more than {self.model.max_bytes:,} bytes in one answer.")
                    if stream is not None:
                        await stream.feed(chunk)
                        if stream.is_finished:
                            rest_s = DRAIN_S if stream.is_done else LINGER_S
                            patience.reschedule(min(patience.when() or math.inf, patience_end(rest_s)))
        except ModelError as error:
            raise self._located(error) from error
        except TimeoutError:
            if stream is None or not stream.is_finished:
                raise
            return None  # patience ran out, with an answer that is complete
        except (OutboundError, httpx.TransportError) as error:
            return self._fault(error, has_begun=True)
        return None

    def _located(self, error: ModelError) -> ModelError:
        text = self.model.redactor.text(f"{self.model.url}: {error}")
        return ModelError(
            error.code, text, status=error.status, is_retried=error.is_retried, retry_after_s=error.retry_after_s
        )

    def _timed_out(self, seconds: float) -> ModelError:
        text = (
            f"{self.model.url} did not finish its answer within {seconds:.3g} s. Give it more time "
            "(`timeout_s`; a service's MODEL_TIMEOUT_S), or check that it is not overloaded."
        )
        return ModelError("timed_out", text)

    def _fault(self, error: OutboundError | httpx.TransportError, *, has_begun: bool) -> ModelError:
        """What the way to the server did. Where no byte of an answer came, asking again repeats nothing: the server
        was not reached, or had just closed a connection that was kept alive."""
        code = error.code if isinstance(error, OutboundError) else type(error).__name__
        if code in ("timed_out", "ReadTimeout", "WriteTimeout"):
            return self._timed_out(self.model.timeout_s)
        if has_begun and code != "too_large":
            text = f"{self.model.url} broke off the connection in the middle of an answer. Look into the server's log."
            return ModelError("cut", text)
        if code in UNREACHED or isinstance(error, httpx.TransportError):
            text = f"{self.model.url} cannot be reached ({code}). Check the address, and that the server runs."
            return ModelError("connect_failed", text, is_retried=True)
        return ModelError(code, f"{self.model.url} is not allowed or not possible: {error}.")

    def _http_error(self, response: httpx.Response, text: str) -> ModelError:
        status = response.status_code
        excerpt = self.model.redactor.text(error_message(text)[:EXCERPT_CHARS])
        return ModelError(
            "http_error",
            f"{self.model.url} answered with status {status}: {excerpt}",
            status=status,
            is_retried=is_retried(status),
            retry_after_s=parse_retry_after(response.headers.get("retry-after"), datetime.now(UTC)),
        )


def encoded(body: Mapping[str, Any]) -> bytes:
    """JSON in UTF-8. Lone surrogates, which servers refuse, become U+FFFD."""
    text = json.dumps(body, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def error_message(text: str) -> str:
    """The words of an error body, whichever of the usual shapes it has."""
    try:
        error = json.loads(text)
    except (ValueError, RecursionError):
        return " ".join(text.split())
    while isinstance(error, dict) and (inner := error.get("error") or error.get("message") or error.get("detail")):
        error = inner
    return error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)


def patience_end(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds
