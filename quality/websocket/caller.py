"""Who is at the other end of a WebSocket, and what they may do there now.

Asked when a connection opens, and again while it is open: before each message, and every few seconds. Three ways in: a
bearer token; the session of somebody who signed in here, from a page of ours alone; and on the demo's own machine,
where the operator wants it so, nothing at all.
"""

import io
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.http.request import split_domain_port

from quality.api.auth import bearer, holds
from tenants import masks
from tenants.access import membership_in, memberships_of, session_user, tenant_by_slug
from tenants.masking.masker import Masker
from tenants.models import ApiToken, Membership, Role, Scope, Tenant, User
from tenants.scope import tenant_scope

DEMO_TENANT = "demo"

_SCHEMES = {"ws": "http", "wss": "https"}
_LOOPBACK_NAMES = {"localhost", "127.0.0.1", "[::1]"}
_PROXY_HEADERS = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via")


class Refused(Exception):
    """Not here, or no longer. `status` is HTTP's; an open connection is closed with 4000 more."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    @property
    def close_code(self) -> int:
        return 4000 + self.status


@dataclass(frozen=True, slots=True)
class Caller:
    """Who speaks for which tenant. `token` is None for people who signed in."""

    tenant: Tenant
    user: User
    token: ApiToken | None
    may_read: bool
    may_send: bool
    masker: Masker | None = None  # what they are spared of evidence


def handshake(scope: Mapping[str, Any]) -> HttpRequest:
    """The request that a WebSocket began as, for Django's own reading of hosts, cookies and headers. Raises Refused."""
    scheme = _SCHEMES.get(scope.get("scheme", ""), "http")
    try:
        return ASGIRequest({**scope, "type": "http", "method": "GET", "scheme": scheme}, io.BytesIO())
    except UnicodeDecodeError as error:
        raise Refused(400, "bad_request", "The query string is not UTF-8.") from error


def find_caller(request: HttpRequest, *, known: Caller | None = None) -> Caller:
    """Who this is, as things stand now; raises Refused. `known` is who it was when the connection opened."""
    _refuse_foreign(request)
    if header := request.headers.get("Authorization"):
        return _bearer(header)
    slug = known.tenant.slug if known else request.GET.get("tenant", "")
    if user := _signed_in(request):
        return _member(user, slug)
    if _is_at_the_demos_machine(request):
        return _demo_operator(slug or DEMO_TENANT)
    raise Refused(401, "not_authenticated", "Send the header `Authorization: Bearer qlab_…`, or sign in and try again.")


def _refuse_foreign(request: HttpRequest) -> None:
    """Any page of the web may open a WebSocket to us, and browsers send our cookies along."""
    try:
        host = request.get_host()
    except DisallowedHost as error:
        raise Refused(400, "bad_host", "This host is not served here. Name it in ALLOWED_HOSTS.") from error
    if settings.SECURE_SSL_REDIRECT and not request.is_secure():
        raise Refused(403, "insecure", "Only wss:// is served here.")
    origin = request.headers.get("Origin")
    ours = f"{'https' if request.is_secure() else 'http'}://{host}"
    if origin is not None and origin != ours and origin not in settings.CSRF_TRUSTED_ORIGINS:
        raise Refused(403, "foreign_origin", f"Pages of {origin} may not connect; those of {ours} may.")


def _bearer(header: str) -> Caller:
    token = bearer(header)
    if token is None:
        raise Refused(401, "invalid_token", "This token is not valid: unknown, mistyped, expired or revoked.")
    may_read, may_send = holds(token, Scope.READ), holds(token, Scope.TURNS_WRITE)
    if not may_read and not may_send:
        message = (
            f"This needs the scope {Scope.TURNS_WRITE}, or {Scope.READ} to follow turns, and a maker with the role."
        )
        raise Refused(403, "insufficient_scope", message)
    return Caller(token.tenant, token.created_by, token, may_read, may_send, masks.for_token(token))


def _signed_in(request: HttpRequest) -> User | None:
    """The owner of the session, if a page of ours connects with it."""
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    if not key:
        return None
    if "Origin" not in request.headers:
        raise Refused(403, "no_origin", "A session works from a page alone (header Origin). Programs send a token.")
    return session_user(key)


def _member(user: User, slug: str) -> Caller:
    if slug:
        membership = membership_in(slug, user)
        if membership is None:
            raise Refused(403, "no_membership", "There is no such tenant, or you are no member of it.")
    else:
        memberships = memberships_of(user)
        if len(memberships) != 1:
            raise Refused(400, "tenant_needed", "Name the tenant: /ws?tenant=…")
        membership = memberships[0]
    may_send = membership.may(Role.OPERATOR)
    return Caller(membership.tenant, user, None, may_read=True, may_send=may_send, masker=masks.for_member(membership))


def _is_at_the_demos_machine(request: HttpRequest) -> bool:
    """Does a program or page of this very machine ask, by a name of it, with no proxy between?"""
    if not settings.DEMO_ON_LOOPBACK or any(name in request.headers for name in _PROXY_HEADERS):
        return False
    if split_domain_port(request.get_host())[0] not in _LOOPBACK_NAMES:
        return False
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


def _demo_operator(slug: str) -> Caller:
    tenant = tenant_by_slug(slug)
    if tenant is None or not tenant.is_demo:
        raise Refused(401, "not_authenticated", f"Without a token only a demo is open, and {slug!r} is none.")
    with tenant_scope(tenant):
        operator = Membership.objects.filter(role=Role.OPERATOR, user__is_active=True).order_by("pk").first()
        user = User.objects.filter(pk=operator.user_id).first() if operator else None
    if user is None:
        raise Refused(403, "no_operator", "The demo has no operator to act as.")
    return Caller(tenant, user, None, may_read=True, may_send=True)
