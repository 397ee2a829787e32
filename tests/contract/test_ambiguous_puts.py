"""A create-only put whose answer is lost: the winner must learn that it won, the loser that not.

A real client, a real connection, a server that has already done it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lamina.errors import AlreadyExists, StoreUnavailable
from lamina.store import RemoteStore, RetryPolicy, Store, open_store
from tests.servers import S3Server
from tests.servers.fault_proxy import FaultProxy, Trouble, fault_proxy

pytestmark = pytest.mark.server

KEY = "log/00000000000000000007.json"


@pytest.fixture
def proxy(ministack_server: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(ministack_server.port) as proxy:
        yield proxy


@pytest.fixture
def corner(request: pytest.FixtureRequest) -> str:
    return f"ambiguous-{abs(hash(request.node.nodeid))}"


@pytest.fixture
def direct(ministack_server: S3Server, corner: str) -> Store:
    return open_store(ministack_server.url(corner), **ministack_server.options())


@pytest.fixture
def store(proxy: FaultProxy, corner: str) -> Store:
    server = S3Server(proxy.port)
    policy = RetryPolicy(budget_seconds=5, first_wait_ms=1)
    return open_store(server.url(corner), retry=policy, **server.options())


AFTER: list[Trouble] = ["cut after", "503 after"]
BEFORE: list[Trouble] = ["cut before", "503 before"]


@pytest.mark.parametrize("trouble", AFTER)
def test_the_winner_whose_answer_was_lost_learns_that_it_won(
    store: Store, direct: Store, proxy: FaultProxy, trouble: Trouble
) -> None:
    proxy.plan(KEY, trouble)
    store.put_if_absent(KEY, b"writer 1")
    assert not proxy.troubles, "the fault never struck"
    assert direct.get(KEY) == b"writer 1"
    assert proxy.puts == 1, "it looked, and did not write again"


@pytest.mark.parametrize("trouble", AFTER + BEFORE)
def test_a_loser_whose_answer_was_lost_learns_that_it_lost(
    store: Store, direct: Store, proxy: FaultProxy, trouble: Trouble
) -> None:
    direct.put_if_absent(KEY, b"writer 2")
    proxy.plan(KEY, trouble)
    with pytest.raises(AlreadyExists):
        store.put_if_absent(KEY, b"writer 1")
    assert not proxy.troubles, "the fault never struck"
    assert direct.get(KEY) == b"writer 2"


@pytest.mark.parametrize("trouble", BEFORE)
def test_a_put_that_never_arrived_is_tried_again(
    store: Store, direct: Store, proxy: FaultProxy, trouble: Trouble
) -> None:
    proxy.plan(KEY, trouble, trouble)
    store.put_if_absent(KEY, b"writer 1")
    assert proxy.puts == 3
    assert direct.get(KEY) == b"writer 1"


@pytest.mark.parametrize("trouble", AFTER + BEFORE)
def test_without_retries_the_unclear_answer_is_visible(
    direct: Store, proxy: FaultProxy, corner: str, trouble: Trouble
) -> None:
    server = S3Server(proxy.port)
    raw = RemoteStore(server.url(corner), **server.options())
    proxy.plan(KEY, trouble)
    with pytest.raises(StoreUnavailable):
        raw.put_if_absent(KEY, b"writer 1")
    assert proxy.puts == 1, "obstore must not try again by itself"
    assert [info.key for info in direct.list()] == ([KEY] if trouble in AFTER else [])


@pytest.mark.parametrize("trouble", AFTER + BEFORE)
def test_an_overwrite_is_simply_repeated(
    store: Store, direct: Store, proxy: FaultProxy, trouble: Trouble
) -> None:
    proxy.plan(KEY, trouble)
    store.put(KEY, b"value")
    assert proxy.puts == 2
    assert direct.get(KEY) == b"value"
