"""Every name in a pipeline's folder, and what is none of ours."""

from __future__ import annotations

import pytest

from lamina.errors import BadName
from lamina.format.names import (
    BASE_BYTES_MAX,
    BeginName,
    CheckpointPaths,
    LatestName,
    LogName,
    ManifestName,
    Name,
    OriginName,
    OutputName,
    RunName,
    SidecarName,
    base_of_file,
    escape,
    normalise_base,
    parse,
    path_problem,
    relative,
    unescape,
)
from lamina.ids import CheckpointId

ID = CheckpointId.parse("01234567-89ab-7abc-8def-0123456789ab")

NAMES: dict[str, Name] = {
    "_latest": LatestName(),
    "origin.json": OriginName(),
    "log/00000000000000000042.json": LogName(42),
    f"{ID}/begin.json": BeginName(ID),
    f"{ID}/manifest.json": ManifestName(ID),
    f"{ID}/state.bin": SidecarName(ID),
    f"{ID}/operators/window-agg/partition-3-1-9.snap": RunName(ID, "window-agg", 3, 1, 9, "snap"),
    f"{ID}/operators/a!2Fb!20c/partition-0-0-0.delta": RunName(ID, "a/b c", 0, 0, 0, "delta"),
    f"{ID}/output/!C3!BC/12/part-0.parquet": OutputName(ID, "ü", 12, "part-0.parquet"),
}


@pytest.mark.parametrize("path", NAMES)
def test_a_name_has_this_path_and_is_parsed_back(path: str) -> None:
    assert relative(NAMES[path]) == path
    assert parse(path) == NAMES[path]


@pytest.mark.parametrize("base", ["", "p", "a/b", f"nested/{ID}", f"{ID}/operators"])
@pytest.mark.parametrize("path", NAMES)
def test_the_base_of_a_file_is_known_by_its_key_alone(path: str, base: str) -> None:
    """Of what manifests name, and of nothing else: a log is never that of another base."""
    is_file = isinstance(NAMES[path], SidecarName | RunName | OutputName)
    assert base_of_file(CheckpointPaths(base).absolute(path)) == (base if is_file else None)


def test_paths_builds_what_parse_reads() -> None:
    paths = CheckpointPaths("s3://my-bucket/checkpoints")
    assert paths.latest_pointer() == "checkpoints/_latest"
    assert paths.origin() == "checkpoints/origin.json"
    assert paths.log_dir() == "checkpoints/log"
    assert paths.log_entry(1) == "checkpoints/log/00000000000000000001.json"
    assert paths.checkpoint_dir(ID) == f"checkpoints/{ID}"
    assert paths.parse(paths.begin(ID)) == BeginName(ID)
    assert paths.parse(paths.manifest(ID)) == ManifestName(ID)
    assert paths.parse(paths.sidecar(ID)) == SidecarName(ID)
    snapshot = paths.snapshot(ID, "window-agg", 3, first=1, last=9)
    assert snapshot == f"checkpoints/{ID}/operators/window-agg/partition-3-1-9.snap"
    delta = paths.delta(ID, "window-agg", 3, first=10, last=10)
    assert delta.endswith("/partition-3-10-10.delta")
    output = paths.output(ID, "out", epoch=4, file="x.parquet")
    assert paths.parse(output) == OutputName(ID, "out", 4, "x.parquet")
    assert paths.parse("elsewhere/_latest") is None
    assert paths.relative("checkpointsx/_latest") is None


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "_latest/",
        "/_latest",
        "latest",
        "log/1.json",
        "log/000000000000000000001.json",
        "log/0000000000000000000\u0661.json",
        "log/00000000000000000001.json.tmp",
        str(ID),
        f"{ID}/",
        f"{ID}/manifest.json/x",
        f"{ID}manifest.json",
        f"{str(ID).upper()}/manifest.json",
        f"{ID}/offsets/kafka.json",
        f"{ID}/operators/agg/partition-3.snap",
        f"{ID}/operators/agg/partition-03-1-9.snap",
        f"{ID}/operators/agg/partition-3-9-1.snap",
        f"{ID}/operators/agg/partition-3-1-9.tmp",
        f"{ID}/operators//partition-3-1-9.snap",
        f"{ID}/operators/../partition-3-1-9.snap",
        f"{ID}/operators/a b/partition-3-1-9.snap",
        f"{ID}/operators/a!2fb/partition-3-1-9.snap",
        f"{ID}/operators/!61/partition-3-1-9.snap",
        f"{ID}/operators/!FF/partition-3-1-9.snap",
        f"{ID}/operators/agg/partition-{'9' * 5000}-1-9.snap",
        f"{ID}/output/out/x/part",
        f"{ID}/output/out/{'9' * 5000}/part",
        f"{ID}/output/out/1/",
    ],
)
def test_what_is_none_of_ours_is_none(path: str) -> None:
    assert parse(path) is None


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("window-agg", "window-agg"),
        (".", "!2E"),
        ("..", "!2E."),
        (".hidden", "!2Ehidden"),
        ("a.b", "a.b"),
        ("a/b", "a!2Fb"),
        ("../../etc", "!2E.!2F..!2Fetc"),
        ("a b", "a!20b"),
        ("!", "!21"),
        ("%41", "!2541"),
        ("\x00", "!00"),
        ("日", "!E6!97!A5"),
    ],
)
def test_names_are_escaped_and_back(name: str, segment: str) -> None:
    assert escape(name) == segment
    assert unescape(segment) == name


