"""lamina.open on real S3 servers, by URL and environment alone, as a program uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

import lamina
from lamina.checkpoint import run_gc, verify
from lamina.checkpoint import state as checkpoint_state
from lamina.errors import Fenced, Refused
from lamina.recovery import RecoveryConfig
from tests.contract.conftest import Backend
from tests.servers import S3Server
from tests.servers.s3 import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.embedded_stores import KEY, SUM, VALUE, as_dict, dying, opened, rows

pytestmark = pytest.mark.server


@pytest.fixture(params=["seaweedfs", "ministack"])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    server: S3Server = request.getfixturevalue(f"{request.param}_server")
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_ALLOW_HTTP": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return server.url("embedded")


def test_a_store_in_a_bucket_is_written_killed_rewound_rescaled_and_read(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_state, "INLINE_BYTES_MAX", 2000)
    home = tmp_path / "home"
    with dying(lamina.open(url, home=home, partitions=4)) as store:
        table = store.table("sums", KEY, VALUE, merges=SUM)
        for epoch in range(1, 6):
            table.write(rows(dict.fromkeys(range(epoch * 100), 1)))
            store.put(b"epoch", b"%d" % epoch)
            store.commit(offsets={"s": {"at": str(epoch)}}, watermark=epoch)
            store.checkpoint(wait=epoch % 2 == 0)
        store.savepoint("five")
        table.write(rows({1: 1}))
        store.put(b"epoch", b"6")
        store.commit()
        expected = as_dict(table)
        with pytest.raises(Fenced):
            lamina.open(url, home=home)
    with dying(lamina.open(url, home=home, partitions=2)) as store:
        assert store.report.epochs_replayed == 1
        assert as_dict(store.table("sums")) == expected
        assert store.get(b"epoch") == b"6"
        assert store.rewind("five") == 7
        assert store.get(b"epoch") == b"5"
        store.put(b"epoch", b"8")
        store.commit()
        store.checkpoint()
        run_gc(store._checkpointer, retain=1)
        report = verify(store._checkpointer)
        assert report.ok, report.problems
    for at, epoch in (("five", b"5"), (None, b"8")):
        with lamina.snapshot(url, at) as snapshot:
            assert snapshot.to_table("state").column("value").to_pylist() == [epoch]
            assert snapshot.to_table("sums").num_rows == 500


def test_another_home_takes_a_store_over_only_by_a_flag(backend: Backend, tmp_path: Path) -> None:
    """What only the lost home has acknowledged is given up, and the report says so."""
    with dying(opened(tmp_path / "one", backend.open(), partitions=2)) as store:
        store.put(b"a", b"1")
        store.commit()
        store.checkpoint()
        store.put(b"a", b"only in the WAL of the home")
        store.commit()
    with pytest.raises(Refused, match="not in"):
        opened(tmp_path / "two", backend.open())
    flag = RecoveryConfig(take_over_home=True)
    with opened(tmp_path / "two", backend.open(), config=flag) as store:
        assert store.get(b"a") == b"1"
        assert store.report.given_up_home is not None
        store.put(b"b", b"2")
        store.commit()
        store.checkpoint()
    with pytest.raises(Refused, match="not in"):
        opened(tmp_path / "one", backend.open())
    with opened(tmp_path / "two", backend.open()) as store:
        assert dict(store.scan()) == {b"a": b"1", b"b": b"2"}
