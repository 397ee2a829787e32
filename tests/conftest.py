"""For all tests: a test of properties has no deadline, because machines differ."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("lamina", deadline=None)
settings.load_profile("lamina")
