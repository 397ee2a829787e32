"""Files in object stores as a source, on real servers: the contract, and what a poll costs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lamina.connectors.objects import ObjectsSource
from lamina.connectors.opening import check_source, open_source
from lamina.engine.model import SourceRange
from lamina.engine.ports import Limits, Listings
from lamina.errors import AccessDenied, BadPipeline, LaminaError, NotFound, Refused, StoreError
from lamina.errors import StoreUnavailable as Unavailable
from lamina.pipeline.model import Column, DeclaredSource, Option
from lamina.store import RemoteStore
from lamina.store.bucket import FoundObject
from lamina.testing.clock import ManualClock
from tests.contract import test_source_contract as contract
from tests.contract.source_subjects import SMALL, Remembered, Subject
from tests.servers import AzureServer, S3Server
from tests.servers.azure import ACCOUNT, ACCOUNT_KEY
from tests.servers.s3 import ACCESS_KEY, REGION, SECRET_KEY

pytestmark = pytest.mark.server

_corners = count()
CHECKS = [
    check
    for name, check in vars(contract).items()
    if name.startswith("test_") and [*inspect.signature(check).parameters] == ["made"]
]


@dataclass
class Corner:
    """A prefix of its own, and what a pipeline says to reach it."""

    store: Any
    url: str
    options: dict[str, str] = field(repr=False)

    def declared(self, kind: str = "json", **more: str) -> DeclaredSource:
        secret = {name: Option("${SECRET}", value) for name, value in self.options.items()}
        plain = {name: Option.plain(value) for name, value in more.items()}
        options = {"path": Option.plain(self.url), **secret, **plain}
        return DeclaredSource("s", (Column("a", "BIGINT"),), kind, options)

    def source(self, clock: ManualClock | None = None, **more: Any) -> ObjectsSource:
        options = {**self.options, "client_options": {"allow_http": True}}
        return ObjectsSource("s", self.url, options, clock=clock or ManualClock(), **more)

    def put(self, *keys: str, data: bytes = b'{"a": 1}\n') -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: self.store.put(key, data), keys))


def s3_corner(server: S3Server, **changed: str) -> Corner:
    url = server.url(f"sources-{next(_corners)}/ü x")
    options = {
        "endpoint": f"http://127.0.0.1:{server.port}",
        "region": REGION,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        **changed,
    }
    return Corner(RemoteStore(url, **server.options()), url, options)


@pytest.fixture
def corner(seaweedfs_server: S3Server) -> Corner:
    return s3_corner(seaweedfs_server)


@pytest.fixture(params=["s3", "azure"])
def any_corner(request: pytest.FixtureRequest) -> Corner:
    if request.param == "s3":
        return s3_corner(request.getfixturevalue("seaweedfs_server"))
    server: AzureServer = request.getfixturevalue("azurite_server")
    url = server.url(f"sources-{next(_corners)}")
    endpoint = f"http://127.0.0.1:{server.port}/{ACCOUNT}"
    options = {"endpoint": endpoint, "account_name": ACCOUNT, "account_key": ACCOUNT_KEY}
    return Corner(RemoteStore(url, **server.options()), url, options)


def subject_in(corner: Corner, folder: Path) -> Subject:
    numbers = count()

    def grow(subject: Subject) -> None:
        for _ in range(2):
            corner.put(f"{next(numbers):04d}/deep.json")

    def spoil(subject: Subject, planned: SourceRange) -> None:
        corner.put(planned.data.objects[-1].path, data=b'{"a": 2}\n')

    made = Subject(corner.declared(), folder, grow, spoil)
    grow(made)
    grow(made)
    return made


# the contract


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_every_source_promises(
    check: Callable[[Subject], None], any_corner: Corner, tmp_path: Path
) -> None:
    check(subject_in(any_corner, tmp_path))


def test_a_process_goes_on_from_any_committed_offset(corner: Corner, tmp_path: Path) -> None:
    made = subject_in(corner, tmp_path)
    ends = []
    while (planned := made.plan(made.open(), SMALL)).start != planned.end:
        ends.append(planned.end)
        made.commit(planned)
    assert ends == [{"objects": str(number)} for number in range(1, 5)]


def test_the_contract_is_asked_in_full() -> None:
    assert len(CHECKS) >= 7


# what is read


class Reading:
    """A source, with a memory that is no engine's."""

    def __init__(self, source: ObjectsSource) -> None:
        assert source.memory is not None
        self.source, self.memory = source, Remembered(source.memory)
        self.offset = source.initial()

    def plan(self, limit: int | None = None) -> SourceRange:
        return self.source.plan(self.offset, Limits(files=limit), self.memory)

    def read(self, limit: int | None = None) -> list[str]:
        """The objects of one epoch, committed."""
        planned = self.plan(limit)
        self.source.confirm(planned)
        self.memory.commit(planned)
        self.offset = planned.end
        return [found.path for found in planned.data.objects]

    def again(self, source: ObjectsSource) -> Reading:
        """As another process has it."""
        other = Reading(source)
        other.memory, other.offset = self.memory, self.offset
        return other


