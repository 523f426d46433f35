"""Saved views: filters under a name. All functions need an open tenant scope.

A view is its owner's; shared, every member sees it, and its owner or an admin changes it. The query is kept as it was
saved: whoever opens it reads it by the filter that there is now.
"""

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext as _

from quality.ingest.jsontext import storable
from quality.models import DefaultView, SavedView, ViewPage
from tenants import audit
from tenants.models import ApiToken, Membership, Role, User

MAX_VIEWS = 200  # of one person and page
MAX_QUERY_CHARS = 4_000


class NoSuchView(LookupError):
    """There is no such view, or it is somebody else's alone."""


def visible(user: User, page: str = "") -> Sequence[SavedView]:
    """A person's own views and the shared ones, one's own first, then by name; with `owner` loaded."""
    rows = SavedView.objects.filter(Q(owner=user) | Q(is_shared=True), deleted_at=None).select_related("owner")
    if page:
        rows = rows.filter(page=page)
    return sorted(rows, key=lambda view: (view.page, view.owner_id != user.pk, view.name.casefold(), view.pk))


def view_of(pk: int, user: User) -> SavedView:
    """One view; raises NoSuchView."""
    view = (
        SavedView.objects.filter(Q(owner=user) | Q(is_shared=True), pk=pk, deleted_at=None)
        .select_related("owner")
        .first()
    )
    if view is None:
        raise NoSuchView(_("There is no such view. It was deleted, or it is somebody else's."))
    return view


def may_change(view: SavedView, membership: Membership) -> bool:
    """Its owner changes a view; an admin a shared one, too."""
    return view.owner_id == membership.user_id or (view.is_shared and membership.may(Role.ADMIN))


@transaction.atomic
def save(
    *, page: str, name: str, query: str, by: Membership, is_shared: bool = False, token: ApiToken | None = None
) -> SavedView:
    """Keep a filter under a name. Raises ValidationError, and PermissionDenied for who may not share."""
    if page not in ViewPage.values:
        raise ValidationError(
            {
                "page": ValidationError(
                    _("Use one of %(allowed)s.") % {"allowed": ", ".join(ViewPage.values)}, code="unknown"
                )
            }
        )
    if is_shared:
        _check_may_share(by)
    if SavedView.objects.filter(owner=by.user, page=page, deleted_at=None).count() >= MAX_VIEWS:
        message = _("You have %(n)s views of this page. Delete some first.") % {"n": MAX_VIEWS}
        raise ValidationError({"name": ValidationError(message, code="too_many")})
    view = SavedView(page=page, name=_named(name), query=_query(query), owner=by.user, is_shared=is_shared)
    _check_name(view)
    view.save(force_insert=True)
    _record("view.saved", view, by, token)
    return view


@transaction.atomic
def change(view: SavedView, *, by: Membership, token: ApiToken | None = None, **fields: Any) -> SavedView:
    """Change `name`, `query`, `is_shared` or `is_pinned`. Raises ValidationError and PermissionDenied."""
    if not may_change(view, by):
        raise PermissionDenied(_("Only its owner, or an admin, changes a shared view."))
    if fields.get("is_shared") and not view.is_shared:
        _check_may_share(by)
    if "name" in fields:
        fields["name"] = _named(fields["name"])
    if "query" in fields:
        fields["query"] = _query(fields["query"])
    for name, value in fields.items():
        setattr(view, name, value)
    if "name" in fields:
        _check_name(view)
    view.updated_at = timezone.now()
    view.save(update_fields=[*fields, "updated_at"])
    if fields.get("is_shared") is False:  # what nobody else sees is nobody else's beginning
        DefaultView.objects.filter(view=view).exclude(user=view.owner_id).delete()
    _record("view.changed", view, by, token)
    return view


@transaction.atomic
def delete(view: SavedView, *, by: Membership, token: ApiToken | None = None) -> None:
    """Delete a view, for everybody. Raises PermissionDenied."""
    if not may_change(view, by):
        raise PermissionDenied(_("Only its owner, or an admin, deletes a shared view."))
    SavedView.objects.filter(pk=view.pk).update(deleted_at=timezone.now())
    _record("view.deleted", view, by, token)


@transaction.atomic
def restore(pk: int, *, by: Membership, token: ApiToken | None = None) -> SavedView:
    """Undo a deletion; under another name if the name is taken by now. Raises NoSuchView and PermissionDenied."""
    view = SavedView.objects.filter(pk=pk, deleted_at__isnull=False).select_related("owner").first()
    if view is None or (view.owner_id != by.user_id and not view.is_shared):
        raise NoSuchView(_("There is no such view. It was deleted, or it is somebody else's."))
    if not may_change(view, by):
        raise PermissionDenied(_("Only its owner, or an admin, changes a shared view."))
    number = 2
    name = view.name
    while _is_taken(view):
        view.name = f"{name[:70]} ({number})"
        number += 1
    view.deleted_at = None
    view.save(update_fields=["name", "deleted_at"])
    _record("view.restored", view, by, token)
    return view


def default_of(user: User, page: str) -> SavedView | None:
    """The view that a page begins with for this person."""
    chosen = (
        DefaultView.objects.filter(Q(view__owner=user) | Q(view__is_shared=True), user=user, page=page)
        .filter(view__deleted_at=None)
        .select_related("view")
        .first()
    )
    return chosen.view if chosen else None


def begin_with(view: SavedView, user: User, *, is_default: bool) -> None:
    """Let the view's page begin with it for this person, or no longer."""
    if is_default:
        DefaultView.objects.update_or_create(user=user, page=view.page, defaults={"view": view})
    else:
        DefaultView.objects.filter(user=user, view=view).delete()


def _check_may_share(by: Membership) -> None:
    if not by.may(Role.OPERATOR):
        raise PermissionDenied(_("To share a view needs the role Operator."))


def _named(text: str) -> str:
    name = " ".join(text.split())
    if not name:
        raise ValidationError({"name": ValidationError(_("Give the view a name."), code="required")})
    if len(name) > 80 or name != storable(name):
        raise ValidationError({"name": ValidationError(_("The name takes 80 visible characters."), code="too_long")})
    return name


def _query(text: str) -> str:
    if len(text) > MAX_QUERY_CHARS or text != storable(text):
        raise ValidationError({"query": ValidationError(_("The filter is too long to be saved."), code="too_long")})
    return text


def _is_taken(view: SavedView) -> bool:
    same = SavedView.objects.filter(page=view.page, owner=view.owner_id, name=view.name, deleted_at=None)
    return same.exclude(pk=view.pk).exists()


def _check_name(view: SavedView) -> None:
    if _is_taken(view):
        message = _("You have a view of this name already. Choose another name.")
        raise ValidationError({"name": ValidationError(message, code="taken")})


def _record(action: str, view: SavedView, by: Membership, token: ApiToken | None) -> None:
    audit.record(
        action,
        object_type="saved_view",
        object_id=view.pk,
        actor=by.user,
        token=token,
        detail={"page": view.page, "name": view.name, "shared": view.is_shared},
    )
