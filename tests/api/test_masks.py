"""Rules of masking over the API."""

from typing import Any

import pytest

from tenants.masking.masker import MARK
from tenants.models import Scope

PLACE = "/api/settings/masks"
RULE = {"name": "mail", "kind": "pattern", "expression": "preset:email"}


def test_one_is_made_read_changed_and_deleted(api: Any) -> None:
    admin = api(Scope.READ, Scope.SETTINGS_WRITE)
    made = admin.post(PLACE, RULE)
    assert made.status_code == 201, made.text
    rule = made.json()
    assert rule.items() >= {
        **RULE, "seenBy": "admin", "keepsRaw": True, "masksExports": False, "enabled": True, "version": 1,
    }.items()  # fmt: skip
    one = made["Location"]
    assert one == f"{PLACE}/{rule['id']}"
    changed = admin.patch(one, {"seenBy": "nobody", "enabled": False, "version": 1}).json()
    assert (changed["seenBy"], changed["enabled"], changed["name"], changed["version"]) == ("nobody", False, "mail", 2)
    assert admin.get(one).json() == changed
    assert admin.get(PLACE).json() == {"masks": [changed]}
    assert admin.delete(one).status_code == 204
    assert admin.get(one).status_code == 404


def test_a_stale_write_is_refused_with_what_holds(api: Any) -> None:
    admin = api()
    one = admin.post(PLACE, RULE)["Location"]
    admin.patch(one, {"seenBy": "nobody"})
    for late in (admin.patch(one, {"seenBy": "operator", "version": 1}), admin.delete(f"{one}?version=1")):
        assert late.status_code == 409
        assert (late.json()["current"]["seenBy"], late.json()["errors"][0]["path"]) == ("nobody", "version")
    assert admin.delete(f"{one}?version=2").status_code == 204


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"expression": "(a"}, "expression"),
        ({"kind": "path", "expression": "$"}, "expression"),
        ({"name": "E mail"}, "name"),
        ({"name": "taken"}, "name"),
        ({"seenBy": "viewer"}, "seenBy"),
        ({"kind": "regex"}, "kind"),
        ({"keeps_raw": False}, "keeps_raw"),
    ],
)
def test_faults_name_the_member(api: Any, change: dict[str, Any], path: str) -> None:
    admin = api()
    admin.post(PLACE, RULE | {"name": "taken"})
    refused = admin.post(PLACE, RULE | change)
    assert (refused.status_code, [one["path"] for one in refused.json()["errors"]]) == (400, [path])


def test_a_rule_is_tried_on_a_text(api: Any) -> None:
    admin = api(Scope.SETTINGS_WRITE)
    tried = admin.post(f"{PLACE}/try", {**RULE, "text": '{"to": "alex@example.com", "n": 1.10}'}).json()
    assert tried["count"] == 1
    assert MARK.sub("…", tried["masked"]) == '{"to": "…", "n": 1.10}'
    assert (
        admin.post(f"{PLACE}/try", {**RULE, "expression": "(", "text": "x"}).json()["errors"][0]["path"] == "expression"
    )
    assert admin.get(PLACE).json() == {"masks": []}


def test_it_takes_the_scope_and_the_tenant(api: Any, member: Any, other_tenant: Any) -> None:
    one = api().post(PLACE, RULE)["Location"]
    reader = api(Scope.READ)
    for answer in (reader.get(PLACE), reader.post(PLACE, RULE), reader.get(one), reader.post(f"{PLACE}/try", RULE)):
        assert answer.status_code == 403
    stranger = api(member=member("admin", tenant=other_tenant))
    assert stranger.get(PLACE).json() == {"masks": []}
    for answer in (stranger.get(one), stranger.patch(one, {"enabled": False}), stranger.delete(one)):
        assert answer.status_code == 404