def test_hidden_partial_and_empty_objects_are_not_read(any_corner: Corner) -> None:
    any_corner.put("a.json", "b/c.json", "_x/d.json", "b/.e.json", "f.json.tmp", "_SUCCESS")
    any_corner.put("empty.json", data=b"")
    reading = Reading(any_corner.source())
    assert sorted(reading.read()) == ["a.json", "b/c.json"]
    any_corner.put("empty.json", data=b'{"a": 1}')
    assert reading.again(any_corner.source()).read() == ["empty.json"], "now there is something"


def test_an_object_that_was_read_and_is_another_now_is_refused(any_corner: Corner) -> None:
    any_corner.put("a.json", "b.json")
    reading = Reading(any_corner.source())
    reading.read()
    any_corner.put("a.json", data=b'{"a": 2}\n')
    with pytest.raises(Refused, match="has changed since") as raised:
        reading.again(any_corner.source()).plan()
    assert raised.value.where == f"{any_corner.url}/a.json"
    any_corner.store.delete("a.json")
    assert reading.again(any_corner.source()).read() == [], "what is gone may go"


def test_the_same_bytes_put_again_are_the_same_object_on_s3(corner: Corner) -> None:
    corner.put("a.json")
    reading = Reading(corner.source())
    reading.read()
    corner.put("a.json")
    assert reading.again(corner.source()).read() == []


def test_what_is_replaced_or_deleted_before_its_turn_is_read_as_it_is_then(corner: Corner) -> None:
    clock = ManualClock()
    corner.put(*(f"{n}.json" for n in range(4)))
    reading = Reading(corner.source(clock))
    assert reading.read(1) == ["0.json"]
    corner.put("1.json", data=b'{"a": 12345}\n')
    corner.store.delete("2.json")
    clock.advance(31)
    assert sorted(reading.read()) == ["1.json", "3.json"]
    assert reading.read() == []


def test_what_changes_or_goes_after_it_was_planned_stops_the_epoch(any_corner: Corner) -> None:
    any_corner.put("a.json", "b.json")
    reading = Reading(any_corner.source())
    planned = reading.plan()
    reading.source.confirm(planned)
    any_corner.store.delete("b.json")
    with pytest.raises(NotFound, match="disappeared while it was read"):
        reading.source.confirm(planned)
    any_corner.put("b.json", data=b"other")
    with pytest.raises(Refused, match="changed while it was read"):
        reading.source.confirm(planned)
    with pytest.raises(Refused, match="changed while it was read"):
        reading.source.bucket.read(planned.data.objects[-1], 0, 3)
    reading = Reading(any_corner.source())
    reading.read()


# what it costs


@pytest.fixture(scope="module")
def many(seaweedfs_server: S3Server) -> Corner:
    corner = s3_corner(seaweedfs_server)
    corner.put(*(f"{n:06d}.json" for n in range(2_500)))
    return corner


def asked(source: ObjectsSource, work: Callable[[], Any]) -> int:
    before = source.bucket.requests
    work()
    return source.bucket.requests - before


