"""An export as the answer to a request, for pages and API alike."""

from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.http import parse_etags

from quality import export, streaming
from quality.export import Order, Reader
from tenants.models import Tenant
from tenants.scope import tenant_scope


def send(
    request: HttpRequest, order: Order, *, tenant: Tenant, reader: Reader, filename: str = "", tagged: bool = False
) -> HttpResponseBase:
    """The file, or 304 if the client has it by its entity tag. Call it in no scope; raises Busy.

    The audit log says that it was exported only once it is on its way, and says so too where it was refused.
    """
    chunks = export.lines(order, tenant_id=tenant.pk, reader=reader, tagged=tagged)
    try:
        pieces = streaming.InThread(chunks)
    except streaming.Busy:
        with tenant_scope(tenant):
            export.audited(order, reader, action="export.refused", reason="busy", kind=order.kind)
        raise
    headers = {}
    try:
        if tagged and (tag := next(pieces).decode()):
            headers["ETag"] = tag
            if tag in parse_etags(request.headers.get("If-None-Match", "")):
                pieces.close()
                return HttpResponse(status=304, headers=headers)
        with tenant_scope(tenant):
            export.audited(order, reader)
    except BaseException:
        pieces.close()
        raise
    if not connection.in_atomic_block:
        connection.close()  # else this thread would keep one for as long as the other sends
    return streaming.answer(
        request, pieces, content_type=order.media_type, filename=filename or order.filename, headers=headers
    )
