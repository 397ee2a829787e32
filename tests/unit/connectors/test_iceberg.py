"""The options of the Iceberg sink: what they mean, and what is refused by `lamina check`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lamina.connectors.iceberg.kind import ICEBERG, address_of, table_name
from lamina.connectors.options import read_options
from lamina.errors import BadPipeline
from lamina.pipeline.model import START, DeclaredSink, Option


def sink(**options: str) -> DeclaredSink:
    given = {name.replace("__", "."): value for name, value in options.items()}
    declared = {name: Option(value, value.replace("$", "")) for name, value in given.items()}
    return DeclaredSink("out", "n", "iceberg", declared, START)


LOCAL = {"table": "shop.orders", "catalog__warehouse": "w"}
REST = {"table": "shop.orders", "catalog": "rest", "catalog__uri": "https://catalog"}
FOLDER = Path("/pipelines")


def check(declared: DeclaredSink) -> None:
    ICEBERG.check(declared, read_options(declared, ICEBERG, FOLDER, file="p.sql"))


def test_a_warehouse_is_a_folder_beside_the_pipeline_with_its_catalog_in_it() -> None:
    declared = sink(**LOCAL)
    check(declared)
    address = address_of(declared, read_options(declared, ICEBERG, FOLDER, file="p.sql"))
    assert address.properties == {
        "warehouse": "file:///pipelines/w",
        "uri": "sqlite:////pipelines/w/catalog.db",
    }
    assert address.sqlite == Path("/pipelines/w/catalog.db")
    assert (address.kind, address.catalog, address.table) == ("sql", "default", ("shop", "orders"))


def test_properties_of_pyiceberg_are_passed_on_and_secrets_are_known() -> None:
    declared = sink(
        **REST,
        catalog__credential="${id:pass}",
        catalog__ssl__client__cert="c.pem",
        catalog__ssl__cabundle="ca.pem",
        catalog_name="prod",
    )
    check(declared)
    address = address_of(declared, read_options(declared, ICEBERG, FOLDER, file="p.sql"))
    assert address.properties == {
        "uri": "https://catalog",
        "credential": "{id:pass}",
        "ssl": {"client": {"cert": "c.pem"}, "cabundle": "ca.pem"},
    }
    assert address.secrets == ("{id:pass}", "pass}")
    assert "pass" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ("a.b", ("a", "b")),
        ("a.b.c", ("a", "b", "c")),
        ("`a.b`.`c``d`", ("a.b", "c`d")),
        ("Ünï.with space", ("Ünï", "with space")),
    ],
)
def test_names_of_tables(written: str, parts: tuple[str, ...]) -> None:
    declared = sink(**{**LOCAL, "table": written})
    assert table_name(declared, read_options(declared, ICEBERG, FOLDER, file="p.sql")) == parts


@pytest.mark.parametrize(
    "written", ["orders", "a.", ".b", "a..b", "a.b/c", "a.`..`", "a.b?", "a.`b"]
)
def test_names_that_are_none(written: str) -> None:
    with pytest.raises(BadPipeline, match=r"namespace\.name"):
        check(sink(**{**LOCAL, "table": written}))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"table": "a.b"}, r"has no catalog\.warehouse"),
        ({"table": "a.b", "catalog__warehouse": "s3://b/w"}, r"has no catalog\.uri"),
        ({**LOCAL, "catalog__uri": "sqlite://"}, "not a file"),
        ({**LOCAL, "catalog__uri": "sqlite:///:memory:"}, "not a file"),
        ({**LOCAL, "catalog__uri": "postgresql+psycopg://me:pw@db/c"}, "in plain text"),
        ({**LOCAL, "catalog__s3__secret-access-key": "k"}, "in plain text"),
        ({**REST, "catalog__token": "t"}, "in plain text"),
        ({**REST, "catalog__credential": "a:b"}, "in plain text"),
        ({"table": "a.b", "catalog": "rest"}, r"has no catalog\.uri of a REST catalog"),
        ({**REST, "catalog__uri": "catalog:8181"}, r"has no catalog\.uri of a REST catalog"),
        ({**LOCAL, "catalog": "hive"}, "It can be sql, rest"),
        ({**LOCAL, "catalog__type": "rest"}, "Write catalog 'sql'"),
        ({**LOCAL, "catalog__py-io-impl": "x.Y"}, "always opened by pyarrow"),
        ({**LOCAL, "warehouse": "w"}, r"catalog\.\*"),
        ({**LOCAL, "merge_schema": "yes"}, "true or false"),
    ],
)
def test_what_would_not_work_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(BadPipeline, match=said):
        check(sink(**options))


def test_checking_imports_no_pyiceberg() -> None:
    code = "import sys, lamina.connectors.iceberg.kind; sys.exit('pyiceberg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
