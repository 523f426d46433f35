"""What a process without event streams (WSGI) says at the gateway's addresses; elsewhere `app` answers first."""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from quality.gateway.errors import OURS, GatewayError


@csrf_exempt
def elsewhere(request: HttpRequest, **_: object) -> HttpResponse:
    message = "The gateway is served by the live process (ASGI), not by this one. Let the proxy send /v1/ there."
    error = GatewayError(503, OURS, "not_live", message)
    return HttpResponse(error.body, status=error.status, content_type="application/json")
