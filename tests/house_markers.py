"""What a test that needs a browser or Redis does where there is none: it is skipped and says why.

Under CI=true it fails instead, so that a runner which lost a part cannot pass for green. A pytest plugin; `make test`
sets the variables it looks at.
"""

import os

import pytest

NEEDS = {
    "browser": ("CHROMIUM", "Chromium: install it, or set CHROMIUM to the path of one"),
    "redis": ("TEST_REDIS_URL", "Redis or Valkey: install redis-server or valkey-server, or set TEST_REDIS_URL"),
}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, (variable, part) in NEEDS.items():
        if item.get_closest_marker(marker) and not os.environ.get(variable):
            if os.environ.get("CI") == "true":
                pytest.fail(f"CI=true, and this machine lacks {part}. `make test` finds it by itself.", pytrace=False)
            pytest.skip(f"needs {part}")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser, for Playwright's `executable_path`. Only for tests marked `browser`."""
    return os.environ["CHROMIUM"]


@pytest.fixture(scope="session")
def redis_url() -> str:
    """A Redis of the test run's own. Only for tests marked `redis`."""
    return os.environ["TEST_REDIS_URL"]
