"""Filters of groups, proposals and cases as they stand in a query string, for pages and API alike.

Parameters: `label`, `state` and `status` (may repeat), `tool`, `style`, `fault`, `tag`, `proposal`, `q`, `order`,
`cursor`, `page_size`.
"""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from quality.filters import LabelsField, ListField, QueryForm
from quality.improve import cases, groups, proposals
from quality.improve.cases import CaseFilter
from quality.improve.groups import GroupFilter
from quality.improve.proposals import ProposalFilter
from quality.models import CaseStatus, ProposalState

_SPELLED = {"labels": "label", "states": "state", "statuses": "status", "query": "q", "proposal_id": "proposal"}


class WordsField(ListField):
    """Words of a fixed set; may repeat."""

    def __init__(self, allowed: tuple[str, ...] | list[str], **options: Any) -> None:
        super().__init__(**options)
        self.allowed = allowed

    def clean(self, value: Any) -> tuple[str, ...]:
        words = super().clean(value)
        for word in words:
            if word not in self.allowed:
                told = _("%(value)s is none of %(known)s.") % {"value": repr(word), "known": ", ".join(self.allowed)}
                raise ValidationError(told, code="unknown_value")
        return words


class ListForm(QueryForm):
    """A filter with a place in its list."""

    cursor = forms.CharField(required=False, max_length=3_000)
    page_size = forms.IntegerField(required=False, min_value=1, max_value=200)

    def add_prefix(self, field_name: str) -> str:
        return _SPELLED.get(field_name, field_name)

    @property
    def place(self) -> dict[str, Any]:
        """Cursor and page size as the use cases take them; only of a valid form."""
        size = self.cleaned_data["page_size"]
        return {"cursor": self.cleaned_data["cursor"] or None} | ({"page_size": size} if size else {})

    def _fields_of(self, kind: Any) -> Any:
        known = {name: value for name, value in self.cleaned_data.items() if name in kind.__dataclass_fields__}
        return kind(**known)


class GroupForm(ListForm):
    labels = LabelsField(required=False, unlabelled=False)
    tool = forms.CharField(required=False, max_length=500)
    style = forms.CharField(required=False, max_length=200)
    fault = forms.CharField(required=False, max_length=400)
    states = WordsField(groups.STATES, required=False)
    order = forms.ChoiceField(
        required=False, choices=[("newest", gettext_lazy("Newest first")), ("largest", gettext_lazy("Largest first"))]
    )
    page_size = forms.IntegerField(required=False, min_value=1, max_value=groups.MAX_PAGE_SIZE)

    @property
    def wanted(self) -> GroupFilter:
        return self._fields_of(GroupFilter)

    @property
    def order_or_default(self) -> groups.Order:
        return "largest" if self.cleaned_data["order"] == "largest" else "newest"


class ProposalForm(ListForm):
    states = WordsField(ProposalState.values, required=False)
    labels = LabelsField(required=False, unlabelled=False)
    tool = forms.CharField(required=False, max_length=500)
    style = forms.CharField(required=False, max_length=200)
    fault = forms.CharField(required=False, max_length=400)
    page_size = forms.IntegerField(required=False, min_value=1, max_value=proposals.MAX_PAGE_SIZE)

    @property
    def wanted(self) -> ProposalFilter:
        return self._fields_of(ProposalFilter)


class CaseForm(ListForm):
    statuses = WordsField(CaseStatus.values, required=False)
    labels = LabelsField(required=False, unlabelled=False)
    tool = forms.CharField(required=False, max_length=500)
    tag = forms.CharField(required=False, max_length=60)
    proposal_id = forms.IntegerField(required=False, min_value=1, max_value=2**63 - 1)
    query = forms.CharField(required=False, max_length=200)
    page_size = forms.IntegerField(required=False, min_value=1, max_value=cases.MAX_PAGE_SIZE)

    @property
    def wanted(self) -> CaseFilter:
        return self._fields_of(CaseFilter)
