"""One's own keys of Review: all actions, what is wrong with a key told beside it, and the way back to the table's."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from quality.review.keys import ACTIONS, FIXED, GROUPS, KeyMap, changed, key_map

TEMPLATE = "people/keys.html"


@require_http_methods(["GET", "POST"])
@login_required
def account_keys(request: HttpRequest) -> HttpResponse:
    """Set one's keys as a whole; `reset` gives back those of the table."""
    keys = key_map(request.user)
    if request.method == "GET":
        return render(request, TEMPLATE, _context(keys.keys, {}))
    sent = {} if "reset" in request.POST else {name: request.POST.get(name, key) for name, key in keys.keys.items()}
    try:
        own = changed({name: key.strip() for name, key in sent.items()})
    except ValidationError as error:
        return render(request, TEMPLATE, _context(sent, error.message_dict), status=422)
    user: Any = request.user
    user.review_settings = {**user.review_settings, "keys": own}
    user.save(update_fields=["review_settings"])
    messages.success(request, _("Your keys are set.") if own else _("Your keys are the usual ones again."))
    return redirect("account-keys")


def _context(keys: dict[str, str], faults: dict[str, list[str]]) -> dict[str, Any]:
    usual = KeyMap()
    return {
        "faults": faults,
        "groups": [
            (
                words,
                [
                    {
                        "action": action,
                        "key": keys.get(action.name, action.key),
                        "usual": usual[action.name],
                        "faults": faults.get(action.name, []),
                    }
                    for action in ACTIONS.values()
                    if action.group == group
                ],
            )
            for group, words in GROUPS.items()
        ],
        "fixed": FIXED.items(),
    }
