"""What docs/replays.md shows is what the service does: its commands are run, its receiver gets a webhook of ours."""

import json
import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from standardwebhooks.webhooks import WebhookVerificationError

from quality.cases.gate import Exit
from quality.cases.judge_model import MIN_KAPPA, MIN_LABELS
from quality.models import Replay, ReplaySchedule
from quality.replay import messages
from quality.replay.matrix import FLAGS, TROUBLE
from quality.replay.run import run_replay
from quality.webhooks import sending
from tenants import endpoints, styles
from tenants.endpoints import EndpointData
from tenants.models import Role, Tenant
from tenants.scope import tenant_scope
from tests.api.client import Api
from tests.cases.suite import ROOT, playing
from tests.factories import CaseFactory
from tests.replay.rows import make_replay
from tests.replay.test_judging import weather
from tests.service import Service

GUIDE = (ROOT / "docs" / "replays.md").read_text("utf-8")
SHELL = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)


def test_numbers_and_names_are_those_of_the_code() -> None:
    for name in [*FLAGS, TROUBLE]:
        assert f"`{name}`" in GUIDE
    for code in (Exit.PASSED, Exit.FAILED, Exit.INCOMPLETE):
        assert f"| `{code.name.lower()}` | {int(code)} |" in GUIDE
    assert f"{MIN_LABELS} labels or more, kappa {MIN_KAPPA} or more" in GUIDE


@pytest.mark.slow
def test_the_commands_do_what_they_say(
    live_service: Service, tenant: Tenant, member: Any, api: Callable[..., Api], settings: Any, tmp_path: Path
) -> None:
    assert shutil.which("curl")
    token = api("read", "replays:write", "settings:write", "export:read").text
    admin = member(Role.ADMIN).user
    with playing(*[weather("Bern")] * 10) as play:
        settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
        settings.OUTBOUND_ALLOW_PORTS = [int(play.base_url.split(":")[2].split("/")[0])]
        with tenant_scope(tenant):
            CaseFactory(tags=["smoke"])
            styles.save_style(
                style_id="friendly", name="Friendly", text=styles.StyleText("Be kind.", (), ()), actor=admin
            )
            for label in ("qwen", "judge"):
                data = EndpointData(label=label, base_url=play.base_url, model="m", price_prompt=1, price_completion=1)
                endpoints.save_endpoint(data, actor=admin)

        def ran(script: str, **more: str) -> str:
            environment = {"PATH": os.environ["PATH"], "LAB": live_service.url, "TOKEN": token, **more}
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", script],
                cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        start, read, dispute, schedule = SHELL
        told = ran(start)
        assert '"state":"paused"' in told
        with tenant_scope(tenant):
            (replay,) = Replay.objects.all()
        run_replay(replay.pk, tenant_id=tenant.pk)
        told = ran(read, REPLAY=str(replay.pk))
        assert '"case":"REG-1"' in told
    assert json.loads((tmp_path / "report.json").read_text())["exitCode"] == 0  # both sides fail alike
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 10
    assert '"outcome":"holds"' in ran(dispute, REPLAY=str(replay.pk))
    assert '"webhookSecret":"whsec_' in ran(schedule)
    with tenant_scope(tenant):
        assert ReplaySchedule.objects.get().settings["samples"] == 20


def test_the_receiver_takes_what_we_sign_once(tenant: Tenant) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(script, names)
    receive = names["receive"]
    with tenant_scope(tenant):
        case = CaseFactory()
        result = {"verdict": "Cases failed.", "gate": {"failed": ["x"], "missing": [], "red": ["REG-1"]}}
        replay = make_replay(case, counts=(0, 3), name="Nightly", exit_code=1, result=result)
        body = messages.webhook_body(replay, tenant)
    secret = sending.new_secret()
    headers = dict(sending.headers_of(secret, uuid.uuid4(), body, timezone.now()))
    told = receive(secret, headers, body)
    assert told.startswith("Nightly: ")
    assert told.endswith("REG-1")
    assert receive(secret, headers, body) == "had it"
    with pytest.raises(WebhookVerificationError):
        receive(sending.new_secret(), headers, body)