def test_a_poll_is_one_request_and_a_full_listing_one_for_each_thousand(many: Corner) -> None:
    clock = ManualClock()
    reading = Reading(many.source(clock))
    source = reading.source
    assert asked(source, lambda: reading.plan(1)) == 3, "all of it, at first"
    assert asked(source, lambda: reading.plan(1)) == 1, "what comes later"
    clock.advance(31)
    assert asked(source, lambda: reading.plan(1)) == 3, "all of it, every 30 seconds"
    planned = reading.plan(50)
    assert asked(source, lambda: source.confirm(planned)) == 50, "each is asked for"
    assert source.listings.full == 2, "people see this number"
    planned = reading.plan(2_000)
    assert asked(source, lambda: source.confirm(planned)) == 3, "a listing is less"
    assert source.listings == Listings(full=3, requests=source.bucket.requests)


def test_full_listings_of_very_many_objects_are_a_request_a_second(corner: Corner) -> None:
    clock = ManualClock()
    corner.put("m.json")
    source = corner.source(clock)
    reading = Reading(source)
    one_page = source.bucket.pages
    asked_after: list[str] = []

    def pages(after: str = "") -> Iterator[list[FoundObject]]:
        """As if a hundred thousand were there."""
        asked_after.append(after)
        yield from one_page(after)
        yield from ([] for _ in range(99))

    source.bucket.pages = pages  # type: ignore[method-assign]
    for _ in range(5):
        reading.plan()
        clock.advance(40)
    assert asked_after == ["", "m.json", "m.json", "", "m.json"]


def test_names_that_sort_before_others_come_with_the_next_full_listing(corner: Corner) -> None:
    clock = ManualClock()
    corner.put("m.json")
    reading = Reading(corner.source(clock, list_every_us=600_000_000))
    assert reading.read() == ["m.json"]
    corner.put("a.json", "z.json")
    assert reading.read() == ["z.json"]
    clock.advance(599)
    assert reading.read() == []
    clock.advance(2)
    assert reading.read() == ["a.json"]


# bad input


@pytest.mark.parametrize(
    ("bucket", "changed", "kind"),
    [
        ("", {"secret_access_key": "wrong"}, AccessDenied),
        ("", {"access_key_id": "nobody"}, AccessDenied),
        ("", {"endpoint": "http://127.0.0.1:1"}, Unavailable),
        ("s3://no-such-bucket/x", {}, StoreError),
    ],
)
def test_what_cannot_work_is_said_when_the_source_is_opened(
    bucket: str,
    changed: dict[str, str],
    kind: type[LaminaError],
    *,
    seaweedfs_server: S3Server,
    tmp_path: Path,
) -> None:
    corner = s3_corner(seaweedfs_server, **changed)
    corner.url = bucket or corner.url
    with pytest.raises(kind) as raised:
        open_source(corner.declared(), tmp_path)
    assert corner.url in raised.value.where
    assert SECRET_KEY not in str(raised.value)
    assert "wrong" not in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("csv", {"multiLine": "true"}, "'multiline', which does not work with objects"),
        ("parquet", {"mergeSchema": "true"}, "'mergeschema', which does not work"),
        ("json", {"encoding": "UTF-16"}, "the encoding 'UTF-16'"),
        ("json", {"fs.s3a.access.key": "x"}, "'fs.s3a.access.key', and its path is an address"),
        ("json", {"list_every": "soon"}, "the list_every 'soon'"),
        ("json", {"account_name": "x"}, "is an address of s3://"),
    ],
)
def test_options_that_cannot_be_obeyed_are_refused(
    kind: str, options: dict[str, str], message: str, *, corner: Corner, tmp_path: Path
) -> None:
    with pytest.raises(BadPipeline, match=message):
        check_source(corner.declared(kind, **options), tmp_path)
    check_source(corner.declared(kind, list_every="5 minutes"), tmp_path)
    local = {"path": Option.plain("in"), "list_every": Option.plain("5 minutes")}
    with pytest.raises(BadPipeline, match="its path is a folder"):
        check_source(DeclaredSource("s", (Column("a", "BIGINT"),), kind, local), tmp_path)
