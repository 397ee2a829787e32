"""From an address to a store, and from what a client library says to what a caller should do."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from obstore import exceptions as obs

from lamina.errors import (
    AccessDenied,
    AlreadyExists,
    BadName,
    LaminaError,
    NotFound,
    SizeMismatch,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeStore,
    UsageError,
)
from lamina.store import MemoryStore, Store, open_store, probe_store
from lamina.store.address import Address
from lamina.store.base import Data
from lamina.store.causes import from_obstore
from lamina.store.remote import safe_offset
from lamina.testing import Fault, FaultKind, FaultyStore, ManualClock


@pytest.fixture(autouse=True)
def no_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.delenv(name, raising=False)


# Addresses


def test_a_path_and_a_file_address_are_the_same_folder(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    store = open_store(str(folder))
    store.put("k", b"1")
    assert store.url == folder.resolve().as_uri()
    assert open_store(folder.as_uri()).get("k") == b"1"
    assert open_store(store.url).get("k") == b"1"
    assert open_store(f"file://localhost{folder.as_uri()[7:]}").get("k") == b"1"


def test_memory_is_a_new_store_each_time() -> None:
    store = open_store("memory://")
    store.put("k", b"1")
    assert isinstance(store, MemoryStore)
    assert list(open_store("memory://").list()) == []


def test_for_reading_nothing_is_created(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        open_store(str(tmp_path / "missing"), writable=False)
    assert list(tmp_path.iterdir()) == []
    open_store(str(tmp_path / "there")).put("k", b"1")
    store = open_store(str(tmp_path / "there"), writable=False)
    assert store.get("k") == b"1"
    assert (store.head("k").size, store.get_range("k", 0, 1)) == (1, b"1")
    assert [info.key for info in store.list()] == [i.key for i in store.list_folder().objects]
    for change in (
        lambda: store.put("l", b""),
        lambda: store.put_if_absent("l", b""),
        lambda: store.delete("k"),
        lambda: store.copy("k", "l"),
    ):
        with pytest.raises(StoreReadOnly):
            change()


@pytest.mark.parametrize("url", ["ftp://host/x", "http://host/x", "S4://b", "://", "s3a://b/x"])
def test_an_unknown_scheme_lists_the_known_ones(url: str) -> None:
    with pytest.raises(UsageError, match="file://, memory://, s3://, gs://, az://"):
        open_store(url)


@pytest.mark.parametrize(
    "url",
    ["", "s3://", "s3:///key", "file://otherhost/x", "file://", "a\0b", "file:///x?y=1"],
)
def test_an_address_that_means_nothing_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        open_store(url, writable=False)


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAKEY:hunter2@bucket/x",
        "s3://hunter2@bucket/x",
        "az://container/x?sv=1&sig=hunter2",
        "abfss://c:hunter2@account.dfs.core.windows.net/x",
        "gs://bucket/x#hunter2",
    ],
)
def test_a_secret_in_an_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(UsageError) as raised:
        open_store(url, writable=False)
    assert "hunter2" not in str(raised.value)
    assert "environment" in raised.value.advice


@pytest.mark.parametrize(
    ("url", "bucket", "prefix", "account"),
    [
        ("s3://bucket", "bucket", "", None),
        ("S3://bucket//a//b/", "bucket", "a/b", None),
        ("gs://bucket/a", "bucket", "a", None),
        ("az://container/a b", "container", "a b", None),
        ("abfs://container/a", "container", "a", None),
        ("abfss://c@acc.dfs.core.windows.net/a", "c", "a", "acc"),
    ],
)
def test_the_path_of_an_address_is_a_prefix(
    url: str, bucket: str, prefix: str, account: str | None
) -> None:
    address = Address.parse(url)
    assert (address.bucket, address.prefix) == (bucket, prefix)
    assert address.options.get("account_name") == account
    assert address.url == Address.parse(address.url).url


def test_a_prefix_that_leaves_its_bucket_is_refused() -> None:
    with pytest.raises(BadName):
        open_store("s3://bucket/a/../b", writable=False)


@pytest.mark.parametrize("url", ["s3://b", "gs://b", "az://c", "memory://", "/tmp/never-made"])
def test_an_unknown_option_is_named(url: str) -> None:
    options = {"account_name": "a"} if url.startswith("az") else {}
    with pytest.raises(UsageError, match="no option 'colour'"):
        open_store(url, writable=False, **options, colour="hunter2")
    assert not Path("/tmp/never-made").exists()


@pytest.mark.parametrize(
    "options",
    [{"virtual_hosted_style_request": "hunter2"}, {"region": 5}, {"client_options": {"x": 1}}],
)
def test_a_value_that_is_refused_is_not_repeated(options: dict[str, object]) -> None:
    with pytest.raises(UsageError) as raised:
        open_store("s3://bucket", writable=False, **options)
    assert next(iter(options)) in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_an_azure_store_without_an_account_says_so() -> None:
    with pytest.raises(UsageError, match="Account must be specified"):
        open_store("az://container", writable=False)


# The probe


class Careless(MemoryStore):
    """Ignores the condition, as rclone does; or refuses and overwrites all the same."""

    def __init__(self, *, says_no: bool) -> None:
        super().__init__()
        self._says_no = says_no

    def put_if_absent(self, key: str, data: Data) -> None:
        taken = any(info.key == key for info in self.list())
        self.put(key, data)
        if taken and self._says_no:
            raise AlreadyExists("no")


@pytest.mark.parametrize("says_no", [False, True])
def test_a_careless_store_is_unsafe_and_the_probe_cleans_up(says_no: bool) -> None:
    store = Careless(says_no=says_no)
    with pytest.raises(UnsafeStore):
        probe_store(store, ManualClock())
    assert list(store.list()) == []


def test_a_careful_store_passes_and_is_left_as_it_was() -> None:
    store = MemoryStore()
    probe_store(store, ManualClock())
    assert list(store.list()) == []


def test_a_probe_that_cannot_be_made_is_no_verdict() -> None:
    fault = Fault("put_if_absent", FaultKind.UNAVAILABLE, call=2)
    store: Store = FaultyStore(MemoryStore(), faults=[fault])
    with pytest.raises(StoreUnavailable):
        probe_store(store, ManualClock())
    assert list(store.list()) == []


# Causes


def said(
    status: int, code: str = "", *, query: str = "?sig=hunter2&X-Amz-Signature=hunter2"
) -> str:
    body = f"<Error><Code>{code}</Code><StringToSign>hunter2</StringToSign></Error>" if code else ""
    return (
        f"Generic S3 error: Error performing PUT https://host/b/k{query} in 1ms - "
        f"Server returned non-2xx status code: {status} Reason: {body}\n\nDebug source:\nhunter2"
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (obs.GenericError(said(500)), StoreUnavailable),
        (obs.GenericError(said(502)), StoreUnavailable),
        (obs.GenericError(said(503, "SlowDown")), StoreUnavailable),
        (obs.GenericError(said(429)), StoreUnavailable),
        (obs.GenericError(said(408)), StoreUnavailable),
        (obs.GenericError(said(400, "RequestTimeout")), StoreUnavailable),
        (obs.GenericError(said(400, "ExpiredToken")), StoreUnavailable),
        (obs.PermissionDeniedError(said(403, "ExpiredToken")), StoreUnavailable),
        (obs.AlreadyExistsError(said(409, "ConditionalRequestConflict")), StoreUnavailable),
        (obs.GenericError("Generic S3 error: HTTP error: error sending request"), StoreUnavailable),
        (obs.GenericError("HTTP error: operation timed out"), StoreUnavailable),
        (obs.GenericError("x\n\nDebug source: HttpError { kind: Connect"), StoreUnavailable),
        (obs.GenericError(said(403)), AccessDenied),
        (obs.GenericError(said(401)), AccessDenied),
        (obs.GenericError(said(400, "InvalidAccessKeyId")), AccessDenied),
        (obs.PermissionDeniedError(said(403, "SignatureDoesNotMatch")), AccessDenied),
        (obs.UnauthenticatedError(said(401)), AccessDenied),
        (obs.GenericError("GET http://169.254.169.254/latest - HTTP error: x"), AccessDenied),
        (obs.GenericError(said(400, "InvalidRequest")), StoreError),
        (obs.GenericError(said(405)), StoreError),
        (obs.GenericError("something new"), StoreError),
        (obs.NotSupportedError("no"), StoreError),
        (ValueError("no"), StoreError),
        (FileNotFoundError("Object at location k not found"), NotFound),
        (FileNotFoundError(said(404, "NoSuchBucket")), StoreError),
        (FileNotFoundError(said(404, "ContainerNotFound")), StoreError),
        (obs.GenericError(said(404)), NotFound),
        (obs.AlreadyExistsError(said(412, "PreconditionFailed")), AlreadyExists),
        (obs.AlreadyExistsError(said(409, "BlobAlreadyExists")), AlreadyExists),
        (obs.PreconditionError(said(412)), AlreadyExists),
        (obs.GenericError(said(416, "InvalidRange")), SizeMismatch),
        (obs.GenericError(said(507)), StoreFull),
        (OSError(28, "No space left on device"), StoreFull),
    ],
)
def test_every_cause_has_its_error_and_no_secret_in_it(
    error: Exception, kind: type[LaminaError]
) -> None:
    found = from_obstore(error, "s3://b/k")
    assert type(found) is kind
    assert "hunter2" not in str(found)
    assert found.where == "s3://b/k"


@pytest.mark.parametrize(
    ("kind", "message"),
    [("Connect", "the store cannot be reached"), ("Timeout", "the store did not answer in time")],
)
def test_the_limit_of_the_retries_is_not_taken_for_a_timeout(kind: str, message: str) -> None:
    text = "after 5 retries, max_retries: 5, retry_timeout: 20s - HTTP error: error sending request"
    debug = f"RetryErrorImpl {{ retry_timeout: 20s, inner: Http(HttpError {{ kind: {kind}"
    error = obs.GenericError(f"Generic S3 error: {text}\n\nDebug source: {debug}")
    assert from_obstore(error, "s3://b").message == message


@pytest.mark.parametrize(
    ("prefix", "after", "offset"),
    [
        ("log", "log/0005.json", "log/0004"),
        ("log", "log/0010.json", "log/000"),
        ("log", "log/0000.json", None),
        ("", "b-x/y", "a"),
        ("", "a/x", None),
        ("o", "p", None),
        ("o", "o/b", "o/a"),
        ("o", "o/ü", None),
    ],
)
def test_a_listing_starts_near_where_it_should(prefix: str, after: str, offset: str | None) -> None:
    assert safe_offset(prefix, after) == offset


def test_a_listing_that_starts_there_loses_no_key_on_a_server_that_lists_by_folder() -> None:
    texts = ["".join(t) for size in (1, 2, 3, 4) for t in itertools.product("01b-/", repeat=size)]
    valid = [text for text in texts if all(text.split("/"))]
    for after in valid:
        offset = safe_offset("", after)
        if offset is None:
            continue
        lost = [
            key
            for key in valid
            if key > after
            and (key.split("/") <= offset.split("/") or f"{key}/".startswith(f"{offset}/"))
        ]
        assert lost == [], (after, offset)
