"""The audit log as admins read it: B19's page."""

import re
from pathlib import Path

import pytest
from django.db import ProgrammingError
from django.urls import reverse

from tenants import audit, audit_log
from tenants.models import AuditEvent, Role
from tenants.scope import tenant_scope
from tests.factories import MembershipFactory, ToolCallFactory, TurnFactory, UserFactory

ROOT = Path(__file__).parents[2]


@pytest.fixture
def admin(client, tenant):
    with tenant_scope(tenant):
        membership = MembershipFactory(role=Role.ADMIN, user=UserFactory(name="Ada Admin", email="ada@example.com"))
    client.force_login(membership.user)
    return membership.user


def write(tenant, *, number=1, **options):
    with tenant_scope(tenant):
        return [
            audit.record(**{"action": "tool.switched", "object_type": "tool", "object_id": "quote", **options})
            for _ in range(number)
        ]


def page(client, tenant, query=""):
    return client.get(reverse("audit-list", args=[tenant.slug]) + query)


def test_an_event_tells_who_what_when_and_details(client, tenant, admin):
    with tenant_scope(tenant):
        call = ToolCallFactory(turn=TurnFactory())
    labelled = {"action": "feedback.labelled", "object_type": "tool_call", "object_id": call.pk}
    write(tenant, **labelled, actor=admin, detail={"to": "bad_args"})
    text = page(client, tenant).content.decode()
    assert "Ada Admin" in text
    assert "feedback.labelled" in text
    assert "bad_args" in text
    assert reverse("call-detail", args=[tenant.slug, call.pk]) in text


def test_filters_narrow_and_bad_ones_are_told(client, tenant, admin):
    write(tenant, action="secret.used", object_type="secret", object_id=7)
    write(tenant, action="tool.switched", actor=admin)
    only_secrets = page(client, tenant, "?subject=secret").content.decode()
    assert "secret.used" in only_secrets
    assert "tool.switched" not in only_secrets
    by_admin = page(client, tenant, f"?actor={admin.pk}").content.decode()
    assert "tool.switched" in by_admin
    assert "secret.used" not in by_admin
    bad = page(client, tenant, "?from=yesterday").content.decode()
    assert "is no time" in bad
    assert "tool.switched" not in bad
    assert "Not a filter" in page(client, tenant, "?who=ada").content.decode()


def test_pages_lead_through_all_events_and_back(client, tenant, admin, monkeypatch):
    monkeypatch.setattr(audit_log, "PAGE_SIZE", 3)
    written = [event.pk for event in write(tenant, number=8, actor=admin)]
    seen, url = [], f"?actor={admin.pk}"
    while url:
        text = page(client, tenant, url).content.decode()
        seen.append([int(pk) for pk in re.findall(r'id="event-(\d+)"', text)])
        found = re.search(r'href="(\?[^"]*before=\d+)"', text)
        url = found[1].replace("&amp;", "&") if found else ""
    assert [pk for pks in seen for pk in pks] == written[::-1]
    newer = page(client, tenant, f"?actor={admin.pk}&after={seen[1][0]}").content.decode()
    assert [int(pk) for pk in re.findall(r'id="event-(\d+)"', newer)] == seen[0]


def test_it_is_for_admins_and_shows_one_tenant(client, tenant, other_tenant, admin):
    write(other_tenant, object_id="theirs-only")
    assert "theirs-only" not in page(client, tenant).content.decode()
    with tenant_scope(tenant):
        operator = MembershipFactory(role=Role.OPERATOR).user
    client.force_login(operator)
    assert page(client, tenant).status_code == 403


def test_hostile_details_are_inert_and_stay_one_cell(client, tenant, admin):
    write(tenant, actor=admin, detail={"name": "<script>x</script>\nfeedback.labelled \u202e"})
    text = page(client, tenant).content.decode()
    assert "<script>x" not in text
    assert "\u202e" not in text


def test_each_subject_that_the_code_writes_has_words():
    written = set()
    for folder in ("tenants", "quality"):
        for path in (ROOT / folder).rglob("*.py"):
            if "migrations" in path.parts:
                continue
            for call in re.finditer(r"(?:audit\.record|_audit|audited|_record)\(\s*(.{0,120})", path.read_text(), re.S):
                written |= set(re.findall(r'f?"([a-z_]+)\.[a-z_{]', call[1]))
    assert {"member", "token", "feedback", "export"} <= written
    assert written <= set(audit_log.SUBJECTS), written - set(audit_log.SUBJECTS)


def test_the_application_cannot_change_it(tenant, admin):
    [event] = write(tenant)

    with pytest.raises(ProgrammingError), tenant_scope(tenant):
        AuditEvent.objects.filter(pk=event.pk).update(action="x.y")
