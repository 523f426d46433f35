"""Filters as they stand in a query string, for pages and API alike.

Parameters: `conversation`, `message`, `outbound_message`, `contact`, `tool` (may repeat), `error` (yes, no, none),
`source`, `style`, `model`, `toolset`, `label` (may repeat; `none` = without label), `hint` (may repeat; `any` = of any
rule), `tag` (may repeat), `archived` (yes: nothing else, any: with it; else it is left out), `from`, `to` (date, or
date and time), `arrived_to` (when the call came in here), `cursor`, `page_size`, `count` (true: count the matches),
`limit` and `status` (of an export).
"""

import datetime as dt
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext as _

from quality.calls import (
    ANY_HINT,
    MAX_PAGE_SIZE,
    ONLY_ARCHIVED,
    PAGE_SIZE,
    UNLABELLED,
    WITH_ARCHIVED,
    BadCursor,
    CallFilter,
    Cursor,
)
from quality.export import CaseFilter, FeedbackFilter, Filter, Order, Part, ProposalFilter
from quality.models import CaseStatus, Label, ProposalState
from quality.review.hints import BY_NAME

FIRST_YEAR = 1900  # older times are slips, and arithmetic on the first ones overflows
_SPELLED = {
    "since": "from",
    "until": "to",
    "arrived_until": "arrived_to",
    "tools": "tool",
    "labels": "label",
    "hints": "hint",
    "tags": "tag",
    "statuses": "status",
}
ARCHIVED = [(ONLY_ARCHIVED, "Only the archive"), (WITH_ARCHIVED, "With the archive")]


class ListField(forms.Field):
    """A parameter that may repeat."""

    widget = forms.SelectMultiple

    def clean(self, value: Any) -> tuple[str, ...]:
        single = forms.CharField(max_length=200)
        return tuple(dict.fromkeys(single.clean(item) for item in value or [] if item))


