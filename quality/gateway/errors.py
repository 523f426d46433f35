"""Faults in the shape that clients of OpenAI's API read: `{"error": {"message", "type", "param", "code"}}`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from quality.ingest.jsontext import storable

INVALID = "invalid_request_error"
AUTHENTICATION = "authentication_error"
PERMISSION = "permission_error"
RATE = "rate_limit_error"
UPSTREAM = "upstream_error"
OURS = "server_error"


class GatewayError(Exception):
    """A request that is answered by us and not by the model's server."""

    def __init__(
        self,
        status: int,
        kind: str,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    @property
    def value(self) -> dict[str, Any]:
        message = storable(str(self))
        return {"error": {"message": message, "type": self.kind, "param": self.param, "code": self.code}}

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(self.value)

    @property
    def event(self) -> bytes:
        """As an event of a stream that has begun; a line that was left open is ended first."""
        return b"\n\ndata: " + self.body + b"\n\n"
