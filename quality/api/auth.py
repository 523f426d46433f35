"""Bearer tokens, and nothing else: a session cookie never opens the API."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed, PermissionDenied
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from tenants.models import ApiToken, Membership, Role, Scope, User
from tenants.scope import tenant_scope
from tenants.tokens import find_token, has_form

# A token never does more than its maker may do now.
ROLE_FOR = {
    Scope.READ: Role.VIEWER,
    Scope.FEEDBACK_WRITE: Role.OPERATOR,
    Scope.INGEST_WRITE: Role.OPERATOR,
    Scope.EXPORT_READ: Role.ADMIN,
    Scope.TURNS_WRITE: Role.OPERATOR,
    Scope.REPLAYS_WRITE: Role.OPERATOR,
    Scope.SETTINGS_WRITE: Role.ADMIN,
    Scope.GATEWAY: Role.OPERATOR,
}


def bearer(header: str) -> ApiToken | None:
    """The live token that an `Authorization` header carries, or None."""
    scheme, _, text = header.partition(" ")
    return find_token(text.strip()) if scheme.lower() == "bearer" else None


def may_open(header: str) -> bool:
    """Has what an `Authorization` header carries the form of a token? Costs no query."""
    scheme, _, text = header.partition(" ")
    return scheme.lower() == "bearer" and has_form(text.strip())


def require_scope(token: ApiToken, scope: Scope) -> None:
    """Raises PermissionDenied if the token lacks the scope, or its maker by now the role for it."""
    if scope not in token.scopes:
        raise PermissionDenied(f"This token lacks the scope {scope}.", code="insufficient_scope")
    role = ROLE_FOR[scope]
    with tenant_scope(token.tenant):
        membership = Membership.objects.filter(user=token.created_by_id).first()
    if membership is None or not membership.may(role):
        raise PermissionDenied(f"The maker of this token is no {role.label.lower()}.", code="insufficient_role")


def holds(token: ApiToken, scope: Scope) -> bool:
    """Has the token this scope, and its maker the role for it?"""
    try:
        require_scope(token, scope)
    except PermissionDenied:
        return False
    return True


def still_has(header: str, scope: Scope) -> bool:
    """Would a request with this `Authorization` header be let in now? For what goes on after its request was judged."""
    token = bearer(header)
    return token is not None and holds(token, scope)


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer qlab_…`: `request.auth` is the token, `request.user` its maker."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        header = request.headers.get("Authorization", "")
        if not header:
            return None
        token = bearer(header)
        if token is None:
            raise AuthenticationFailed("This token is not valid: unknown, mistyped, expired or revoked.")
        return token.created_by, token

    def authenticate_header(self, request: Request) -> str:
        error = ', error="invalid_token"' if request.headers.get("Authorization") else ""
        return f'Bearer realm="quality-lab"{error}'


class HasScope(BasePermission):
    """The token has the scope that the view asks for (`write_scope`, if there is one, for what changes something), and
    its maker still the role for it."""

    def has_permission(self, request: Request, view: Any) -> bool:
        write_scope = None if request.method in SAFE_METHODS else getattr(view, "write_scope", None)
        scope = Scope(write_scope or view.required_scope)
        if not isinstance(request.auth, ApiToken):
            return False
        require_scope(request.auth, scope)
        return True


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Tells the OpenAPI schema what `TokenAuthentication` is."""

    target_class = "quality.api.auth.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "An API token of a tenant: qlab_…"}