@pytest.mark.parametrize("name", ["", "x" * 201, "x" * 4096, "日" * 23, "\ud800"])
def test_a_name_that_fits_no_path_is_refused(name: str) -> None:
    with pytest.raises(BadName) as caught:
        escape(name)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("base", "normalised"),
    [
        ("", ""),
        ("/", ""),
        ("a", "a"),
        ("/a//b/", "a/b"),
        ("s3://bucket", ""),
        ("s3://bucket/", ""),
        ("s3://bucket/a/b/", "a/b"),
        ("file:///a/b", "a/b"),
        ("az://container@account/a", "a"),
        ("pipelines/ü 1", "pipelines/ü 1"),
        ("a/b?c#d", "a/b?c#d"),
    ],
)
def test_a_base_is_a_prefix_of_keys(base: str, normalised: str) -> None:
    assert normalise_base(base) == normalised
    assert normalise_base(normalised) == normalised


@pytest.mark.parametrize(
    "base",
    [
        "..",
        "a/../b",
        "a/./b",
        "a\\b",
        "a\nb",
        "s3://bucket/a\nb",
        "s3://bucket/a?region=x",
        "s3://bucket/a#b",
        "s3://bucket/..",
        "\ud800",
        "x" * (BASE_BYTES_MAX + 1),
    ],
)
def test_a_base_that_could_mean_two_things_is_refused(base: str) -> None:
    with pytest.raises(BadName):
        normalise_base(base)


def test_the_longest_names_fit_into_a_key() -> None:
    paths = CheckpointPaths("x" * BASE_BYTES_MAX)
    last = 10**20 - 1
    assert len(paths.snapshot(ID, "x" * 200, last, first=last, last=last)) <= 1024
    assert len(paths.output(ID, "x" * 200, epoch=last, file="y" * 200)) <= 1024


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("a/b.c", ""),
        ("/a", "absolute"),
        ("s3://b/a", "absolute"),
        ("C:\\a", "character"),
        ("a/../b", "segment"),
        ("a//b", "segment"),
        ("", "segment"),
        ("a/", "segment"),
        ("a\tb", "character"),
    ],
)
def test_a_portable_path_has_no_problem(path: str, problem: str) -> None:
    assert problem in path_problem(path)
    assert bool(path_problem(path)) == bool(problem)


@pytest.mark.parametrize(
    "name",
    [
        LogName(-1),
        LogName(10**20),
        RunName(ID, "o", -1, 0, 0, "snap"),
        RunName(ID, "o", 0, 2, 1, "snap"),
        RunName(ID, "o", 0, 0, 10**20, "snap"),
        OutputName(ID, "s", -1, "f"),
    ],
)
def test_a_number_that_no_name_can_hold_was_only_asserted(name: Name) -> None:
    """Under python -O it became a name that nobody could parse."""
    with pytest.raises(BadName):
        relative(name)
