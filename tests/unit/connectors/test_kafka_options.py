"""What a Kafka source says of itself is checked without a look at the world; secrets stay so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lamina.connectors.jars import FOLDER, JARS, PACKAGES, coordinates, plan_jars
from lamina.connectors.kafka.security import driver_settings
from lamina.connectors.opening import check_source, jars_of
from lamina.errors import BadPipeline, UsageError
from lamina.pipeline.model import DeclaredSource, Watermark
from lamina.pipeline.statements import parse_pipeline

BASE = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="u" password="geh\\"eim";'
)
SASL = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": "${JAAS}",
}


def source(
    options: Mapping[str, str], columns: str = "a BIGINT", jaas: str = LOGIN, kind: str = "kafka"
) -> DeclaredSource:
    listed = ", ".join(f"{name} '{value}'" for name, value in options.items())
    text = f"CREATE SOURCE s ({columns}) USING {kind} OPTIONS ({listed})"
    return parse_pipeline(text, {"JAAS": jaas, "LOGIN": "user:geheim"}).sources["s"]


REFUSED: Mapping[str, tuple[Mapping[str, str], str]] = {
    "no topic": ({"subscribe": ""}, "no topic"),
    "two ways": ({"assign": '{"t":[0]}'}, "subscribe and assign"),
    "a bad pattern": ({"subscribe": "", "subscribePattern": "a("}, "subscribePattern"),
    "a bad assign": ({"subscribe": "", "assign": '{"t":["0"]}'}, "assign"),
    "a bad start": ({"startingOffsets": "somewhere"}, "startingOffsets"),
    "a start with bad numbers": ({"startingOffsets": '{"t":{"0":-3}}'}, "startingOffsets"),
    "lost rows ignored": ({"failOnDataLoss": "false"}, "--skip-lost"),
    "an end": ({"endingOffsets": "latest"}, "endingOffsets"),
    "headers as in Spark": ({"includeHeaders": "true"}, "METADATA FROM"),
    "a group": ({"kafka.group.id": "g"}, "kafka.group.id"),
    "uncommitted rows": ({"kafka.isolation.level": "read_uncommitted"}, "isolation"),
    "a key store of Java": ({"kafka.ssl.truststore.password": "x"}, "PEM"),
    "an unknown setting": ({"kafka.no.such.thing": "x"}, "kafka.no.such.thing"),
    "a typo": ({"kafka.fetch.max.byte": "x"}, "kafka.fetch.max.bytes"),
    "a protocol that is none": ({"kafka.security.protocol": "TLS"}, "SASL_SSL"),
    "a login without how": ({"kafka.security.protocol": "SASL_SSL"}, "jaas"),
    "a password in plain text": ({**SASL, "kafka.sasl.jaas.config": "x"}, "plain text"),
    "a store without its type": ({"kafka.ssl.truststore.location": "/x"}, "PEM"),
    "an unknown format": ({"format": "xml"}, "json, csv, avro, raw"),
    "a header of CSV": ({"format": "csv", "header": "true"}, "header"),
    "an option of CSV for JSON": ({"sep": ";"}, "sep"),
    "Avro without a schema": ({"format": "avro"}, "schema"),
    "Avro with both": (
        {"format": "avro", "avroSchema": "{}", "schema.registry.url": "http://r"},
        "avroSchema and schema.registry.url",
    ),
    "a registry for JSON": ({"schema.registry.url": "http://r"}, "avro"),
    "a login in the address": (
        {"format": "avro", "schema.registry.url": "http://u:p@r"},
        "user.info",
    ),
    "raw with two columns": ({"format": "raw"}, "BINARY"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_would_not_work_is_refused_with_advice(wrong: str, tmp_path: Path) -> None:
    changed, said = REFUSED[wrong]
    with pytest.raises(BadPipeline) as refused:
        check_source(source({**BASE, **changed}, "a BIGINT, b STRING"), tmp_path)
    assert said in str(refused.value)
    assert refused.value.advice


@pytest.mark.parametrize("jaas", ["nonsense", LOGIN.replace("Plain", "OAuthBearer")])
def test_a_login_of_another_kind_is_refused_and_not_shown(jaas: str, tmp_path: Path) -> None:
    with pytest.raises(BadPipeline, match=r"jaas\.config") as refused:
        check_source(source({**BASE, **SASL}, jaas=jaas), tmp_path)
    assert "geh" not in str(refused.value)


METADATA = {
    "a BIGINT METADATA FROM 'nothing'": "key, headers, topic",
    "a BIGINT METADATA FROM 'key'": "STRING or BINARY",
    "a STRING METADATA FROM 'timestamp'": "TIMESTAMP",
}


@pytest.mark.parametrize("column", METADATA)
def test_metadata_has_names_and_types(column: str, tmp_path: Path) -> None:
    with pytest.raises(BadPipeline) as refused:
        check_source(source(BASE, f"{column}, b STRING"), tmp_path)
    assert METADATA[column].lower() in str(refused.value).lower()


def test_other_kinds_have_no_metadata(tmp_path: Path) -> None:
    wrong = source({"path": "in"}, "a STRING METADATA FROM 'key'", kind="json")
    with pytest.raises(BadPipeline, match="no metadata"):
        check_source(wrong, tmp_path)


@pytest.mark.parametrize("kind", ["kafka", "json"])
def test_the_time_of_the_epoch_is_not_the_sources_to_know(kind: str, tmp_path: Path) -> None:
    """Nor is a watermark on it: no part of a source could hold it back."""
    options = BASE if kind == "kafka" else {"path": "in"}
    declared = source(options, "a BIGINT, p TIMESTAMP METADATA FROM 'EPOCH_TIME'", kind=kind)
    for mark, kept in ((Watermark("p", 0), None), (Watermark("a", 5), Watermark("a", 5))):
        found = check_source(replace(declared, watermark=mark), tmp_path).source
        assert [column.name for column in found.columns] == ["a"]
        assert found.watermark == kept


def test_metadata_is_part_of_what_a_source_is() -> None:
    plain, other = source(BASE, "k STRING"), source(BASE, "k STRING METADATA FROM 'key'")
    assert plain.definition() != other.definition()
    assert other == replace(other, columns=other.columns)


@pytest.mark.parametrize("wrong", ["a METADATA FROM 'key'", "a STRING METADATA FROM key"])
def test_metadata_is_one_text_behind_a_type(wrong: str) -> None:
    with pytest.raises(BadPipeline):
        source(BASE, wrong)


def test_security_is_said_in_both_dialects(tmp_path: Path) -> None:
    context = check_source(
        source(
            {
                **BASE,
                **SASL,
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.location": "/ca.pem",
                "kafka.ssl.endpoint.identification.algorithm": "",
            }
        ),
        tmp_path,
    )
    assert driver_settings("b:9092", context.given.further) == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": 'geh"eim',
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert "geh" not in repr(context.source)


# jars


def test_a_pipeline_needs_the_jars_of_its_sources(tmp_path: Path) -> None:
    text = "CREATE SOURCE a (x BIGINT) USING kafka OPTIONS (kafka.bootstrap.servers 'b', {});"
    plain = parse_pipeline(text.format("subscribe 't'"))
    assert jars_of(plain, tmp_path) == ("spark-sql-kafka-0-10",)
    avro = parse_pipeline(text.format("subscribe 't', format 'avro', avroSchema '{}'"))
    assert jars_of(avro, tmp_path) == ("spark-avro", "spark-sql-kafka-0-10")
    files = parse_pipeline("CREATE SOURCE a (x BIGINT) USING json OPTIONS (path 'in');")
    assert jars_of(files, tmp_path) == ()


KAFKA = "spark-sql-kafka-0-10"


def test_spark_fetches_the_jars_of_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    (package,) = coordinates([KAFKA])
    assert package.startswith(f"org.apache.spark:{KAFKA}_2.13:4.")
    assert plan_jars([KAFKA]).settings == {PACKAGES: package}
    both = plan_jars([KAFKA], conf={PACKAGES: "a:b:1"}).settings
    assert both == {PACKAGES: f"a:b:1,{package}"}
    assert plan_jars([KAFKA], conf={PACKAGES: package}).settings == {}, "the user brings it"
    assert plan_jars([KAFKA], conf={JARS: f"/x/{KAFKA}_2.13-4.3.0.jar"}).settings == {}
    assert plan_jars([]).settings == {}


def test_or_takes_them_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (f"{KAFKA}_2.13-4.3.0.jar", "kafka-clients-3.9.1.jar", "notes.txt"):
        (tmp_path / name).touch()
    listed = f"{tmp_path}/kafka-clients-3.9.1.jar,{tmp_path}/{KAFKA}_2.13-4.3.0.jar"
    assert plan_jars([KAFKA], str(tmp_path)).settings == {JARS: listed}
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert plan_jars([KAFKA], conf={JARS: "/my.jar"}).settings == {JARS: f"/my.jar,{listed}"}
    with pytest.raises(UsageError, match="spark-avro"):
        plan_jars(["spark-avro"])
    with pytest.raises(UsageError, match="no such folder"):
        plan_jars([KAFKA], str(tmp_path / "nowhere"))
