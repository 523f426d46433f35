"""Tags and the archive, on the page of one item."""

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import Http404, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from quality.pages.access import TenantRequest, tenant_view
from quality.review import archive, tags
from quality.review.items import Item, NoSuchItem, item_of_name
from tenants.models import Role


@require_POST
@tenant_view(Role.OPERATOR)
def item_mark(request: TenantRequest) -> HttpResponse:
    """Tag the item named, take a tag off, archive or restore it; back to its page."""
    try:
        item = item_of_name(request.POST.get("item", ""))
    except NoSuchItem as error:
        raise Http404(str(error)) from error
    try:
        _carry_out(request, item, request.POST.get("step", ""))
    except ValidationError as error:
        messages.error(request, " ".join(error.messages))
    name, pk = ("call-detail", item.call_id) if item.call_id else ("turn-detail", item.turn_id)
    return redirect(name, slug=request.tenant.slug, pk=pk)


def _carry_out(request: TenantRequest, item: Item, step: str) -> None:
    tag = request.POST.get("tag", "")
    if step == "tag":
        if tags.add([item], tag, by=request.user)[1]:
            messages.warning(request, _("It has as many tags as it can have. Take one off first."))
    elif step == "untag":
        tags.remove([item], tag, by=request.user)
    elif step == "archive":
        archive.archive([item], by=request.user)
    elif step == "restore":
        archive.restore([item], by=request.user)
    else:
        raise Http404("There is no such step.")
