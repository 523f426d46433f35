"""/healthz says whether the process may serve."""

from collections.abc import Iterator

import pytest
from django.db import OperationalError, connections
from django.test import Client

from quality.api import health


def test_a_healthy_service_says_so(db: None) -> None:
    response = Client().get("/healthz")
    assert response.status_code == 200
    assert response.json() == {"status": "ok", "checks": {"database": "ok", "role": "ok", "migrations": "ok"}}


def test_a_database_that_does_not_answer_is_503(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise OperationalError("connection to 10.0.0.7 refused")

    monkeypatch.setattr(health, "runtime_role_fault", fail)
    response = Client().get("/healthz")
    assert response.status_code == 503
    assert response.json()["checks"] == {"database": "The database does not answer."}
    assert b"10.0.0.7" not in response.content


@pytest.fixture
def forgotten_migration(db: None) -> Iterator[None]:
    with connections["owner"].cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'quality' AND name = '0002_row_security'")
        yield
        cursor.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('quality', '0002_row_security', now())"
        )


def test_missing_migrations_are_503(forgotten_migration: None) -> None:
    response = Client().get("/healthz")
    assert response.status_code == 503
    assert "1 migrations are not applied" in response.json()["checks"]["migrations"]


def test_a_role_that_row_security_does_not_bind_is_503(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "connection", connections["owner"])
    response = Client().get("/healthz")
    assert response.status_code == 503
    assert "every tenant" in response.json()["checks"]["role"]


def test_nobody_writes_to_it(db: None) -> None:
    assert Client().post("/healthz").status_code == 405
