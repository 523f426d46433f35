"""Saved views over the API."""
# mypy: disable-error-code="assignment"
# (a field may be called `source`: REST framework takes declared fields off the class)

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from quality.api.base import TenantView, TokenRequest, in_scope, read_body
from quality.api.problems import InvalidRequest, fault
from quality.api.shapes import Person, StrictRequest
from quality.models import SavedView, ViewPage
from quality.review import views
from quality.review.items import NoSuchItem
from tenants.models import Membership, Scope

GROUP = ["Saved views"]
_SPELLED = {"name": "name", "filter": "query", "shared": "is_shared", "pinned": "is_pinned"}


class ViewSerializer(serializers.Serializer):
    """A filter under a name. `filter` is a query string of the page."""

    id = serializers.IntegerField()
    page = serializers.ChoiceField(choices=ViewPage.choices)
    name = serializers.CharField()
    filter = serializers.CharField(source="query")
    shared = serializers.BooleanField(source="is_shared")
    pinned = serializers.BooleanField(source="is_pinned")
    owner = Person()
    createdAt = serializers.DateTimeField(source="created_at")
    updatedAt = serializers.DateTimeField(source="updated_at")


class ViewsSerializer(serializers.Serializer):
    items = ViewSerializer(many=True)


class NewViewRequest(StrictRequest):
    page = serializers.ChoiceField(choices=ViewPage.choices)
    name = serializers.CharField(max_length=400)
    filter = serializers.CharField(allow_blank=True, max_length=views.MAX_QUERY_CHARS)
    shared = serializers.BooleanField(required=False, default=False)


class ChangeViewRequest(StrictRequest):
    name = serializers.CharField(required=False, max_length=400)
    filter = serializers.CharField(required=False, allow_blank=True, max_length=views.MAX_QUERY_CHARS)
    shared = serializers.BooleanField(required=False)
    pinned = serializers.BooleanField(required=False)


def _member(request: TokenRequest) -> Membership:
    return Membership.objects.select_related("user").get(user=request.user)


def _view(pk: int, request: TokenRequest) -> SavedView:
    try:
        return views.view_of(pk, request.user)
    except views.NoSuchView as error:
        raise NoSuchItem from error


class ViewsView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.FEEDBACK_WRITE

    @extend_schema(
        operation_id="listSavedViews",
        tags=GROUP,
        parameters=[OpenApiParameter("page", OpenApiTypes.STR, enum=ViewPage.values)],
        responses=ViewsSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """Your own views and the shared ones."""
        page = request.query_params.get("page", "")
        if page and page not in ViewPage.values:
            raise InvalidRequest([fault("page", "unknown", f"Use one of {', '.join(ViewPage.values)}.")])
        return Response({"items": ViewSerializer(views.visible(request.user, page), many=True).data})

    @extend_schema(operation_id="saveView", tags=GROUP, request=NewViewRequest, responses={201: ViewSerializer})
    @in_scope
    def post(self, request: TokenRequest) -> Response:
        """Keep a filter under a name."""
        wanted = read_body(NewViewRequest, request)
        view = views.save(
            page=wanted["page"],
            name=wanted["name"],
            query=wanted["filter"],
            is_shared=wanted["shared"],
            by=_member(request),
            token=request.auth,
        )
        return Response(ViewSerializer(view).data, status=201, headers={"Location": f"{request.path}/{view.pk}"})


class ViewView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.FEEDBACK_WRITE

    @extend_schema(operation_id="getSavedView", tags=GROUP, responses=ViewSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """One view."""
        return Response(ViewSerializer(_view(pk, request)).data)

    @extend_schema(operation_id="changeSavedView", tags=GROUP, request=ChangeViewRequest, responses=ViewSerializer)
    @in_scope
    def patch(self, request: TokenRequest, pk: int) -> Response:
        """Rename a view, give it another filter, share or pin it. Its owner may, and of a shared one an admin."""
        view = _view(pk, request)
        wanted = read_body(ChangeViewRequest, request)
        fields: dict[str, Any] = {_SPELLED[name]: value for name, value in wanted.items()}
        return Response(ViewSerializer(views.change(view, by=_member(request), token=request.auth, **fields)).data)

    @extend_schema(operation_id="deleteSavedView", tags=GROUP, responses={204: None})
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response:
        """Delete a view, for everybody. It can be restored."""
        views.delete(_view(pk, request), by=_member(request), token=request.auth)
        return Response(status=204)


class ViewRestoreView(TenantView):
    required_scope = Scope.FEEDBACK_WRITE

    @extend_schema(operation_id="restoreSavedView", tags=GROUP, request=None, responses=ViewSerializer)
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Undo the deletion of a view."""
        try:
            view = views.restore(pk, by=_member(request), token=request.auth)
        except views.NoSuchView as error:
            raise NoSuchItem from error
        return Response(ViewSerializer(view).data)
