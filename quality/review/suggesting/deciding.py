"""What people make of suggestions: taken or overruled by the label itself. Needs an open tenant scope."""

from django.utils import timezone

from quality.models import FeedbackEvent, Suggestion
from quality.review import blind
from quality.review.items import Item

State = Suggestion.State


def after(event: FeedbackEvent, item: Item) -> None:
    """Bring the suggestion of an item up to a label or an undo. Who could not see it neither took nor overruled it;
    the first who could decides, and again when he changes his mind."""
    found = Suggestion.objects.filter(**item.key).first()
    if found is None or blind.hides(event.reviewer, item):
        return
    if found.decided_by_id not in (None, event.reviewer_id):
        return
    if event.label is None:
        found.state, found.decided_by, found.decided_label, found.decided_at = State.OPEN, None, None, None
    else:
        found.state = State.ACCEPTED if event.label == found.label else State.OVERRULED
        found.decided_by, found.decided_label, found.decided_at = event.reviewer, event.label, timezone.now()
    found.save(update_fields=["state", "decided_by", "decided_label", "decided_at"])
