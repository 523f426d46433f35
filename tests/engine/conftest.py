import pytest


@pytest.fixture
def anyio_backend() -> str:
    """What `@pytest.mark.anyio` runs on."""
    return "asyncio"
