"""What the text of an option means, by the type that its kind declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from lamina.connectors import registry
from lamina.connectors.kinds import DeclaredOption, Extra, Given, OptionType, SinkKind, Value
from lamina.connectors.opening import check_sink
from lamina.connectors.options import read_options
from lamina.errors import BadPipeline
from lamina.pipeline.model import DeclaredSink, Option

KIND = SinkKind(
    "odd",
    "Everything",
    open=lambda _: pytest.fail("nothing is opened"),
    delivery="exactly once",
    options=(
        DeclaredOption("createTable", "", OptionType.SWITCH),
        DeclaredOption("keys", "", OptionType.COLUMNS),
        DeclaredOption("idle_after", "", OptionType.INTERVAL),
        DeclaredOption("password", "", OptionType.SECRET),
        DeclaredOption("mode", "", choices=("append", "upsert")),
        DeclaredOption("path", "", OptionType.OUTPUT, remote=True),
        DeclaredOption("local", "", OptionType.OUTPUT),
    ),
    further="Options of the client",
    further_prefix="client.",
)


def read(folder: Path, kind: SinkKind = KIND, **options: str | Option) -> Given:
    listed = {n.replace("__", "."): _option(value) for n, value in options.items()}
    return read_options(DeclaredSink("o", "s", "odd", listed), kind, folder, file="p.sql")


def _option(value: str | Option) -> Option:
    return value if isinstance(value, Option) else Option.plain(value)


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("createTable", " TRUE ", True),
        ("createtable", "false", False),
        ("keys", "a", ("a",)),
        ("keys", " a , two words,`a,b`,`back``tick` ", ("a", "two words", "a,b", "back`tick")),
        ("idle_after", "10 minutes", 600_000_000),
        ("idle_after", "INTERVAL 2 HOURS", 7_200_000_000),
        ("mode", " Upsert", "upsert"),
        ("path", "s3://bucket/a//b/", "s3://bucket/a/b"),
    ],
)
def test_an_option_has_the_type_that_is_declared(
    name: str, written: str, value: Value, *, tmp_path: Path
) -> None:
    (found,) = read(tmp_path, **{name: written}).declared.values()
    assert found == value


@pytest.mark.parametrize(
    ("name", "written", "said"),
    [
        ("createTable", "yes", "It can be true or false"),
        ("keys", "", "Write each column once"),
        ("keys", "a,,b", "Write each column once"),
        ("keys", "a, A", "Write each column once"),
        ("keys", "`a", "Write each column once"),
        ("idle_after", "10", "Write a number above zero and one of"),
        ("idle_after", "0 seconds", "Write a number above zero"),
        ("idle_after", "ten minutes", "Write a number above zero"),
        ("mode", "replace", "It can be append, upsert"),
        ("path", "s3://user:pw@bucket/a", "credentials"),
        ("path", "hdfs://name/a", "s3://"),
        ("local", "s3://bucket/a", "is a URL"),
        ("other__name", "1", "Known options: createTable, keys"),
        ("other__name", "1", "client.*"),
    ],
)
def test_what_it_cannot_be_is_said(name: str, written: str, said: str, *, tmp_path: Path) -> None:
    with pytest.raises(BadPipeline) as raised:
        read(tmp_path, **{name: written})
    assert said in str(raised.value)


def test_a_secret_comes_from_the_environment_and_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(BadPipeline) as raised:
        read(tmp_path, password="hush-hush")
    assert "hush" not in str(raised.value)
    assert "password '${A_VARIABLE}'" in str(raised.value)
    given = read(tmp_path, password=Option("${PW}", "hush-hush"))
    assert given.text("password") == "hush-hush"


def test_options_with_the_prefix_of_the_client_are_passed_on(tmp_path: Path) -> None:
    assert read(tmp_path, client__Linger="5").further == {"client.linger": "5"}


def test_a_package_that_is_missing_is_named_with_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("no_such_package", "no_such_package.part"):
        kind = SinkKind("odd", "", KIND.open, "", extra=Extra("odd", (module,)))
        monkeypatch.setattr(registry, "_load", lambda _, kind=kind: kind)
        monkeypatch.setitem(registry.SINKS, "odd", "somewhere:KIND")
        with pytest.raises(BadPipeline) as raised:
            check_sink(DeclaredSink("o", "s", "odd"), tmp_path)
        assert module in str(raised.value)
        assert "pip install 'lamina[odd]'" in str(raised.value)
