"""The ASGI application: pages, API, event streams, the WebSocket and the gateway in one process."""

import os
from typing import cast

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "quality.settings")
django_application = get_asgi_application()

from channels.routing import ProtocolTypeRouter  # noqa: E402  (needs Django set up)

from quality.bodies import App, BodyLimit  # noqa: E402  (needs Django set up)
from quality.gateway.app import Gateway  # noqa: E402  (needs Django set up)
from quality.websocket.routing import websockets  # noqa: E402  (needs Django set up)
from tenants.start import refuse_unsafe_start  # noqa: E402  (needs Django set up)

refuse_unsafe_start()
application = ProtocolTypeRouter({"http": Gateway(BodyLimit(cast(App, django_application))), "websocket": websockets})
