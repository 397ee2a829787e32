"""Every promise of lamina.store.base.Store, asked of every store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lamina.errors import (
    AccessDenied,
    AlreadyExists,
    BadName,
    LaminaError,
    NotFound,
    SizeMismatch,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeStore,
    UsageError,
)
from lamina.store import Folder, ObjectInfo, RemoteStore, RetryPolicy, Store, open_store
from lamina.store.base import KEY_BYTES_MAX
from lamina.store.remote import SORTED_AT_ONCE_MAX
from tests.contract.conftest import Backend
from tests.servers import AzureServer, GcsServer, S3Server

KEYS_OUT_OF_TREE_ORDER = ["o/a b", "o/a-b", "o/a.b", "o/a/b", "o/a/c/d", "o/a0", "o/ab/x", "o/ü"]
BAD_KEYS = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/../b",
    "./a",
    "a\\b",
    "a\nb",
    "a\x00b",
    "a\x7f",
    "\udc80",
    ".tmp/x",
    "a/.tmp1",
    "k" * (KEY_BYTES_MAX + 1),
    "k" * 4096,
]


def keys(store: Store, prefix: str = "", *, after: str = "") -> list[str]:
    return [info.key for info in store.list(prefix, after=after)]


def fill(store: Store, names: list[str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(name, b"."), names))


# Bytes in, bytes out


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 100], ids=["empty", "one", "many"])
def test_what_was_put_is_read(store: Store, data: bytes) -> None:
    store.put("folder/object", data)
    assert store.get("folder/object") == data
    assert store.head("folder/object") == ObjectInfo("folder/object", len(data))


def test_a_put_replaces_what_was_there(store: Store) -> None:
    store.put("k", b"a long first value")
    store.put("k", b"second")
    assert store.get("k") == b"second"


@pytest.mark.parametrize(
    "key", ["with space/ü ✓", "a%20b", "x#y?z", "a+b", "q'&=", "deep/" * 20 + "x"]
)
def test_keys_are_taken_literally(store: Store, key: str) -> None:
    store.put(key, key.encode())
    assert store.get(key) == key.encode()
    assert keys(store) == [key]


@pytest.mark.parametrize("kind", [bytearray, memoryview, "path"])
def test_any_kind_of_data_can_be_put(store: Store, kind: object, tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"0123456789")
    data = file if kind == "path" else kind(b"0123456789")  # type: ignore[operator]
    store.put("k", data)
    store.put_if_absent("k2", data)
    assert store.get("k") == store.get("k2") == b"0123456789"


def test_a_buffer_may_be_reused_after_the_put(store: Store) -> None:
    buffer = bytearray(b"first")
    store.put("k", buffer)
    buffer[:] = b"other"
    assert store.get("k") == b"first"


def test_a_file_that_is_not_there_is_a_typed_error_and_changes_nothing(
    store: Store, tmp_path: Path
) -> None:
    for put in (store.put, store.put_if_absent):
        with pytest.raises(NotFound):
            put("k", tmp_path / "nothing")
    assert keys(store) == []


@pytest.mark.parametrize("put", ["put", "put_if_absent"])
def test_a_large_object_goes_in_parts_and_comes_back_whole(
    store: Store, tmp_path: Path, put: str
) -> None:
    block = os.urandom(1 << 20)
    file = tmp_path / "large"
    with file.open("wb") as out:
        for number in range(20):
            out.write(number.to_bytes(4, "big") + block[4:])
        out.write(b"end")
    getattr(store, put)("large", file)
    size = 20 * len(block) + 3
    assert store.head("large").size == size
    for number in range(20):
        assert store.get_range("large", number << 20, 4) == number.to_bytes(4, "big")
    assert store.get_range("large", size - 5, 5) == block[-2:] + b"end"
    assert store.get("large") == file.read_bytes()


def test_a_large_create_of_a_taken_key_is_refused(store: Store) -> None:
    store.put("large", b"small")
    with pytest.raises(AlreadyExists):
        store.put_if_absent("large", bytes(9 << 20))
    assert store.get("large") == b"small"


# Ranges


def test_a_range_is_exact(store: Store) -> None:
    store.put("k", b"0123456789")
    assert store.get_range("k", 0, 10) == b"0123456789"
    assert store.get_range("k", 3, 4) == b"3456"
    assert store.get_range("k", 9, 1) == b"9"
    assert store.get_range("k", 10, 0) == store.get_range("k", 4, 0) == b""


@pytest.mark.parametrize(("start", "length"), [(0, 11), (5, 6), (10, 1), (20, 1), (11, 0)])
def test_a_range_beyond_the_end_is_a_size_mismatch(store: Store, start: int, length: int) -> None:
    store.put("k", b"0123456789")
    with pytest.raises(SizeMismatch):
        store.get_range("k", start, length)


def test_a_range_of_an_empty_object_is_a_size_mismatch(store: Store) -> None:
    store.put("k", b"")
    with pytest.raises(SizeMismatch):
        store.get_range("k", 0, 1)


# What is not there


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.get("folder/nothing"),
        lambda store: store.head("folder/nothing"),
        lambda store: store.get_range("folder/nothing", 0, 1),
        lambda store: store.get_range("folder/nothing", 0, 0),
        lambda store: store.copy("folder/nothing", "target"),
        lambda store: store.get("folder"),
    ],
    ids=["get", "head", "range", "empty range", "copy", "a folder"],
)
def test_a_missing_object_is_not_found(store: Store, read: Callable[[Store], object]) -> None:
    store.put("folder/other", b"")
    with pytest.raises(NotFound):
        read(store)
    assert keys(store) == ["folder/other"]


def test_delete_twice(store: Store) -> None:
    store.put("f/k", b"1")
    store.put("f/l", b"2")
    store.delete("f/k")
    store.delete("f/k")
    store.delete("never/was/there")
    assert keys(store) == ["f/l"]


def test_copy_replaces_the_target_and_is_independent(store: Store) -> None:
    store.put("a/source", b"1")
    store.put("b/target", b"old")
    store.copy("a/source", "b/target")
    store.put("a/source", b"2")
    assert store.get("b/target") == b"1"


# Create-only


def test_create_only_once(store: Store) -> None:
    store.put_if_absent("log/1", b"first")
    with pytest.raises(AlreadyExists):
        store.put_if_absent("log/1", b"other")
    with pytest.raises(AlreadyExists):
        store.put_if_absent("log/1", b"second and longer")
    assert store.get("log/1") == b"first"


@pytest.mark.parametrize("data", [b"", b"mine", bytes(9 << 20)], ids=["empty", "small", "parts"])
def test_creating_the_very_same_bytes_again_succeeds(store: Store, data: bytes) -> None:
    store.put_if_absent("log/1", data)
    store.put_if_absent("log/1", data)
    assert store.head("log/1").size == len(data)


def test_a_deleted_key_can_be_created_again(store: Store) -> None:
    store.put_if_absent("k", b"1")
    store.delete("k")
    store.put_if_absent("k", b"2")
    assert store.get("k") == b"2"


def test_of_twenty_creators_exactly_one_wins(backend: Backend) -> None:
    stores = [backend.open() for _ in range(20)]
    for round_number in range(1 if backend.name == "seaweedfs" else 5):
        start = threading.Barrier(len(stores))
        winners = _race(stores, f"log/{round_number:020d}", start)
        assert len(winners) == 1
        assert stores[0].get(f"log/{round_number:020d}") == _body(winners[0])


def _race(stores: list[Store], key: str, start: threading.Barrier) -> list[int]:
    def create(number: int) -> bool:
        start.wait()
        try:
            stores[number].put_if_absent(key, _body(number))
        except AlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(len(stores)) as pool:
        won = list(pool.map(create, range(len(stores))))
    return [number for number, has_won in enumerate(won) if has_won]


def _body(number: int) -> bytes:
    return b"writer %02d" % number


# Listing


def test_list_is_sorted_by_key_also_where_folders_and_files_mix(store: Store) -> None:
    fill(store, KEYS_OUT_OF_TREE_ORDER)
    assert keys(store) == keys(store, "o") == keys(store, "o/") == KEYS_OUT_OF_TREE_ORDER
    for after in ["", "a", "o", "o/", "o/a", "o/a-b", "o/a/", "o/a/b", "o/a0", "o/zz", "p"]:
        expected = [key for key in KEYS_OUT_OF_TREE_ORDER if key > after]
        assert keys(store, after=after) == expected, after
        assert keys(store, "o", after=after) == expected, after


def test_a_prefix_is_a_folder_not_the_beginning_of_a_name(store: Store) -> None:
    fill(store, ["ab/1", "abc/1", "abd"])
    store.put("b/1", b"123")
    assert keys(store, "ab") == ["ab/1"]
    assert keys(store, "abd") == keys(store, "a") == keys(store, "nothing") == []
    assert list(store.list("b")) == [ObjectInfo("b/1", 3)]


def test_list_folder_shows_one_level(store: Store) -> None:
    fill(store, ["x/1", "x/2", "x/y/1", "x/y/z/1", "x/w/1", "v"])
    assert store.list_folder("x") == Folder(
        (ObjectInfo("x/1", 1), ObjectInfo("x/2", 1)), ("w", "y")
    )
    top = store.list_folder()
    assert top.objects == (ObjectInfo("v", 1),)
    # SeaweedFS goes on naming the folder in which the probe was.
    assert set(top.folders) - {"_probe"} == {"x"}
    assert store.list_folder("x/y/z").folders == ()
    assert store.list_folder("nothing") == Folder((), ())


def test_more_keys_than_fit_on_a_page(backend: Backend) -> None:
    if backend.name not in ("local", "ministack", "memory"):
        pytest.skip("twelve hundred puts are slow there; two real backends are enough")
    store = backend.open()
    names = [f"many/{number:05d}" for number in range(1200)]
    fill(store, names)
    assert keys(store, "many") == names
    assert keys(store, "many", after="many/01195") == names[1196:]
    assert len(store.list_folder("many").objects) == 1200


@pytest.mark.server
def test_a_listing_too_large_to_sort_at_once_goes_level_by_level(
    ministack_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert SORTED_AT_ONCE_MAX > 3
    monkeypatch.setattr("lamina.store.remote.SORTED_AT_ONCE_MAX", 3)
    store = RemoteStore(ministack_server.url("levels"), **ministack_server.options())
    fill(store, KEYS_OUT_OF_TREE_ORDER)
    for after in ["", "o/a", "o/a-b", "o/a/", "o/a/b", "o/a0"]:
        assert keys(store, after=after) == [k for k in KEYS_OUT_OF_TREE_ORDER if k > after], after


# Bad input


@pytest.mark.parametrize("key", BAD_KEYS)
def test_bad_keys_are_refused_before_any_effect(store: Store, key: str) -> None:
    store.put("good", b"1")
    calls: list[Callable[[], object]] = [
        lambda: store.get(key),
        lambda: store.get_range(key, 0, 1),
        lambda: store.put(key, b"x"),
        lambda: store.put_if_absent(key, b"x"),
        lambda: store.head(key),
        lambda: store.delete(key),
        lambda: store.copy(key, "target"),
        lambda: store.copy("good", key),
    ]
    for call in calls:
        with pytest.raises(BadName):
            call()
    assert keys(store) == ["good"]


@pytest.mark.parametrize("prefix", ["..", "a//b", "a\x00"])
def test_bad_prefixes_are_refused(store: Store, prefix: str) -> None:
    with pytest.raises(BadName):
        list(store.list(prefix))
    with pytest.raises(BadName):
        store.list_folder(prefix)


# Servers as they are


@pytest.mark.server
def test_a_store_that_ignores_create_only_puts_is_refused(rclone_server: S3Server) -> None:
    with pytest.raises(UnsafeStore, match="second create-only put"):
        open_store(rclone_server.url(), **rclone_server.options())


@pytest.mark.server
def test_a_store_for_reading_is_not_probed_and_refuses_writes(ministack_server: S3Server) -> None:
    url, options = ministack_server.url("reading"), ministack_server.options()
    open_store(url, **options).put("k", b"1")
    store = open_store(url, writable=False, **options)
    assert store.get("k") == b"1"
    for change in (store.put, store.put_if_absent):
        with pytest.raises(StoreReadOnly):
            change("new", b"")
    with pytest.raises(StoreReadOnly):
        store.delete("k")
    assert keys(store) == ["k"]


@pytest.mark.server
def test_the_probe_leaves_nothing_behind(ministack_server: S3Server) -> None:
    assert keys(open_store(ministack_server.url("probed"), **ministack_server.options())) == []


@pytest.mark.server
def test_wrong_s3_credentials_are_access_denied_without_the_secret(
    seaweedfs_server: S3Server,
) -> None:
    options = seaweedfs_server.options(secret_access_key="hunter2-wrong")
    _assert_denied(seaweedfs_server.url(), options, "hunter2")


@pytest.mark.server
def test_wrong_azure_credentials_are_access_denied_without_the_secret(
    azurite_server: AzureServer,
) -> None:
    options = azurite_server.options(account_key="aHVudGVyMg==")
    _assert_denied(azurite_server.url(), options, "aHVudGVyMg")


def _assert_denied(url: str, options: dict[str, object], secret: str) -> None:
    with pytest.raises(AccessDenied) as opening:
        open_store(url, **options)
    store = open_store(url, writable=False, **options)
    for read in (lambda: store.get("k"), lambda: list(store.list()), lambda: store.head("k")):
        with pytest.raises(AccessDenied) as reading:
            read()
        assert secret not in str(reading.value) + repr(reading.value)
    assert secret not in str(opening.value) + repr(opening.value)
    assert "signature=" not in str(opening.value).lower()


@pytest.mark.server
def test_a_missing_bucket_is_not_taken_for_an_empty_one(ministack_server: S3Server) -> None:
    store = open_store("s3://no-such-bucket", writable=False, **ministack_server.options())
    for read in (lambda: store.get("k"), lambda: list(store.list()), store.list_folder):
        with pytest.raises(StoreError, match="no such bucket"):
            read()
    with pytest.raises(LaminaError):
        open_store("s3://no-such-bucket", **ministack_server.options())


@pytest.mark.server
@pytest.mark.parametrize(
    "server", [S3Server(9), AzureServer(9), GcsServer(9)], ids=["s3", "az", "gs"]
)
def test_a_server_that_is_gone_is_unavailable_after_the_budget(
    server: S3Server | AzureServer | GcsServer,
) -> None:
    policy = RetryPolicy(budget_seconds=0.3, first_wait_ms=50)
    with pytest.raises(StoreUnavailable, match=r"tried [0-9]+ times in 0\.[0-9] seconds"):
        open_store(server.url(), retry=policy, **server.options())


@pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1)])
def test_a_range_that_cannot_be_was_only_asserted(store: Store, start: int, length: int) -> None:
    store.put("k", b"0123456789")
    with pytest.raises(UsageError):
        store.get_range("k", start, length)
