"""What is asked of executors before a pipeline is claimed, and what each answer leads to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: lamina[spark]")

from lamina import __version__
from lamina.clock import SystemClock
from lamina.errors import NotShared, Refused
from lamina.spark import golden
from lamina.spark.frames import own_session
from lamina.spark.internals import active
from lamina.spark.preflight import TaskPlace, judge, preflight, runs_here
from lamina.spark.runner import pinned
from lamina.state.hashing import spark_hash, spark_xxhash64, vnodes_of
from lamina.workspace import LocalWorkspace
from tests.golden.state.make_hash_vectors import TYPES

NONCE = "0f" * 16
GOOD = TaskPlace(
    host="ada",
    executor="/work/0",
    python="3.11.7",
    pyarrow=pa.__version__,
    lamina=__version__,
    nonce=NONCE,
    hash=golden.ALL.hash,
    xxhash64=golden.ALL.xxhash64,
)


def ask(own: Any, home: Path, *, partitions: int) -> None:
    clock = SystemClock()
    preflight(own, LocalWorkspace(home, clock), partitions=partitions, clock=clock)


@pytest.fixture
def own(spark: Any) -> Iterator[Any]:
    session = own_session(spark, pinned(2))
    with active(session):
        yield session


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if tasks ran in other processes than the driver's."""
    monkeypatch.setattr("lamina.spark.preflight.runs_here", lambda _: False)


def jobs_of(spark: Any, group: str) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def asked(own: Any, home: Path, group: str) -> int:
    """How many jobs a preflight needs."""
    own.sparkContext.setJobGroup(group, "")
    try:
        ask(own, home, partitions=4)
    finally:
        own.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    return jobs_of(own, group)


