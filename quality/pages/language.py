"""The language of the interface, chosen by the person: kept on the account, and in a cookie for before the sign-in."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from quality import languages


@require_POST
def choose(request: HttpRequest) -> HttpResponse:
    """Remember the language and go back to the page the choice was made on; empty: as the browser wishes."""
    target = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(target, allowed_hosts=None):
        target = "/"
    code = languages.known(request.POST.get("language", ""))
    if request.user.is_authenticated:
        request.user.language = code
        request.user.save(update_fields=["language"])
    response = redirect(target)
    if code:
        response.set_cookie(languages.COOKIE, code, max_age=365 * 24 * 3600, samesite="Lax", httponly=True)
    else:
        response.delete_cookie(languages.COOKIE, samesite="Lax")
    return response
