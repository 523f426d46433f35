"""Guidelines: versions that nothing changes."""

from collections.abc import Callable

import pytest
from django.core.exceptions import ValidationError

from quality.improve import guidelines
from quality.models import GuidelineVersion
from tenants.models import AuditEvent, Membership, Role, Tenant, User
from tenants.scope import tenant_scope


@pytest.fixture
def ada(member: Callable[..., Membership]) -> User:
    return member(role=Role.ADMIN).user


def test_each_text_is_a_version_and_is_audited(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        assert guidelines.newest() is None
        assert guidelines.newest_number() is None
        first, _ = guidelines.write(text=" # One\r\n\r\nbe kind ", by=ada)
        second, is_new = guidelines.write(text="# Two", by=ada, seen_number=1)
        assert (first.number, first.text, second.number, is_new) == (1, "# One\n\nbe kind", 2, True)
        assert guidelines.newest() == second
        assert [version.number for version in guidelines.versions()] == [2, 1]
        events = AuditEvent.objects.filter(action="guidelines.written").order_by("id")
        assert [event.detail for event in events] == [{"version": 1}, {"version": 2}]
        assert events[1].before_sha256 == events[0].after_sha256


def test_the_same_text_again_is_no_version(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        first, _ = guidelines.write(text="# One", by=ada)
        assert guidelines.write(text="# One\n", by=ada, seen_number=0) == (first, False)
        assert GuidelineVersion.objects.count() == 1


def test_a_writer_who_saw_another_version_is_told(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        first, _ = guidelines.write(text="# One", by=ada)
        with pytest.raises(guidelines.StaleGuidelines, match="Version 1 was written meanwhile") as stale:
            guidelines.write(text="# Mine", by=ada, seen_number=0)
        assert stale.value.newest == first
        assert GuidelineVersion.objects.count() == 1


@pytest.mark.parametrize(
    ("text", "code"), [("", "blank"), (" \n", "blank"), ("x" * 50_001, "too_long"), ("a\x00", "unstorable")]
)
def test_what_cannot_be_kept_is_refused(tenant: Tenant, ada: User, text: str, code: str) -> None:
    with tenant_scope(tenant):
        with pytest.raises(ValidationError) as refusal:
            guidelines.write(text=text, by=ada)
        assert [error.code for error in refusal.value.error_dict["text"]] == [code]
        assert not GuidelineVersion.objects.exists()