@pytest.mark.usefixtures("elsewhere")
def test_a_good_place_passes_in_one_job_and_the_home_is_left_empty(
    own: Any, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    assert asked(own, home, "preflight") == 1
    assert list(home.iterdir()) == []


def test_where_tasks_run_in_the_drivers_processes_there_is_no_job(own: Any, tmp_path: Path) -> None:
    assert asked(own, tmp_path / "home", "preflight here") == 0


@pytest.mark.parametrize(
    ("master", "python"),
    [
        ("local-cluster[1,1,1024]", sys.executable),
        ("spark://ada:7077", sys.executable),
        ("local[2,4]", "/usr/bin/another-python"),
    ],
)
def test_other_processes_are_asked(master: str, python: str) -> None:
    context = SimpleNamespace(master=master, pythonExec=python)
    assert not runs_here(cast(Any, SimpleNamespace(sparkContext=context)))


def test_a_local_spark_that_hashes_otherwise_is_refused(
    own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lamina.spark.preflight.ALL", replace(golden.ALL, xxhash64=1))
    with pytest.raises(Refused, match="everything in one key"):
        ask(own, tmp_path, partitions=1)


def test_the_nonce_is_removed_when_the_job_fails(
    own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own.sparkContext, "pythonExec", str(tmp_path / "no-such-python"))
    with pytest.raises(Refused, match="executors cannot run a task"):
        ask(own, tmp_path / "home", partitions=1)
    assert list((tmp_path / "home").iterdir()) == []


def test_the_golden_keys_have_every_type_that_a_key_may_have() -> None:
    assert {vector.type for vector in golden.VECTORS} == set(TYPES) | {"null"}


def test_the_golden_numbers_are_those_of_our_own_hashes(own: Any) -> None:
    """Ours and Spark's were written from different sources: both must give the constants."""
    for vector in (*golden.VECTORS, golden.ALL):
        if vector.type == "time(6)":  # Spark 4.3 makes no columns of it
            values = [pa.array([nanos], pa.time64("ns")) for nanos in (0, 86_399_999_999_000)]
        else:
            frame = own.sql(f"SELECT {vector.values}")
            table = frame.toDF(*(f"c{i}" for i in range(len(frame.columns)))).toArrow()
            values = [column.combine_chunks() for column in table.columns]
        assert spark_hash(values).tolist() == [vector.hash], vector
        assert spark_xxhash64(values).tolist() == [vector.xxhash64], vector
        assert vnodes_of(values).tolist() == [vector.vnode], vector


def test_a_spark_that_hashes_otherwise_is_refused_with_both_numbers(own: Any) -> None:
    good = golden.VECTORS[3]
    for wrong in (replace(good, hash=good.hash + 1), replace(good, xxhash64=0)):
        with pytest.raises(Refused, match=rf"type int .* {good.hash}, not {wrong.hash}"):
            golden.check_hashes(own, (golden.VECTORS[0], wrong))


@pytest.mark.usefixtures("elsewhere")
def test_one_job_asks_for_all_keys_and_a_difference_is_traced_to_its_type(
    own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, key = golden.VECTORS, golden.VECTORS[4]
    monkeypatch.setattr("lamina.spark.preflight.ALL", replace(golden.ALL, hash=1))
    with pytest.raises(Refused, match=rf"everything in one key .* {golden.ALL.hash}, not 1;"):
        ask(own, tmp_path, partitions=1)
    other = (*frozen[:4], replace(key, hash=2), *frozen[5:])
    monkeypatch.setattr(golden.check_hashes, "__defaults__", (other,))
    with pytest.raises(Refused, match=rf"type bigint .* {key.hash}, not 2;"):
        ask(own, tmp_path, partitions=1)


def test_places_that_do_not_see_the_home_are_named_each_once() -> None:
    apart = replace(GOOD, host="bob", executor="/work/1", nonce=None)
    stale = replace(GOOD, host="cyd", executor="/work/2", nonce="of another time")
    with pytest.raises(NotShared) as caught:
        judge([GOOD, apart, apart, stale], NONCE, home="/shared/home")
    assert "3 of 4 tasks" in caught.value.message
    assert caught.value.message.endswith("those on bob (/work/1), cyd (/work/2)")
    assert caught.value.where == "/shared/home"
    assert "--master" in caught.value.advice


def test_places_that_cannot_read_an_object_store_are_named_with_what_it_said() -> None:
    apart = replace(GOOD, host="bob", nonce=None, trouble="AccessDenied: no key\nat line 1")
    with pytest.raises(NotShared) as caught:
        judge([GOOD, apart], NONCE, home="s3://bucket/home")
    assert "1 of 2 tasks cannot read the home" in caught.value.message
    assert "bob (/work/0). The first one says: AccessDenied: no key" in caught.value.message
    assert "spark.executorEnv" in caught.value.advice
    bare = replace(GOOD, host="cyd", nonce=None, lamina=None)
    with pytest.raises(Refused, match="no Lamina on cyd"):
        judge([GOOD, bare], NONCE, home="s3://bucket/home")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"lamina": "0.0.9"}, f"Lamina 0.0.9 on bob .*Lamina {__version__} on the driver"),
        ({"lamina": None}, f"no Lamina on bob .*Lamina {__version__} on the driver"),
        ({"pyarrow": "1.0"}, f"pyarrow 1.0 on bob .*pyarrow {pa.__version__} on the driver"),
        ({"hash": 7}, "other hashes here.*host bob"),
    ],
)
def test_another_version_is_named_with_its_host_and_ours(other: dict[str, Any], said: str) -> None:
    judge([GOOD, GOOD], NONCE, home="")
    with pytest.raises(Refused, match=said):
        judge([GOOD, replace(GOOD, host="bob", **other)], NONCE, home="")


def changed_python(folder: Path, code: str) -> str:
    """A Python that runs *code* first: only one is installed here."""
    (folder / "sitecustomize.py").write_text(code)
    python = folder / "python"
    command = f'PYTHONPATH="{folder}:$PYTHONPATH" exec {sys.executable} "$@"'
    python.write_text(f"#!/bin/sh\n{command}\n")
    python.chmod(0o755)
    return str(python)


def test_executors_with_another_python_are_refused_by_both_versions(
    own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = changed_python(
        tmp_path,
        "import collections, sys\n"
        "kind = collections.namedtuple('Version', 'major minor micro releaselevel serial')\n"
        "sys.version_info = kind(3, 99, *sys.version_info[2:])\n",
    )
    monkeypatch.setattr(own.sparkContext, "pythonExec", other)
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(Refused, match=rf"executors have Python 3\.99, the driver has {mine}"):
        ask(own, tmp_path / "home", partitions=1)


def test_executors_without_lamina_are_named_and_not_just_a_job_that_failed(
    own: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = changed_python(tmp_path, "import sys\nsys.modules['lamina'] = None\n")
    monkeypatch.setattr(own.sparkContext, "pythonExec", bare)
    with pytest.raises(Refused, match=f"no Lamina on .*, and Lamina {__version__} on the driver"):
        ask(own, tmp_path / "home", partitions=1)
