"""gs:// beyond what every store promises: signing in, and buckets that are not there."""

from __future__ import annotations

import json

import pytest

from lamina.errors import LaminaError, StoreError, UsageError
from lamina.store import RemoteStore, open_store
from tests.servers import GcsServer

pytestmark = pytest.mark.server


def test_a_service_account_key_comes_from_the_environment(
    gcs_server: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/stores.md says it."""
    options = gcs_server.options()
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", options.pop("service_account_key"))
    url = gcs_server.url("environment")
    open_store(url, **options).put("k", b"1")
    assert RemoteStore(url, **gcs_server.options()).get("k") == b"1"


def test_a_key_that_is_no_service_account_is_refused_without_showing_it(
    gcs_server: GcsServer,
) -> None:
    for bad in ("hunter2", json.dumps({"private_key": "hunter2"})):
        with pytest.raises(UsageError) as refused:
            RemoteStore(gcs_server.url(), **gcs_server.options(service_account_key=bad))
        assert "hunter2" not in str(refused.value) + repr(refused.value)


def test_a_missing_bucket_is_not_taken_for_an_empty_one(gcs_server: GcsServer) -> None:
    options = gcs_server.options()
    with pytest.raises(StoreError, match="no such bucket"):
        open_store("gs://no-such-bucket", **options)
    with pytest.raises(LaminaError):
        list(RemoteStore("gs://no-such-bucket", **options).list())
