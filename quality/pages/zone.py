"""The time zone of the pages: the browser's, or one that the person chose."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from quality.middleware import CHOSEN_ZONE, usable_zone


def chosen(request: HttpRequest) -> str:
    """The zone that was chosen in this browser; empty: the browser's own."""
    return usable_zone(request.COOKIES.get(CHOSEN_ZONE, ""))


@require_POST
def choose(request: HttpRequest) -> HttpResponse:
    """Remember the zone for a year and go back to the page the choice was made on; empty: the browser's own."""
    target = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(target, allowed_hosts=None):
        target = "/"
    said = request.POST.get("zone", "").strip()
    zone = usable_zone(said)
    response = redirect(target)
    if zone:
        # Not for the server alone: the script that tells the browser's own zone looks whether one was chosen.
        response.set_cookie(CHOSEN_ZONE, zone, max_age=365 * 24 * 3600, samesite="Lax")
    elif said:
        messages.error(request, _("%(zone)s is no time zone. Choose one of the list.") % {"zone": said[:60]})
    else:
        response.delete_cookie(CHOSEN_ZONE, samesite="Lax")
    return response
