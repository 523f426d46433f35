"""A client of `/ws`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.service import Service
from tests.turns.conftest import PATIENCE_S


class Line:
    """An open WebSocket. `seen` holds all that was told, oldest first."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.seen: list[dict[str, Any]] = []

    def send(self, **message: Any) -> None:
        self.connection.send(json.dumps(message))

    def say(
        self, text: str = "Weather in Rome?", script: str = "one_call,plain_text", tools: str = "safe", **more: Any
    ):
        """Send a message, give the turn that it began."""
        self.send(type="user_text", text=text, model=script, styleId=tools, **more)
        return self.until(type="turn_state", state="queued")["turnId"]

    def next(self) -> dict[str, Any]:
        told = json.loads(self.connection.recv(PATIENCE_S))
        self.seen.append(told)
        return told

    def until(self, **wanted: Any) -> dict[str, Any]:
        """The next thing told that has these members."""
        while True:
            told = self.next()
            if wanted.items() <= told.items():
                return told

    def end(self, turn_id: int) -> list[dict[str, Any]]:
        """All that was told of a turn, once it has ended."""
        if not any(told["type"] == "assistant_end" and told["turnId"] == turn_id for told in self.seen):
            self.until(type="assistant_end", turnId=turn_id)
        return [told for told in self.seen if told.get("turnId") == turn_id]

    def closed(self) -> int:
        """With which code the server closes, whatever it tells before."""
        with suppress(ConnectionClosed):
            while self.connection.recv(40):
                pass
        code = self.connection.protocol.close_code
        assert code is not None
        return code


@contextmanager
def dialled(service: Service, path: str = "/ws", **options: Any) -> Iterator[Line]:
    address = f"ws://127.0.0.1:{service.port}{path}"
    with connect(address, open_timeout=PATIENCE_S, compression=None, **options) as connection:
        yield Line(connection)
