"""The connections that are kept for model servers."""

import asyncio
from typing import Any

import pytest

from engine.limits import Price
from engine.providers.scripted import ScriptedServer
from quality.gateway import upstream
from quality.gateway.upstream import Upstreams
from tenants.endpoints import ChosenModel
from tests.gateway.conftest import port_of


def test_requests_that_end_together_close_what_is_too_much_once(
    settings: Any, model: ScriptedServer, monkeypatch: pytest.MonkeyPatch
):
    settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
    settings.OUTBOUND_ALLOW_PORTS = [port_of(model.base_url)]
    chosen = ChosenModel(1, "main", model.base_url, "S1", {}, Price(), has_key=False, is_stand_in=False)

    async def run() -> int:
        upstreams = Upstreams()

        async def ask(tenant_id: int) -> None:
            async with upstreams.send(tenant_id, chosen, None, [], b'{"model":"S1","messages":[]}') as response:
                await response.aread()

        await asyncio.gather(*map(ask, range(8)))
        monkeypatch.setattr(upstream, "MAX_CLIENTS", 0)
        await asyncio.gather(*map(ask, range(8, 16)))
        return len(upstreams._kept)

    assert asyncio.run(run()) == 0
