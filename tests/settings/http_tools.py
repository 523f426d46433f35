"""Definitions for tests, and leave to call servers on loopback."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.loopback import Server


def definition(**fields: Any) -> dict[str, Any]:
    """A valid definition with nothing said."""
    return {
        "name": "get_order",
        "description": "Look an order up.",
        "method": "GET",
        "url": "https://api.example.com/orders/{number}",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "string", "description": "Order number."}, "full": {"type": "boolean"}},
            "required": ["number"],
        },
    } | fields


@pytest.fixture
def loopback(settings: Any) -> Callable[..., str]:
    """`loopback(server)` lets tenants reach these servers and gives the base URL of the first."""

    def allow(*servers: Server) -> str:
        ports = [server.port for server in servers]
        settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
        settings.OUTBOUND_ALLOW_PORTS = ports
        return f"http://127.0.0.1:{ports[0]}"

    return allow
