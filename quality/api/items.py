"""What hangs on an item beside its labels: tags, and whether it is in the archive. And the calls that are like one."""
# mypy: disable-error-code="assignment"
# (a field may be called `label`: REST framework takes declared fields off the class)

from typing import Any, ClassVar

from django import forms
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from quality import calls
from quality.api import shapes
from quality.api.base import TenantView, TokenRequest, in_scope, read_body, read_query
from quality.api.shapes import Person, StrictRequest
from quality.calls import CallPage
from quality.filters import CursorField, ListField, QueryForm
from quality.models import ToolCall
from quality.review import archive, similar, tags
from quality.review.blind import veiled_page
from quality.review.items import Item, NoSuchItem, item_of_call, item_of_turn
from tenants.models import Scope

GROUP = ["Tags and archive"]


class TagSerializer(serializers.Serializer):
    tag = serializers.CharField()
    by = Person()
    at = serializers.DateTimeField()


class MarksSerializer(serializers.Serializer):
    """The tags of an item, and whether it is in the archive."""

    callId = serializers.IntegerField(source="item.call_id", allow_null=True)
    turnId = serializers.IntegerField(source="item.turn_id")
    cycle = serializers.IntegerField(source="item.cycle")
    tags = TagSerializer(many=True)
    archived = serializers.BooleanField()


class TagNamesSerializer(serializers.Serializer):
    items = serializers.ListField(child=serializers.CharField())


class TagRequest(StrictRequest):
    tag = serializers.CharField(max_length=4 * tags.MAX_TAG_CHARS)


class TagQuery(QueryForm):
    tag = forms.CharField(max_length=tags.MAX_TAG_CHARS)


def told(item: Item) -> Response:
    marks = {"item": item, "tags": tags.tags_of(item), "archived": archive.is_archived(item)}
    return Response(MarksSerializer(marks).data)


class TagNamesView(TenantView):
    required_scope = Scope.READ

    @extend_schema(operation_id="listTags", tags=GROUP, responses=TagNamesSerializer)
    @in_scope
    def get(self, request: TokenRequest) -> Response:
        """All tags that any item has."""
        return Response({"items": calls.tag_names()})


class _TagsView(TenantView):
    required_scope = Scope.READ
    write_scope = Scope.FEEDBACK_WRITE

    def item(self, pk: int) -> Item:
        raise NotImplementedError


