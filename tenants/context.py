"""What belongs to the request being served and is not handed down by hand: its id, for logs and the audit log."""

from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("request_id", default="-")
