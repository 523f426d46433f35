"""A wrong value in the environment stops the start and names the variable."""

import os
import secrets
import subprocess
import sys

import pytest


def settings_with(**env: str) -> subprocess.CompletedProcess[str]:
    code = "from django.conf import settings; settings.DEBUG; print('started')"
    clean = {name: value for name, value in os.environ.items() if name not in env}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=clean | {"DJANGO_SETTINGS_MODULE": "quality.settings"} | env,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DEBUG", "perhaps"),
        ("DATABASE_URL", "sqlite:///lab.db"),
        ("DATABASE_OWNER_URL", "mysql://root@localhost/lab"),
        ("DATABASE_POOL_SIZE", "many"),
        ("LOG_LEVEL", "LOUD"),
        ("SECURE", "2"),
        ("SECRET_KEY", ""),
        ("SECRET_KEY", "short"),
        ("DATABASE_POOL_SIZE", "0"),
    ],
)
def test_a_wrong_value_stops_the_start_and_names_the_variable(name, value):
    done = settings_with(**{name: value})
    assert done.returncode != 0
    assert f"ImproperlyConfigured: {name}:" in done.stderr


def test_a_secret_may_come_from_a_file(tmp_path):
    secret = tmp_path / "key"
    secret.write_text("x" * 50)
    code = "from django.conf import settings; print(settings.SECRET_KEY)"
    env = {name: value for name, value in os.environ.items() if name != "SECRET_KEY"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env | {"DJANGO_SETTINGS_MODULE": "quality.settings", "SECRET_KEY_FILE": str(secret)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "x" * 50, done.stderr


def test_commands_that_need_no_database_start_with_nothing_set():
    bare = {name: os.environ[name] for name in ("PATH", "STATE_DIR")} | {"DJANGO_SETTINGS_MODULE": "quality.settings"}
    done = subprocess.run(
        [sys.executable, "manage.py", "makemigrations", "--check", "--dry-run"],
        env=bare,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def production(command: list[str]) -> subprocess.CompletedProcess[str]:
    """A command under the settings of a service that is reached over https alone."""
    served = {"SECURE": "true", "ALLOWED_HOSTS": "lab.example.com", "CSRF_TRUSTED_ORIGINS": "https://lab.example.com"}
    env = os.environ | {"DJANGO_SETTINGS_MODULE": "quality.settings", "SECRET_KEY": secrets.token_urlsafe(60)} | served
    return subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, timeout=60)


def test_the_check_for_deployment_finds_nothing_in_the_settings_of_production():
    done = production(["manage.py", "check", "--deploy", "--fail-level", "WARNING"])
    assert done.returncode == 0, done.stderr


def test_cookies_of_production_go_over_https_to_this_host_alone():
    names = ("SESSION_COOKIE_NAME", "CSRF_COOKIE_NAME", "SESSION_COOKIE_SECURE", "CSRF_COOKIE_SECURE")
    done = production(["-c", f"from django.conf import settings; print(*[getattr(settings, n) for n in {names}])"])
    assert done.stdout.split() == ["__Host-qlab_session", "__Host-qlab_csrf", "True", "True"], done.stderr
