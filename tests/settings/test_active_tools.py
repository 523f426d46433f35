"""Active definitions: the operator's file, and what a tenant sends in its place (`/api/tools`)."""

import json
import os
import subprocess
import sys

import pytest
from django.core.management import call_command

from quality.turns.resolver import Conversation, resolve_tools
from tenants import active, booking, endpoints, tools
from tenants.scope import tenant_scope
from tests.settings.http_tools import definition

API = "/api/tools"


@pytest.fixture
def file(settings, tmp_path):
    """The operator's file with one tool."""
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([definition(name="from_file", headers={"X-Key": "operators-own"})]))
    settings.LLM_TOOLS_FILE, settings.LLM_TOOLS_ENABLED = str(path), True
    return path


@pytest.fixture
def model(inside, member):
    data = endpoints.EndpointData(label="fast", base_url="https://llm.example.com/v1", model="tiny")
    with inside():
        return endpoints.save_endpoint(data, actor=member("admin").user)


def names(tenant) -> list[str]:
    return [tool.name for tool in resolve_tools(tenant, Conversation(run="r")).tools]


def test_the_file_is_active_and_its_keys_are_hidden(api, file, tenant):
    answer = api().get(API)
    assert answer.status_code == 200
    body = answer.json()
    assert (body["ok"], body["count"], body["source"]) == (True, 1, "file")
    assert body["tools"][0]["name"] == "from_file"
    assert "operators-own" not in answer.text
    assert names(tenant) == ["from_file"]


def test_without_a_file_there_is_none(api, tenant):
    assert api().get(API).json() == {"ok": True, "count": 0, "source": "none", "tools": []}
    assert names(tenant) == []


@pytest.mark.parametrize("path", ["", "/nowhere/tools.json"])
def test_an_empty_or_missing_path_is_off(api, settings, path):
    settings.LLM_TOOLS_FILE, settings.LLM_TOOLS_ENABLED = path, True
    assert api().get(API).json()["source"] == "none"


def test_a_post_replaces_the_file_from_the_next_turn_and_delete_brings_it_back(api, file, model, tenant):
    client = api()
    assert names(tenant) == ["from_file"]
    answer = client.post(API, [definition(name="sent")])
    assert answer.json() == {"ok": True, "count": 1, "source": "request", "tools": answer.json()["tools"]}
    assert names(tenant) == ["sent"]
    assert client.get(API).json()["source"] == "request"
    gone = client.client.delete(API, headers=client.headers)
    assert gone.json()["source"] == "file"
    assert names(tenant) == ["from_file"]


def test_what_one_process_takes_another_one_offers(api, file, model, tenant):
    api().post(API, [definition(name="sent")])
    code = (
        "import django; django.setup()\n"
        "from quality.turns.resolver import Conversation, resolve_tools\n"
        f"print([tool.name for tool in resolve_tools({tenant.pk}, Conversation(run='r')).tools])"
    )
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "quality.settings", "LLM_TOOLS_FILE": str(file)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "['sent']", done.stderr


def test_a_restart_of_the_service_brings_the_file_back(api, file, model, tenant):
    api().post(API, [definition(name="sent")])
    call_command("new_deployment", verbosity=0)
    assert names(tenant) == ["from_file"]
    assert api().get(API).json()["source"] == "file"


def test_it_is_one_tenants_alone(api, file, model, tenant, other_tenant):
    api().post(API, [definition(name="sent")])
    assert names(other_tenant) == ["from_file"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b"  ", "empty"),
        (b"\xff\xfe", "not UTF-8"),
        (b"{}", "array"),
        (b"[]", "no definition"),
        (b"nonsense", "not JSON"),
        (b"[1]", "object"),
        (b'[{"name": "a b", "description": "d", "url": "https://a.example/"}]', "letters, digits"),
        (b'[{"name": "a", "description": "d", "url": "http://127.0.0.1/"}]', "public internet"),
        (
            json.dumps([definition(name=f"tool_{number}") for number in range(201)]).encode(),
            "more than 200 definitions",
        ),
    ],
)
def test_what_cannot_be_used_is_400_with_the_reason(api, file, model, body, reason):
    answer = api().post(API, body)
    assert answer.status_code == 400
    assert reason in answer.json()["detail"]
    assert api().get(API).json()["source"] == "file"


