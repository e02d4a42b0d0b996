"""Fixtures of all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from servers import Dev


@pytest.fixture(scope="session")
def dev() -> Iterator[Dev]:
    """A server that stays up and open."""
    server = Dev()
    yield server
    server.stop()


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring._http.FIRST_PAUSE", 0.001)
