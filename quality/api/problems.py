"""Every error of the API in one shape, `application/problem+json` (RFC 9457).

Members: `type`, `title`, `status`, `detail`, `errors` (a list of `path`, `code`, `message`), `requestId`. A write that
came too late (to a label, a proposal, a case) adds `current` and `sent`. What went wrong inside is logged under the
request id, never told.
"""

import logging
from collections.abc import Callable, Iterable
from functools import wraps
from http import HTTPStatus
from typing import Any

import msgspec
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation, ValidationError
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.views import defaults
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions

from quality.api.improve_shapes import current_told
from quality.api.shapes import labels_now, sent_label
from quality.improve.case_store import CaseConflict, NoSuchCase
from quality.improve.groups import NoSuchGroup
from quality.improve.proposals import NoSuchProposal, ProposalConflict
from quality.ingest.jsontext import storable
from quality.review.items import NoSuchItem
from quality.review.labelling import NothingToUndo, StaleLabel
from quality.streaming import Busy
from tenants.context import request_id

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
NOT_FOUND = "There is nothing here, or nothing of yours."
_OURS = ("/api/", "/v1/", "/healthz", "/docs")


def read_only(view: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """For views open to all: GET and HEAD only. Anything else is told so here, where CSRF would speak of cookies."""

    @csrf_exempt
    @wraps(view)
    def guarded(request: HttpRequest) -> HttpResponse:
        if request.method in ("GET", "HEAD"):
            return view(request)
        return problem(
            405, "method_not_allowed", f"{request.method} does nothing here.", headers={"Allow": "GET, HEAD"}
        )

    return guarded


class InvalidRequest(exceptions.APIException):
    """A request that cannot be read, with every fault in it."""

    status_code = 400
    default_code = "invalid_request"

    def __init__(self, errors: Iterable[dict[str, str]], *, status: int = 400) -> None:
        self.errors = list(errors)
        self.status_code = status
        super().__init__("; ".join(error["message"] for error in self.errors))


def fault(path: str, code: str, message: str) -> dict[str, str]:
    return {"path": path, "code": code, "message": message}


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    errors: Iterable[dict[str, str]] = (),
    headers: dict[str, str] | None = None,
    **more: Any,
) -> HttpResponse:
    """An error as its answer. `code` is a word for programs; `more` are further members."""
    body = {
        "type": f"urn:quality-lab:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "detail": storable(detail),
        "errors": [{name: storable(value) for name, value in error.items()} for error in errors],
        "requestId": request_id.get(),
        **more,
    }
    return HttpResponse(msgspec.json.encode(body), status=status, content_type=MEDIA_TYPE, headers=headers)


def handle(error: Exception, context: dict[str, Any]) -> HttpResponse | None:  # noqa: PLR0911  (a line a kind)
    """REST framework's exception handler. None: unforeseen, `server_error` answers."""
    match error:
        case InvalidRequest():
            return problem(error.status_code, error.default_code, str(error.detail), errors=error.errors)
        case exceptions.ValidationError():
            errors = list(_flat(error.get_full_details(), ""))
            return problem(400, "invalid_request", _sum(errors), errors=errors)
        case ValidationError():
            errors = list(_of_fields(error))
            return problem(400, "invalid_request", _sum(errors), errors=errors)
        case StaleLabel():
            return problem(
                409,
                "stale_label",
                str(error),
                errors=[fault("version", "stale", f"The item is at version {error.version} now.")],
                current={"version": error.version, "labels": labels_now(error.current)},
                sent=sent_label(error.sent),
            )
        case ProposalConflict() | CaseConflict():
            return problem(409, error.code, str(error), current=current_told(error), sent=_sent(context))
        case NothingToUndo():
            return problem(409, "nothing_to_undo", str(error))
        case Http404() | NoSuchItem() | NoSuchGroup() | NoSuchProposal() | NoSuchCase() | exceptions.NotFound():
            return problem(404, "not_found", NOT_FOUND)
        case PermissionDenied():
            return problem(403, "permission_denied", str(error) or "You may not do this.")
        case RequestDataTooBig():
            return problem(413, "too_large", "The body is larger than 5 MiB.")
        case Busy():
            return problem(503, "busy", str(error), headers={"Retry-After": "10"})
        case OperationalError():
            logger.error("The database does not answer", exc_info=error)
            return problem(503, "unavailable", "The database does not answer. Try again.", headers={"Retry-After": "5"})
        case exceptions.APIException():
            return _of_framework(error)
    return None


def _sent(context: dict[str, Any]) -> Any:
    """The refused body as the sender spelled it."""
    node = getattr(getattr(context.get("request"), "data", None), "node", None)
    return msgspec.Raw(node.raw) if node else None


def _of_framework(error: exceptions.APIException) -> HttpResponse:
    headers = {}
    if challenge := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = challenge
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(int(wait))
    code = error.get_codes()
    return problem(
        error.status_code, code if isinstance(code, str) else error.default_code, str(error.detail), headers=headers
    )


def _flat(details: Any, path: str) -> Iterable[dict[str, str]]:
    """Faults of a serializer, whose details nest as its fields do."""
    if isinstance(details, dict) and set(details) == {"message", "code"}:
        yield fault(path, details["code"], str(details["message"]))
    elif isinstance(details, dict):
        for name, inner in details.items():
            here = "" if name == "non_field_errors" else str(name)
            yield from _flat(inner, f"{path}.{here}".strip("."))
    else:
        for inner in details:
            yield from _flat(inner, path)


def _of_fields(error: ValidationError) -> Iterable[dict[str, str]]:
    """Faults of a use case, which names its own arguments."""
    fields = error.error_dict if hasattr(error, "error_dict") else {"": error.error_list}
    for name, found in fields.items():
        for one in found:
            yield fault("" if name == "__all__" else name, one.code or "invalid", " ".join(one.messages))


def _sum(errors: list[dict[str, str]]) -> str:
    return "; ".join(f"{error['path']}: {error['message']}" if error["path"] else error["message"] for error in errors)


def _is_ours(request: HttpRequest) -> bool:
    return request.path.startswith(_OURS) or request.path == "/api"


def bad_request(request: HttpRequest, exception: Exception) -> Any:
    """handler400: what Django itself refuses to read."""
    if not _is_ours(request):
        return defaults.bad_request(request, exception)
    if isinstance(exception, RequestDataTooBig):
        return problem(413, "too_large", "The body is larger than 5 MiB.")
    kind = "Suspicious request." if isinstance(exception, SuspiciousOperation) else "The request cannot be read."
    return problem(400, "bad_request", kind)


def permission_denied(request: HttpRequest, exception: Exception) -> Any:
    """handler403."""
    if not _is_ours(request):
        return defaults.permission_denied(request, exception)
    return problem(403, "permission_denied", "You may not do this.")


def not_found(request: HttpRequest, exception: Exception) -> Any:
    """handler404: unknown addresses."""
    if not _is_ours(request):
        return defaults.page_not_found(request, exception)
    return problem(404, "not_found", NOT_FOUND)


def server_error(request: HttpRequest) -> Any:
    """handler500: Django has logged the stack with the request id."""
    if not _is_ours(request):
        return defaults.server_error(request)
    return problem(500, "internal_error", "Something went wrong here. Tell us the request id.")
