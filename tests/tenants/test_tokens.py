"""API tokens: made of 32 random bytes, stored as a hash, useless the moment they should be (B10)."""

import datetime as dt
import hashlib

import pytest
from django.db import connections
from django.utils import timezone

from tenants.models import ApiToken, AuditEvent, Membership, Role, Scope, User
from tenants.scope import tenant_scope
from tenants.tokens import find_token, issue_token, revoke_token
from tests.factories import MembershipFactory, TenantFactory


@pytest.fixture
def admin(db) -> Membership:
    with tenant_scope(TenantFactory()):
        return MembershipFactory(role=Role.ADMIN)


def make(admin: Membership, **given) -> tuple[ApiToken, str]:
    fields = {"name": "ci", "scopes": [Scope.READ], "created_by": admin.user, "expires_at": None} | given
    with tenant_scope(admin.tenant_id):
        return issue_token(**fields)


def test_a_token_is_found_by_its_text_with_its_tenant(admin):
    token, text = make(admin)
    found = find_token(text)
    assert found is not None
    assert (found.pk, found.tenant_id, found.created_by_id) == (token.pk, admin.tenant_id, admin.user_id)
    assert text.startswith("qlab_")
    assert len(text) == len("qlab_") + 12 + 1 + 43 + 8


def test_the_database_holds_nothing_one_could_sign_in_with(admin):
    token, text = make(admin)
    secret = text.split("_", 2)[2]
    with connections["owner"].schema_editor() as editor, editor.connection.cursor() as cursor:
        cursor.execute("SELECT set_config('app.tenant', %s, true)", [str(admin.tenant_id)])
        cursor.execute("SELECT t::text FROM api_tokens t UNION ALL SELECT a::text FROM audit_events a")
        dump = "\n".join(row for (row,) in cursor.fetchall())
    assert hashlib.sha256(text.encode()).hexdigest() in dump  # positive control: this is the token's row
    assert secret not in dump
    assert secret[:20] not in dump


@pytest.mark.parametrize("change", ["last", "secret", "public id", "shorter", "prefix", "empty", "not ascii"])
def test_a_token_that_differs_anywhere_is_refused(admin, change):
    _, text = make(admin)
    wrong = {
        "last": text[:-1] + ("0" if text[-1] != "0" else "1"),
        "secret": text[:20] + ("A" if text[20] != "A" else "B") + text[21:],
        "public id": "qlab_" + "a" * 12 + text[17:],
        "shorter": text[:-1],
        "prefix": "xlab_" + text[5:],
        "empty": "",
        "not ascii": text[:-1] + "é",
    }[change]
    assert find_token(wrong) is None
    assert find_token(text) is not None


def test_a_right_checksum_does_not_make_a_wrong_secret_right(admin):
    import zlib

    _, text = make(admin)
    head = text[:20] + ("A" if text[20] != "A" else "B") + text[21:-8]
    assert find_token(head + f"{zlib.crc32(head.encode()):08x}") is None


def test_a_token_ends_with_its_time_its_revocation_its_makers_membership_and_account(admin):
    _, expired = make(admin, expires_at=timezone.now() - dt.timedelta(seconds=1))
    assert find_token(expired) is None
    token, revoked = make(admin)
    with tenant_scope(admin.tenant_id):
        assert revoke_token(token=token, actor=admin.user)
        assert not revoke_token(token=token, actor=admin.user)
    assert find_token(revoked) is None
    _, orphan = make(admin)
    assert find_token(orphan)
    User.objects.filter(pk=admin.user_id).update(is_active=False)
    assert find_token(orphan) is None
    User.objects.filter(pk=admin.user_id).update(is_active=True)
    with tenant_scope(admin.tenant_id):
        admin.delete()
    assert find_token(orphan) is None


def test_two_tenants_with_the_same_public_id_keep_their_own_tokens(admin):
    first, text = make(admin)
    with tenant_scope(TenantFactory()):
        other = MembershipFactory(role=Role.ADMIN)
    second, other_text = make(other)
    with tenant_scope(other.tenant_id):  # a collision of public ids, forced
        forged = "qlab_" + first.public_id + other_text[17:-8]
        import zlib

        forged += f"{zlib.crc32(forged.encode()):08x}"
        ApiToken.objects.filter(pk=second.pk).update(
            public_id=first.public_id, digest=hashlib.sha256(forged.encode()).digest()
        )
    assert find_token(text).tenant_id == admin.tenant_id
    assert find_token(forged).tenant_id == other.tenant_id


def test_last_use_is_noted_coarsely(admin):
    token, text = make(admin)
    find_token(text)
    with tenant_scope(admin.tenant_id):
        first = ApiToken.objects.get(pk=token.pk).last_used_at
    find_token(text)
    with tenant_scope(admin.tenant_id):
        assert ApiToken.objects.get(pk=token.pk).last_used_at == first
        assert first is not None
        assert list(AuditEvent.objects.values_list("action", flat=True)) == ["token.created"]
