"""A pipeline on Spark over the changes of a real MariaDB: what a table has, its streams have."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from lamina.testing.faulty import Killed
from tests.contract.mysql_rig import MySqlRig, random_change
from tests.servers.mariadb import ROOT, MariaServer
from tests.spark.running import Place, Run
from tests.spark.test_debezium import Epochs, applied, run_all

pytestmark = pytest.mark.server
TOTALS = "SELECT id % 5 AS part, count(*) AS n, sum(amount) AS total FROM t GROUP BY id % 5"


def test_streams_have_what_the_table_has_whatever_is_killed(
    spark: Any, tmp_path: Path, mariadb_server: MariaServer
) -> None:
    rig = MySqlRig(mariadb_server, mariadb_server.new_database(), tmp_path)
    rig.create()
    text = (
        "CREATE SOURCE t (id BIGINT, name STRING, amount DECIMAL(12, 2), big STRING) USING "
        f"mysql_cdc OPTIONS (host '127.0.0.1', port '{rig.server.port}', user '{ROOT}', "
        f"database '{rig.schema}', table 't', keys 'id');"
        "CREATE STREAM rows AS SELECT id, name, amount, big FROM t;"
        f"CREATE STREAM totals AS {TOTALS} EMIT CHANGES;"
        "CREATE SINK rows_out FROM rows USING function OPTIONS (function 'm:f');"
        "CREATE SINK totals_out FROM totals USING function OPTIONS (function 'm:f');"
    )
    random, place, kept = Random(3), Place(tmp_path), dict[str, Epochs]()
    for nth, rows in ((4, None), (0, 40), (7, None), (0, None)):
        for _ in range(4):
            random_change(rig, random)
        left = [nth]

        def fail_point(name: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Killed(name)

        run = Run(spark, place, rows=rows, fail_point=fail_point)
        if nth:
            with pytest.raises(Killed):
                run_all(run, text, kept)
            continue
        run_all(run, text, kept)
        *_, found = applied(kept["rows_out"])
        assert {tuple(row.values()) for row in found.values()} == rig.there()
        *_, sums = applied(kept["totals_out"], "part")
        wanted = rig.server.execute(TOTALS, database=rig.schema)
        assert {tuple(row.values()) for row in sums.values()} == set(wanted)
    for state in applied(kept["rows_out"]):
        assert {tuple(row.values()) for row in state.values()} in rig.states
    rig.drop()