def test_without_an_enabled_model_it_is_503(api, file):
    answer = api().post(API, [definition()])
    assert answer.status_code == 503
    assert "no enabled model" in answer.json()["detail"]


def test_where_the_operator_switched_definitions_off_it_is_503(api, file, model, settings):
    settings.LLM_TOOLS_ENABLED = settings.LLM_TOOLS_REPLACEABLE = False
    assert api().post(API, [definition()]).status_code == 503


@pytest.mark.parametrize(
    ("variables", "uses_file", "takes_others"),
    [
        ({}, False, True),
        ({"LLM_TOOLS_FILE": ""}, False, True),
        ({"LLM_TOOLS_FILE": "/etc/tools.json"}, True, True),
        ({"LLM_TOOLS_FILE": "/etc/tools.json", "LLM_TOOLS_ENABLED": "false"}, False, False),
        ({"LLM_TOOLS_ENABLED": "true"}, True, True),
    ],
)
def test_the_switch_is_on_if_there_is_a_file(variables, uses_file, takes_others):
    code = "from quality import settings as s; print(s.LLM_TOOLS_ENABLED, s.LLM_TOOLS_REPLACEABLE)"
    env = {name: value for name, value in os.environ.items() if not name.startswith("LLM_")} | variables
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [str(uses_file), str(takes_others)], done.stderr


def test_the_switch_is_the_files_alone(settings, tenant, inside, member, model):
    """Tools that a tenant keeps, and those built in, go on without a file."""
    settings.LLM_TOOLS_FILE, settings.LLM_TOOLS_ENABLED = "", False
    admin = member("admin", user__email="keeper@example.com").user
    with inside():
        tools.save_tool(definition(name="kept"), actor=admin)
        booking.set_url("https://calendly.com/team/30min", actor=admin)
    assert names(tenant) == ["kept", "offer_booking_link"]


def test_without_a_file_definitions_may_be_sent(api, settings, tenant, model):
    settings.LLM_TOOLS_FILE, settings.LLM_TOOLS_ENABLED = "", False
    assert api().post(API, [definition(name="sent")]).json()["source"] == "request"
    assert names(tenant) == ["sent"]


def test_reading_needs_one_scope_and_writing_another(api, file, model):
    assert api("read").post(API, [definition()]).status_code == 403
    assert api("read").get(API).status_code == 200
    assert api("settings:write").post(API, [definition()]).status_code == 200


def test_a_kept_tool_stands_before_an_active_one_of_its_name(file, tenant, member):
    from tenants import tools

    with tenant_scope(tenant):
        tools.save_tool(definition(name="from_file", description="My own."), actor=member("admin").user)
    (tool,) = resolve_tools(tenant, Conversation(run="r")).tools
    assert tool.description == "My own."


def test_a_bad_file_stops_the_start_and_names_the_variable(tmp_path):
    path = tmp_path / "tools.json"
    path.write_text('[{"name": "x"}]')
    done = subprocess.run(
        [sys.executable, "-c", "import quality.wsgi"],
        env={**os.environ, "LLM_TOOLS_FILE": str(path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert "LLM_TOOLS_FILE:" in done.stderr
    assert "[0].url: is missing" in done.stderr


def test_a_header_is_shown_only_where_a_secret_stands_in_it():
    shown = active.shown_headers({"A": "Bearer abc", "B": "Bearer {secret:K}"})
    assert shown == {"A": "(hidden)", "B": "Bearer {secret:K}"}
