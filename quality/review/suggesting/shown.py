"""What a reviewer sees of suggestions. Needs an open tenant scope."""

from quality.models import Suggestion
from quality.review import blind
from quality.review.items import Item
from tenants.models import User


def suggestion_for(item: Item, user: User) -> Suggestion | None:
    """What a model suggests for the item, as long as nobody decided on it and this user may see it."""
    found = Suggestion.objects.filter(**item.key, state=Suggestion.State.OPEN).first()
    return None if found is None or blind.hides(user, item) else found
