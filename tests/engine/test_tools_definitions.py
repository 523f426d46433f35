"""Files of HTTP tool definitions: all that is wrong is said at once."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import net
from engine.tools import Mode, Registry, Safety
from engine.tools.definitions import FIELDS, DefinitionsError, HttpDefinition, definition_faults, read_definitions
from engine.tools.http import HttpTool

POLICY = net.Policy.tenant()
GOOD: dict[str, Any] = {"name": "t", "description": "d", "url": "https://a.example/"}
EXAMPLE = Path(__file__).resolve().parents[2] / "tools.example.json"


def faults(*items: Any) -> set[str]:
    return {str(fault) for fault in definition_faults(list(items), POLICY)}


def test_the_least_a_definition_needs_is_name_description_and_url() -> None:
    (definition,) = read_definitions(json.dumps([GOOD]), POLICY)

    assert (definition.method, definition.headers, definition.mode) == ("POST", {}, Mode.AUTO)
    assert definition.parameters == {"type": "object", "properties": {}}


def test_every_fault_is_named_with_index_field_and_reason() -> None:
    found = faults(
        GOOD,
        "nonsense",
        {
            "name": "has space",
            "description": "",
            "url": "https://{h}/",
            "method": "GE T",
            "header": {},
            "mode": "client",
        },
        {**GOOD, "name": "u", "parameters": {"type": "array"}, "headers": {"Host": "x", "X-A": 5, "x-a": "{secret:}"}},
        {**GOOD, "name": "v", "safety": "sure", "follow_redirects": True},
        {},
    )

    assert found == {
        "[1]: must be an object",
        "[2].name: must be 1 to 64 letters, digits, - or _",
        "[2].description: must say in words what the tool does; the model chooses by it",
        "[2].url: the host part of the URL holds a placeholder",
        "[2].method: must be an HTTP method",
        f"[2].header: is no field; there are {', '.join(FIELDS)}",
        '[2].mode: must be "auto" or "approve"',
        '[3].parameters: must describe an object ("type": "object")',
        "[3].headers.Host: the header Host is set by the client itself",
        "[3].headers.X-A: a header value is a string",
        "[3].headers.x-a: a placeholder is {argument} or {secret:NAME}, nothing else",
        "[3].headers.x-a: stands twice, in different case",
        '[4].safety: must be "safe" or "unsafe"',
        "[4].follow_redirects: only GET and HEAD may follow redirects",
        "[5].name: is missing",
        "[5].description: is missing",
        "[5].url: is missing",
    }


def test_a_name_taken_twice_is_a_fault_of_both() -> None:
    assert faults(GOOD, GOOD) == {f"[{i}].name: 't' is taken by another definition" for i in range(2)}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"\xff\xfe", "is not UTF-8 (byte 0)"),
        (b"", "is not JSON"),
        (b"[", "is not JSON"),
        (b'[{"a":1,"a":2}]', "stands twice"),
        (b"{}", "must be a JSON array"),
        (b"[]", "holds no definition"),
    ],
)
def test_a_file_that_is_no_array_of_definitions_says_why(source: bytes, reason: str) -> None:
    with pytest.raises(DefinitionsError) as refused:
        read_definitions(source, POLICY)
    (fault,) = refused.value.faults
    assert fault.index is None
    assert reason in str(fault)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1/", "http://10.0.0.1/", "http://a.local/", "https://a.example:22/", "https://u:p@a.example/"],
)
def test_a_tool_is_judged_when_it_is_saved_by_the_policy_it_will_run_under(url: str) -> None:
    assert [fault.field for fault in definition_faults([{**GOOD, "url": url}], POLICY)] == ["url"]
    if "@" not in url:
        assert definition_faults([{**GOOD, "url": url}], net.Policy.local()) == []


def test_a_definition_survives_its_json() -> None:
    item = {
        **GOOD,
        "method": "GET",
        "headers": {"X-A": "{a}"},
        "parameters": {"type": "object"},
        "follow_redirects": True,
    }
    definition = HttpDefinition.from_json(item)
    again = json.loads(json.dumps(definition.to_json()))

    assert HttpDefinition.from_json(again) == definition
    assert faults(again) == set()
    assert HttpDefinition.from_json(HttpDefinition.from_json(GOOD).to_json()) == HttpDefinition.from_json(GOOD)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from([*FIELDS, "other"]),
            st.none()
            | st.booleans()
            | st.text()
            | st.lists(st.text())
            | st.dictionaries(st.text(), st.text() | st.integers()),
        )
        | st.integers(),
        max_size=3,
    )
)
def test_no_array_makes_the_check_raise(items: list[Any]) -> None:
    if not definition_faults(items, POLICY):
        Registry(HttpTool(definition, net.Guard(POLICY)) for definition in read_definitions(items, POLICY))


def test_the_example_file_is_sound_and_shows_each_kind() -> None:
    definitions = {one.name: one for one in read_definitions(EXAMPLE.read_bytes(), POLICY)}

    assert {"get_weather", "notify_team", "add_note"} <= definitions.keys()
    assert {one.method for one in definitions.values()} == {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}
    assert all(".example.com/" in one.url for one in definitions.values())
    assert definitions["delete_contact"].mode is Mode.APPROVE
    assert definitions["get_weather"].safety is Safety.SAFE
    assert "{secret:NOTES_KEY}" in definitions["add_note"].headers.values()
