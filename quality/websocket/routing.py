"""Which WebSockets are served: one."""

from typing import Any

from quality.bodies import Receive, Send
from quality.websocket.consumer import TurnConsumer

PATH = "/ws"

_turns: Any = TurnConsumer.as_asgi()


async def websockets(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """The ASGI application of WebSockets. Any other path is refused in the handshake."""
    if scope["path"].rstrip("/") == PATH:
        await _turns(scope, receive, send)
    else:
        await receive()
        await send({"type": "websocket.close"})
