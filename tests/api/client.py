"""A client of the API that sends a bearer token and JSON, through all of Django's request handling."""

import json
from typing import Any

from django.test import Client

from tenants.models import ApiToken, Membership, User


class Api:
    """Answers are Django's test responses; `raise_errors=False` shows the 500 a caller would get."""

    def __init__(self, text: str, token: ApiToken, member: Membership) -> None:
        self.text = text
        self.token = token
        self.member = member
        self.headers = {"Authorization": f"Bearer {text}"}
        self.client = Client()

    @property
    def user(self) -> User:
        return self.member.user

    def get(self, path: str, data: dict[str, Any] | None = None, **extra: Any) -> Any:
        return self.client.get(path, data, headers=self.headers, **extra)

    def post(self, path: str, body: Any = None, *, content_type: str = "application/json", **extra: Any) -> Any:
        """POST `body` as JSON; bytes are sent as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(path, data, content_type=content_type, headers=self.headers, **extra)

    def put(self, path: str, body: Any, **extra: Any) -> Any:
        """PUT `body` as JSON."""
        return self.client.put(path, json.dumps(body), content_type="application/json", headers=self.headers, **extra)

    def patch(self, path: str, body: Any, **extra: Any) -> Any:
        """PATCH `body` as JSON."""
        return self.client.patch(path, json.dumps(body), content_type="application/json", headers=self.headers, **extra)

    def delete(self, path: str, **extra: Any) -> Any:
        return self.client.delete(path, headers=self.headers, **extra)
