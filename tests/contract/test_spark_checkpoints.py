"""`lamina verify-spark` on a checkpoint in S3, where there are no checksums of Hadoop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lamina.store import open_store
from tests.servers import S3Server
from tests.support.command_line import answer, lamina
from tests.support.spark_checkpoints import drop_sidecars, keys, unpack

pytestmark = pytest.mark.server


def test_a_checkpoint_in_s3_is_verified_and_its_damage_found(
    seaweedfs_server: S3Server, tmp_path: Path
) -> None:
    folder = unpack("rocksdb", tmp_path)
    drop_sidecars(folder)
    url, options = seaweedfs_server.url("spark-checkpoint"), seaweedfs_server.options()
    store = open_store(url, **options)
    for key in keys(folder):
        store.put(key, (folder / key).read_bytes())
    more = options.pop("client_options") | {}
    given = [f"{name}={value}" for name, value in options.items()]
    given += [f"client_options.{name}={value}" for name, value in more.items()]
    asked = [
        "verify-spark",
        url,
        "--json",
        *(part for each in given for part in ("--option", each)),
    ]
    said = answer(lamina(*asked))
    assert (said["ok"], said["restart"]["does"], said["files"]) == (
        True,
        "continues",
        len(keys(folder)),
    )
    store.put("offsets/3", b"v1\n{")
    damaged = lamina(*asked)
    assert damaged.exit_code == 4
    assert [each["where"] for each in json.loads(damaged.stdout)["findings"]] == ["offsets/3"]