class CallTagsView(_TagsView):
    def item(self, pk: int) -> Item:
        return item_of_call(pk)

    @extend_schema(operation_id="getToolCallTags", tags=GROUP, responses=MarksSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """The tags of a call, and whether it is in the archive."""
        return told(self.item(pk))

    @extend_schema(operation_id="tagToolCall", tags=GROUP, request=TagRequest, responses=MarksSerializer)
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Tag a call. The same tag again changes nothing."""
        return tagged(self.item(pk), request)

    @extend_schema(
        operation_id="untagToolCall",
        tags=GROUP,
        parameters=[OpenApiParameter("tag", OpenApiTypes.STR, required=True)],
        responses=MarksSerializer,
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response:
        """Take a tag off a call."""
        return untagged(self.item(pk), request)


class TurnTagsView(_TagsView):
    def item(self, pk: int) -> Item:
        return item_of_turn(pk)

    @extend_schema(operation_id="getTurnTags", tags=GROUP, responses=MarksSerializer)
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """The tags of a turn's last reply, and whether it is in the archive."""
        return told(self.item(pk))

    @extend_schema(operation_id="tagTurn", tags=GROUP, request=TagRequest, responses=MarksSerializer)
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Tag a turn's last reply, such as one that made no call."""
        return tagged(self.item(pk), request)

    @extend_schema(
        operation_id="untagTurn",
        tags=GROUP,
        parameters=[OpenApiParameter("tag", OpenApiTypes.STR, required=True)],
        responses=MarksSerializer,
    )
    @in_scope
    def delete(self, request: TokenRequest, pk: int) -> Response:
        """Take a tag off a turn's last reply."""
        return untagged(self.item(pk), request)


def tagged(item: Item, request: TokenRequest) -> Response:
    wanted = read_body(TagRequest, request)
    tags.add([item], wanted["tag"], by=request.user, token=request.auth)
    return told(item)


def untagged(item: Item, request: TokenRequest) -> Response:
    form = read_query(TagQuery, request)
    tags.remove([item], form.cleaned_data["tag"], by=request.user, token=request.auth)
    return told(item)


class _MoveView(TenantView):
    """Into the archive, or out of it."""

    required_scope = Scope.FEEDBACK_WRITE
    into: ClassVar[bool]

    def moved(self, item: Item, request: TokenRequest) -> Response:
        move: Any = archive.archive if self.into else archive.restore
        move([item], by=request.user, token=request.auth)
        return told(item)


class ArchiveCallView(_MoveView):
    into = True

    @extend_schema(operation_id="archiveToolCall", tags=GROUP, request=None, responses=MarksSerializer)
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Put a call into the archive: lists and Review leave it out, nothing is deleted."""
        return self.moved(item_of_call(pk), request)


class RestoreCallView(_MoveView):
    into = False

    @extend_schema(operation_id="restoreToolCall", tags=GROUP, request=None, responses=MarksSerializer)
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Take a call out of the archive."""
        return self.moved(item_of_call(pk), request)


class ArchiveTurnView(_MoveView):
    into = True

    @extend_schema(operation_id="archiveTurn", tags=GROUP, request=None, responses=MarksSerializer)
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Put a turn's last reply into the archive: Review leaves it out."""
        return self.moved(item_of_turn(pk), request)


class RestoreTurnView(_MoveView):
    into = False

    @extend_schema(operation_id="restoreTurn", tags=GROUP, request=None, responses=MarksSerializer)
    @in_scope
    def post(self, request: TokenRequest, pk: int) -> Response:
        """Take a turn's last reply out of the archive."""
        return self.moved(item_of_turn(pk), request)


# --- similar calls ----------------------------------------------------------------------------------------------------
class SimilarQuery(QueryForm):
    by = ListField(required=False)
    unlabelled = forms.BooleanField(required=False)
    cursor = CursorField(required=False, max_length=200)


class LikenessSerializer(serializers.Serializer):
    """`equal` of `whole` arguments are the same. Faults are kinds of faults, and `hint:<rule>:<JSON pointer>`."""

    by = serializers.ListField(child=serializers.ChoiceField(choices=list(similar.BY)))
    faults = serializers.ListField(child=serializers.CharField())
    sameError = serializers.BooleanField(source="error")
    sameShape = serializers.BooleanField(source="same_shape")
    equal = serializers.IntegerField()
    whole = serializers.IntegerField()


class SimilarSerializer(serializers.Serializer):
    call = shapes.CallSerializer(source="row")
    likeness = LikenessSerializer()


class SimilarPageSerializer(serializers.Serializer):
    """The most similar first. `seen` calls of the tool were looked through; `nextCursor` looks further back."""

    items = SimilarSerializer(many=True)
    similar = serializers.IntegerField(help_text="How many were found; at most 100 are told.")
    seen = serializers.IntegerField()
    nextCursor = serializers.CharField(allow_null=True)


class SimilarView(TenantView):
    required_scope = Scope.READ

    @extend_schema(
        operation_id="findSimilarToolCalls",
        tags=["Tool calls"],
        parameters=[
            OpenApiParameter("by", OpenApiTypes.STR, many=True, enum=list(similar.BY)),
            OpenApiParameter("unlabelled", OpenApiTypes.BOOL),
            OpenApiParameter("cursor", OpenApiTypes.STR),
        ],
        responses=SimilarPageSerializer,
    )
    @in_scope
    def get(self, request: TokenRequest, pk: int) -> Response:
        """Calls of the same tool with the same fault, the same kind of error, or nearly the same arguments."""
        if not ToolCall.objects.filter(pk=pk).exists():
            raise NoSuchItem
        data = read_query(SimilarQuery, request).cleaned_data
        found = similar.find(
            pk,
            user=request.user,
            by=data["by"] or similar.BY,
            unlabelled=data["unlabelled"],
            cursor=data["cursor"],
        )
        page = veiled_page(CallPage(rows=[one.row for one in found.calls], next=None, previous=None), request.user)
        told_calls = [{"row": row, "likeness": one.likeness} for row, one in zip(page.rows, found.calls, strict=True)]
        body = {"items": told_calls, "similar": found.num_similar, "seen": found.num_seen, "nextCursor": found.older}
        return Response(SimilarPageSerializer(body).data)
