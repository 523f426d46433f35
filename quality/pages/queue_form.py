"""The form of a queue: its name, what comes into it, how it is served, who labels, and what they see."""

from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from quality.models import ReviewQueue
from quality.models.queues import MAX_LABELS_NEEDED
from quality.pages.call_filter import filter_query
from quality.review.queues.making import MAX_GUIDELINES_CHARS, QueueData, data_of
from quality.review.queues.people import labelling_members
from quality.review.sources import PARTS
from tenants.models import User

PART_WORDS: dict[str, str | Promise] = {
    "facts": _("Facts: time, model, source, outcome"),
    "earlier": _("Earlier turns of the conversation"),
    "system": _("System prompt"),
    "conversation": _("Conversation"),
    "hints": _("Hints"),
    "result": _("Result"),
    "offered": _("Tools that were offered"),
    "suggestion": _("Suggested label"),
    "later": _("Later turns of the conversation"),
}
ORDER_HELP: dict[str, str | Promise] = {
    "newest": _("What came in last is served first."),
    "errors": _("Calls that failed, then the rest."),
    "hints": _("Those with the most hints of rules, then the rest."),
    "spread": _("One call of each tool in turn."),
    "useful": _(
        "What a label tells most about: hints that proved right, rare tools, open questions. Each call says why."
    ),
}


class QueueForm(forms.Form):
    """Fields as QueueData has them; the filter is beside it, in the parameters of Calls."""

    name = forms.CharField(label=_("Name"), max_length=120, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    kind = forms.ChoiceField(label=_("Filled"), widget=forms.RadioSelect, initial=ReviewQueue.Kind.RULE)
    share = forms.FloatField(
        label=_("Share that is taken, in %"),
        min_value=0.01,
        max_value=100,
        initial=100,
        required=False,
        help_text=_("Of what passes the filter; the same calls whenever it is drawn."),
    )
    ordering = forms.ChoiceField(label=_("Order"), choices=ReviewQueue.Order.choices, initial=ReviewQueue.Order.NEWEST)
    labels_needed = forms.IntegerField(
        label=_("Labels needed"),
        min_value=1,
        max_value=MAX_LABELS_NEEDED,
        initial=1,
        help_text=_("Different reviewers that each call needs."),
    )
    is_blind = forms.BooleanField(label=_("Blind: nobody sees others’ answers before all are in"), required=False)
    counts_earlier = forms.BooleanField(label=_("Labels that a call has already count"), required=False, initial=True)
    everyone = forms.ChoiceField(
        label=_("Reviewers"),
        choices=[("1", _("Everyone who may label")), ("", _("Only these:"))],
        required=False,
        widget=forms.RadioSelect,
        initial="1",
    )
    reviewers = forms.MultipleChoiceField(label=_("Members"), required=False, widget=forms.CheckboxSelectMultiple)
    guidelines = forms.CharField(
        label=_("Guidelines of this queue"),
        required=False,
        max_length=MAX_GUIDELINES_CHARS,
        widget=forms.Textarea(attrs={"rows": 5}),
        help_text=_("Markdown, shown beside your organisation’s own."),
    )
    fields_shown = forms.MultipleChoiceField(
        label=_("Parts shown"),
        required=False,
        choices=[(part, PART_WORDS[part]) for part in PARTS],
        widget=forms.CheckboxSelectMultiple,
        initial=list(PARTS),
        help_text=_("Arguments and the labels are always there."),
    )

    def __init__(self, *args: Any, queue: ReviewQueue | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.queue = queue
        self.members: list[User] = list(labelling_members())
        kinds = (ReviewQueue.Kind.RULE, ReviewQueue.Kind.FIXED)
        cast(forms.ChoiceField, self.fields["kind"]).choices = [(kind.value, kind.label) for kind in kinds]
        cast(forms.ChoiceField, self.fields["reviewers"]).choices = [
            (str(user.pk), f"{user.name} · {user.email}" if user.name else user.email) for user in self.members
        ]
        if queue is not None:
            del self.fields["kind"]  # it stays what it is
        if self.is_adjudication:
            for name in ("is_blind", "counts_earlier"):
                del self.fields[name]

    @property
    def is_rule(self) -> bool:
        """Is, or may it be, filled by a filter?"""
        return self.queue is None or self.queue.kind == ReviewQueue.Kind.RULE

    @property
    def is_adjudication(self) -> bool:
        return self.queue is not None and self.queue.kind == ReviewQueue.Kind.ADJUDICATION

    @classmethod
    def of(cls, queue: ReviewQueue) -> "QueueForm":
        said = data_of(queue)
        initial = {
            "name": said.name,
            "kind": said.kind,
            "share": f"{said.sample_rate * 100:g}",
            "ordering": said.ordering,
            "labels_needed": said.labels_needed,
            "is_blind": said.is_blind,
            "counts_earlier": said.counts_earlier,
            "everyone": "1" if not said.reviewers else "",
            "reviewers": [str(pk) for pk in said.reviewers],
            "guidelines": said.guidelines,
            "fields_shown": list(said.fields or PARTS),
        }
        return cls(initial=initial, queue=queue)

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if not data.get("everyone") and not data.get("reviewers"):
            self.add_error("reviewers", ValidationError(gettext("Choose at least one member, or everyone.")))
        return data

    def data_for(self, query: QueryDict) -> QueueData:
        """What was said, with the filter of the query string; only of a valid form."""
        data = self.cleaned_data
        shown = data["fields_shown"]
        return QueueData(
            name=data["name"],
            kind=self.queue.kind if self.queue else data["kind"],
            query=filter_query(query).urlencode(),
            sample_rate=(data["share"] or 100) / 100,
            ordering=data["ordering"],
            labels_needed=data["labels_needed"],
            is_blind=data.get("is_blind", False),
            counts_earlier=data.get("counts_earlier", False),
            guidelines=data["guidelines"],
            fields=() if set(shown) == set(PARTS) else tuple(shown),
            reviewers=() if data["everyone"] else tuple(int(pk) for pk in data["reviewers"]),
        )

    def take_faults(self, error: ValidationError) -> None:
        """What the use case refused, told at its fields."""
        names = {"sample_rate": "share", "query": None}
        if not hasattr(error, "error_dict"):
            self.add_error(None, error)
            return
        for name, faults in error.message_dict.items():
            field = names.get(name, name)
            self.add_error(field if field in self.fields else None, faults)