class LabelsField(ListField):
    """Labels; also `none` unless `unlabelled` is False."""

    def __init__(self, *, unlabelled: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.allowed = [*Label.values, *([UNLABELLED] if unlabelled else [])]

    def clean(self, value: Any) -> tuple[str, ...]:
        labels = super().clean(value)
        for label in labels:
            if label not in self.allowed:
                allowed = ", ".join(self.allowed)
                told = _("%(given)s is no label. Use one of %(allowed)s.") % {"given": repr(label), "allowed": allowed}
                raise ValidationError(told, code="unknown_label")
        return labels


class HintsField(ListField):
    """Names of rules of hints, or `any`."""

    def clean(self, value: Any) -> tuple[str, ...]:
        hints = super().clean(value)
        for hint in hints:
            if hint != ANY_HINT and hint not in BY_NAME:
                allowed = ", ".join((ANY_HINT, *BY_NAME))
                told = _("%(given)s is no hint. Use one of %(allowed)s.") % {"given": repr(hint), "allowed": allowed}
                raise ValidationError(told, code="unknown_hint")
        return hints


class StatusesField(ListField):
    """States out of `choices`."""

    def __init__(self, *, choices: list[str], **options: Any) -> None:
        super().__init__(**options)
        self.allowed = choices

    def clean(self, value: Any) -> tuple[str, ...]:
        statuses = super().clean(value)
        for status in statuses:
            if status not in self.allowed:
                allowed = ", ".join(self.allowed)
                told = _("%(given)s is no status. Use one of %(allowed)s.") % {
                    "given": repr(status),
                    "allowed": allowed,
                }
                raise ValidationError(told, code="unknown_status")
        return statuses


class MomentField(forms.CharField):
    """A date, or a date and time, in ISO form. Without a zone it is in the viewer's (the API's is UTC).

    `end=True`: a bare date means all of that day, so the moment is the next midnight.
    """

    def __init__(self, *, end: bool = False, **options: Any) -> None:
        super().__init__(max_length=40, **options)
        self.end = end

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text:
            return None
        text = text.replace(" ", "+" if "T" in text else "T")  # an unescaped + arrives as a blank
        try:
            day = parse_date(text)
            if day and day.year >= FIRST_YEAR:
                start = dt.datetime.combine(day + dt.timedelta(days=self.end), dt.time())
                return timezone.make_aware(start)
            moment = parse_datetime(text)
            if moment is None or moment.year < FIRST_YEAR:
                raise ValueError
            return moment if timezone.is_aware(moment) else timezone.make_aware(moment)
        except (ValueError, OverflowError) as error:
            told = _("%(given)s is no time. Write 2026-03-01 or 2026-03-01T14:30:00Z.") % {"given": repr(value)}
            raise ValidationError(told, code="invalid_time") from error


class ToolsetField(forms.RegexField):
    def __init__(self, **options: Any) -> None:
        told = {"invalid": "A toolset is named by its SHA-256, 64 hexadecimal digits."}
        super().__init__(r"^[0-9a-f]{64}\Z", max_length=64, error_messages=told, **options)


class QueryForm(forms.Form):
    """A form over a query string whose fields are spelled as the parameters are."""

    def add_prefix(self, field_name: str) -> str:
        return _SPELLED.get(field_name, field_name)

    def unknown(self) -> list[str]:
        """Parameters that no field reads: most likely a slip, which would silently widen the list."""
        known = {self.add_prefix(name) for name in self.fields}
        return sorted(set(self.data) - known)

    def faults(self) -> list[dict[str, str]]:
        """Each error as `path`, `code`, `message`."""
        return [
            {"path": self.add_prefix(field), "code": error.code or "invalid", "message": " ".join(error.messages)}
            for field, errors in self.errors.as_data().items()
            for error in errors
        ]


class CallFilterForm(QueryForm):
    conversation = forms.CharField(required=False, max_length=512)
    message = forms.CharField(required=False, max_length=512)
    outbound_message = forms.CharField(required=False, max_length=512)
    contact = forms.CharField(required=False, max_length=512)
    tools = ListField(required=False)
    error = forms.ChoiceField(
        required=False, choices=[("yes", "Failed"), ("no", "Worked"), ("none", "No outcome recorded")]
    )
    source = forms.CharField(required=False, max_length=200)
    style = forms.CharField(required=False, max_length=200)
    model = forms.CharField(required=False, max_length=200)
    toolset = ToolsetField(required=False)
    labels = LabelsField(required=False)
    hints = HintsField(required=False)
    tags = ListField(required=False)
    archived = forms.ChoiceField(required=False, choices=ARCHIVED)
    since = MomentField(required=False)
    until = MomentField(required=False, end=True)
    arrived_until = MomentField(required=False)

    @property
    def wanted(self) -> CallFilter:
        """The filter; only of a valid form."""
        fields = CallFilter.__dataclass_fields__
        return CallFilter(**{name: value for name, value in self.cleaned_data.items() if name in fields})


class CursorField(forms.CharField):
    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        try:
            return Cursor.read(text) if text else None
        except BadCursor as error:
            raise ValidationError(str(error), code="bad_cursor") from error


class CallListForm(CallFilterForm):
    """The filter with the place in the list."""

    cursor = CursorField(required=False, max_length=200)
    page_size = forms.IntegerField(required=False, min_value=1, max_value=MAX_PAGE_SIZE)
    count = forms.BooleanField(required=False)

    @property
    def page_size_or_default(self) -> int:
        return self.cleaned_data["page_size"] or PAGE_SIZE


class PeriodForm(QueryForm):
    """A period, and which calls of it."""

    tools = ListField(required=False)
    style = forms.CharField(required=False, max_length=200)
    model = forms.CharField(required=False, max_length=200)
    source = forms.CharField(required=False, max_length=200)
    toolset = ToolsetField(required=False)
    since = MomentField(required=False)
    until = MomentField(required=False, end=True)

    def clean(self) -> dict[str, Any]:
        fields = super().clean() or {}
        since, until = fields.get("since"), fields.get("until")
        if since and until and since >= until:
            self.add_error("until", ValidationError(_("The period ends before it begins."), code="empty_period"))
        return fields

    @property
    def wanted(self) -> CallFilter:
        """The filter; only of a valid form."""
        return CallFilter(**self.cleaned_data)


class ExportForm(QueryForm):
    """What of one kind is to be exported, and which part of it."""

    limit = forms.IntegerField(required=False, min_value=1, max_value=2**31)
    cursor = CursorField(required=False, max_length=200)
    filter_class: type[Any]

    @property
    def wanted(self) -> Any:
        """The filter, a `filter_class`; only of a valid form."""
        fields = self.filter_class.__dataclass_fields__
        return self.filter_class(**{name: self.cleaned_data[name] for name in fields if name != "viewer"})

    @property
    def order(self) -> Order:
        part = Part(limit=self.cleaned_data["limit"], cursor=self.cleaned_data["cursor"])
        return Order(wanted=self.wanted, part=part)


class FeedbackExportForm(ExportForm):
    labels = LabelsField(required=False, unlabelled=False)
    since = MomentField(required=False)
    until = MomentField(required=False, end=True)
    filter_class = FeedbackFilter


class CallExportForm(ExportForm, CallFilterForm):
    """The filter of the list."""

    filter_class = CallFilter


class CaseExportForm(ExportForm):
    statuses = StatusesField(required=False, choices=CaseStatus.values)
    labels = LabelsField(required=False, unlabelled=False)
    tools = ListField(required=False)
    filter_class = CaseFilter


class ProposalExportForm(ExportForm):
    statuses = StatusesField(required=False, choices=ProposalState.values)
    labels = LabelsField(required=False, unlabelled=False)
    tools = ListField(required=False)
    filter_class = ProposalFilter


def query_of(wanted: Filter) -> str:
    """The filter as a query string that means the same in every time zone."""
    query = QueryDict(mutable=True)
    for name, value in vars(wanted).items():
        if name == "viewer":
            continue  # who looks is no part of a filter
        values = value if isinstance(value, tuple) else [value] if value else []
        if values:
            written = [one.isoformat() if isinstance(one, dt.datetime) else one for one in values]
            query.setlist(_SPELLED.get(name, name), written)
    return query.urlencode()


EXPORT_FORMS: dict[str, type[ExportForm]] = {
    "calls": CallExportForm,
    "feedback": FeedbackExportForm,
    "cases": CaseExportForm,
    "proposals": ProposalExportForm,
}
