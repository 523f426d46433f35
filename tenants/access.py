"""Who may enter which tenant: memberships, invitations, one-time sign-in links.

What is resolved before a tenant is known goes through `lookup_*` functions of the database, which return ids only.
"""

import datetime as dt
import hashlib
import secrets

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.contrib.sessions.backends.db import SessionStore
from django.db import connection
from django.http import HttpRequest
from django.utils import timezone

from tenants import audit
from tenants.models import Invitation, Membership, Role, Tenant, User
from tenants.scope import tenant_scope
from tenants.sessions import is_over

INVITATION_LIFE = dt.timedelta(days=7)


class LastAdmin(Exception):
    """The change would leave the tenant without an admin."""


def tenant_by_slug(slug: str) -> Tenant | None:
    """The tenant with this slug, for commands of the service's operator (no member is asked)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT lookup_tenant(%s)", [slug])
        (tenant_id,) = cursor.fetchone()
    if tenant_id is None:
        return None
    with tenant_scope(tenant_id):
        return Tenant.objects.get(pk=tenant_id)


def session_user(key: str) -> User | None:
    """Who is signed in by the session with this key now; None once they signed out, the session has lasted for too
    long, or the account was closed."""
    request = HttpRequest()
    request.session = SessionStore(key)
    if is_over(request.session):
        return None
    user = get_user(request)
    return user if isinstance(user, User) else None


def membership_in(slug: str, user: User) -> Membership | None:
    """The user's membership in the tenant with this slug, with `tenant` and `user` loaded, or None."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tenant_id, membership_id FROM lookup_membership(%s, %s)", [user.pk, slug])
        found = cursor.fetchone()
    if found is None:
        return None
    tenant_id, membership_id = found
    with tenant_scope(tenant_id):
        return Membership.objects.select_related("tenant", "user").filter(pk=membership_id).first()


def memberships_of(user: User) -> list[Membership]:
    """All memberships of a user with their tenants, by tenant name. One short scope for each."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tenant_id, membership_id FROM lookup_memberships(%s)", [user.pk])
        found = cursor.fetchall()
    memberships: list[Membership] = []
    for tenant_id, membership_id in found:
        with tenant_scope(tenant_id):
            memberships.extend(Membership.objects.select_related("tenant").filter(pk=membership_id))
    return sorted(memberships, key=lambda membership: membership.tenant.name.casefold())


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def invite(*, role: str, created_by: User, email: str = "") -> tuple[Invitation, str]:
    """An invitation to the open scope's tenant, and its secret for the link, shown once."""
    secret = secrets.token_urlsafe(32)
    invitation = Invitation(
        digest=_digest(secret),
        email=email,
        role=role,
        created_by=created_by,
        expires_at=timezone.now() + INVITATION_LIFE,
    )
    invitation.full_clean(exclude=["accepted_at", "accepted_by", "revoked_at"])
    invitation.save()
    audit.record(
        "invitation.created",
        object_type="invitation",
        object_id=invitation.pk,
        actor=created_by,
        detail={"role": role, "email": email},
    )
    return invitation, secret


def revoke_invitation(*, invitation: Invitation, actor: User) -> None:
    if Invitation.objects.filter(pk=invitation.pk, accepted_at=None, revoked_at=None).update(revoked_at=timezone.now()):
        audit.record("invitation.revoked", object_type="invitation", object_id=invitation.pk, actor=actor)


def find_invitation(secret: str) -> Invitation | None:
    """The open invitation with this secret, with `tenant` loaded, or None."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tenant_id, invitation_id FROM lookup_invitation(%s)", [_digest(secret)])
        found = cursor.fetchone()
    if found is None:
        return None
    tenant_id, invitation_id = found
    with tenant_scope(tenant_id):
        invitation = Invitation.objects.select_related("tenant").filter(pk=invitation_id).first()
    return invitation if invitation and invitation.is_open else None


def accept_invitation(*, invitation: Invitation, user: User) -> Membership | None:
    """Join. None if somebody took the invitation first. A member who follows a link keeps the higher role."""
    with tenant_scope(invitation.tenant):
        taken = Invitation.objects.filter(
            pk=invitation.pk, accepted_at=None, revoked_at=None, expires_at__gt=timezone.now()
        ).update(accepted_at=timezone.now(), accepted_by=user)
        if not taken:
            return None
        membership, created = Membership.objects.get_or_create(user=user, defaults={"role": invitation.role})
        if not created and not membership.may(Role(invitation.role)):
            membership.role = invitation.role
            membership.save(update_fields=["role"])
        audit.record(
            "member.joined",
            object_type="membership",
            object_id=membership.pk,
            actor=user,
            after={"role": membership.role},
            detail={"role": membership.role, "email": user.email},
        )
        return membership


def _other_admins(membership: Membership) -> bool:
    """Does the tenant keep an admin without this member? Locks the admins' rows, so that two cannot leave at once."""
    admins = Membership.objects.select_for_update().filter(role=Role.ADMIN).values_list("pk", flat=True)
    return any(pk != membership.pk for pk in list(admins))


def change_role(*, membership: Membership, role: str, actor: User) -> None:
    """Give a member another role; raises LastAdmin."""
    if membership.role == Role.ADMIN and role != Role.ADMIN and not _other_admins(membership):
        raise LastAdmin
    before = membership.role
    membership.role = role
    membership.full_clean()
    membership.save(update_fields=["role"])
    audit.record(
        "member.role_changed",
        object_type="membership",
        object_id=membership.pk,
        actor=actor,
        before={"role": before},
        after={"role": role},
        detail={"from": before, "to": role, "member": str(membership.user)},
    )


def remove_member(*, membership: Membership, actor: User) -> None:
    """End a membership, from the next request on; raises LastAdmin."""
    if membership.role == Role.ADMIN and not _other_admins(membership):
        raise LastAdmin
    audit.record(
        "member.removed",
        object_type="membership",
        object_id=membership.pk,
        actor=actor,
        before={"role": membership.role},
        detail={"member": str(membership.user)},
    )
    membership.delete()


class _SignInLink(PasswordResetTokenGenerator):
    """One-time by construction: the token hashes `last_login`, which its own use changes."""

    key_salt = "tenants.access.SignInLink"

    def check_token(self, user: User | None, token: str | None) -> bool:
        if user is None or not token:
            return False
        try:
            made_at = int(token.split("-")[0], 36)
        except ValueError:
            return False
        fresh = self._num_seconds(self._now()) - made_at <= settings.SIGNIN_LINK_AGE_S
        return fresh and super().check_token(user, token)


signin_link = _SignInLink()


def use_signin_link(user: User) -> bool:
    """Use up the link that was checked for `user`; False if it was used meanwhile. Of parallel uses one gets True."""
    unused = User.objects.filter(pk=user.pk, last_login=user.last_login)
    return unused.update(last_login=timezone.now()) == 1
