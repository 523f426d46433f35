"""What the loop wants of a chat model, and what it gets.

    ChatModel.answer(request, listen) -> Answer      or raises ModelError

`listen` hears the pieces of a streamed answer as they come. Every exchange with the server, also a failed or cut one,
is put into `request.exchanges`, so that the record keeps the raw reply whatever became of it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from engine.errors import ProviderError
from engine.messages import Reply

CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Visible text: no markup of a call, nothing that will be taken back."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A part of a call that is being written. `index` is its position; `id` and `name` come with its first piece, and
    once more if the request is made again."""

    index: int
    id: str | None
    name: str | None
    arguments: str


type Piece = TextPiece | CallPiece
type Listen = Callable[[Piece], Awaitable[None]]


async def unheard(piece: Piece) -> None:
    """For those who want the whole answer only."""


@dataclass(slots=True)
class Exchange:
    """One HTTP request to a model server and what came back, `body` as received (secrets replaced by their names).

    `status` is None where no answer began; `fault` says why the exchange failed. `changed` holds the parameters that
    differ from those configured. `started_at` is UTC.
    """

    streamed: bool
    changed: Mapping[str, Any] = field(default_factory=dict)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    duration_ms: int = 0
    status: int | None = None
    body: str = ""
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model: messages and tools in OpenAI form, and a deadline as `time.monotonic()` reads it.

    `withheld` are tools that are not offered this time; a model that calls one all the same is not shown doing so.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    deadline: float
    withheld: Sequence[Mapping[str, Any]] = ()
    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def known(self) -> list[Mapping[str, Any]]:
        """All tools by whose names and schemas an answer is read."""
        return [*self.tools, *self.withheld]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or several answers; `estimated` where a server counted none (four characters a token)."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.estimated or other.estimated,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """`warnings` are those of the exchange; the reply has its own. `model` is the name that the server gave."""

    reply: Reply
    finish_reason: str | None
    usage: Usage
    num_bytes: int
    model: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Neither a call, usable or broken, nor a word."""
        return not (self.reply.calls or self.reply.broken or self.reply.text.strip())

    def completed(self, num_sent: int, num_received: int, warnings: tuple[str, ...]) -> "Answer":
        """With what the exchange knows: sizes in bytes, its warnings, and tokens guessed if the server counted none."""
        usage = self.usage
        if not usage.total_tokens:
            written = [self.reply.text, self.reply.reasoning, *(call.raw_arguments for call in self.reply.calls)]
            usage = Usage(num_sent // CHARS_PER_TOKEN, sum(map(len, written)) // CHARS_PER_TOKEN, estimated=True)
        return replace(self, usage=usage, num_bytes=num_received, warnings=self.warnings + warnings)


class ChatModel(Protocol):
    @property
    def name(self) -> str: ...

    async def answer(self, request: Request, listen: Listen = unheard) -> Answer:
        """Raises `ModelError`. Cancelling closes the connection."""


class ModelError(ProviderError):
    """No usable answer came. `code` is one of a closed set:

    `connect_failed`, `timed_out`, `cut` (the connection broke), `http_error` (`status` tells), `server_error` (an
    error object in place of an answer), `not_json`, `bad_reply` (JSON, but no completion), `no_choices`, `too_large`,
    or a code of the outbound guard. `is_retried`: the server may do better when asked again.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        is_retried: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.is_retried = is_retried
        self.retry_after_s = retry_after_s
