from __future__ import annotations

import pytest

from tests.crash.inline import patch_inline


@pytest.fixture(autouse=True)
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_inline(monkeypatch)
