"""What the views of the API share: the tenant's scope, and reading what is asked."""

import datetime as dt
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, cast

from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from quality.api.parsers import Body
from quality.api.problems import InvalidRequest, fault
from quality.filters import QueryForm
from tenants import masks
from tenants.masking import reading
from tenants.models import ApiToken, Scope, User
from tenants.scope import tenant_scope


class TokenRequest(Request):
    """A request that came with a token."""

    auth: ApiToken
    user: User


class TenantView(APIView):
    """A view for bearers of a token with `required_scope`; to change something, with `write_scope` if it is set.

    Times are UTC, whatever zone a browser's cookie names. Evidence is read as the token's maker may see it.
    """

    required_scope: ClassVar[Scope]
    write_scope: ClassVar[Scope | None] = None

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        with timezone.override(dt.UTC), reading.as_stored():
            return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        reading.read_on_as(masks.for_token(cast(TokenRequest, request).auth))  # till the end of `dispatch`


def in_scope[**P, R](handler: Callable[P, R]) -> Callable[P, R]:
    """Run a handler in one transaction, in which only the rows of the token's tenant exist."""

    @wraps(handler)
    def scoped(*args: P.args, **kwargs: P.kwargs) -> R:
        request: Any = args[1]
        with tenant_scope(request.auth.tenant):
            return handler(*args, **kwargs)

    return scoped


def read_query[F: QueryForm](form_class: type[F], request: Request) -> F:
    """The query string as a valid form; raises InvalidRequest with each fault, misspelled parameters included."""
    form = form_class(request.query_params)
    faults = form.faults()
    known = ", ".join(form.add_prefix(name) for name in form.fields)
    for name in form.unknown():
        faults.append(fault(name, "unknown_parameter", f"There is no such parameter. Known: {known}."))
    if faults:
        raise InvalidRequest(faults)
    return form


def read_body(serializer_class: type[serializers.Serializer], request: Request) -> dict[str, Any]:
    """The body's members by name; raises ValidationError. An absent body is an empty one."""
    serializer = serializer_class(data=request.data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


def spelled(request: Request, member: str) -> str | None:
    """A member of the body as the sender spelled it; None if it is absent or null."""
    node = request.data.node.get(member) if isinstance(request.data, Body) else None
    return node.text if node else None
