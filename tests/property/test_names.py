"""parse(build(x)) == x, for every name anybody could think of."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lamina.errors import BadName
from lamina.format import names
from lamina.format.names import (
    CheckpointPaths,
    LogName,
    Name,
    OutputName,
    RunName,
    escape,
    normalise_base,
    parse,
    path_problem,
    relative,
    unescape,
)
from lamina.ids import CheckpointId
from tests.support.examples import examples

QUICK = settings(deadline=None, max_examples=examples(200))


def _fits(name: str) -> bool:
    try:
        escape(name)
    except BadName:
        return False
    return True


TEXT = st.text(min_size=1, max_size=60).filter(_fits)
IDS = st.builds(CheckpointId.from_parts, st.integers(0, 2**48 - 1), st.integers(0, 2**74 - 1))
NUMBERS = st.integers(0, 2**64 - 1)


@st.composite
def run_names(draw: st.DrawFn) -> RunName:
    first, last = sorted((draw(NUMBERS), draw(NUMBERS)))
    kind = draw(st.sampled_from(["snap", "delta"]))
    return RunName(draw(IDS), draw(TEXT), draw(NUMBERS), first, last, kind)


OUTPUT_NAMES = st.builds(OutputName, IDS, TEXT, NUMBERS, TEXT)
IN_CHECKPOINT = st.one_of(
    st.builds(names.BeginName, IDS),
    st.builds(names.ManifestName, IDS),
    st.builds(names.SidecarName, IDS),
    run_names(),
    OUTPUT_NAMES,
)
NAMES = st.one_of(
    st.just(names.LatestName()), st.builds(LogName, st.integers(0, 10**20 - 1)), IN_CHECKPOINT
)


@QUICK
@given(NAMES)
def test_a_name_is_parsed_back(name: Name) -> None:
    assert parse(relative(name)) == name


@QUICK
@given(NAMES, NAMES)
def test_distinct_names_have_distinct_paths(one: Name, other: Name) -> None:
    assert (relative(one) == relative(other)) == (one == other)


@QUICK
@given(IN_CHECKPOINT, st.sampled_from(["", "base", "a/b"]))
def test_everything_of_a_checkpoint_lies_in_its_folder(name: Name, base: str) -> None:
    paths = CheckpointPaths(base)
    id = name.id  # type: ignore[union-attr]
    key = paths.absolute(relative(name))
    assert key.startswith(paths.checkpoint_dir(id) + "/")
    assert paths.parse(key) == name


@QUICK
@given(NAMES)
def test_a_path_is_portable(name: Name) -> None:
    path = relative(name)
    assert path_problem(path) == ""
    assert path.isascii()
    assert all(0 < len(part) <= 200 for part in path.split("/"))


@QUICK
@given(st.text(max_size=300))
def test_escape_is_reversible_or_refuses(name: str) -> None:
    try:
        segment = escape(name)
    except BadName:
        return
    assert unescape(segment) == name
    assert segment not in (".", "..")
    assert not segment.startswith(".")


@QUICK
@given(st.text(max_size=80) | st.text("!0123456789ABCDEFabc./-_", max_size=40))
def test_a_path_that_parses_is_the_one_its_name_has(path: str) -> None:
    name = parse(path)
    assert name is None or relative(name) == path


@QUICK
@given(IN_CHECKPOINT, st.text("!0123456789ABCDEF./-_ apn", min_size=1, max_size=3), st.data())
def test_a_changed_path_is_another_name_or_none(name: Name, new: str, data: st.DataObject) -> None:
    path = relative(name)
    at = data.draw(st.integers(0, len(path) - 1))
    changed = path[:at] + new + path[at + 1 :]
    assume(changed != path)
    found = parse(changed)
    assert found != name
    assert found is None or relative(found) == changed


SEGMENT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\?#:"),
    min_size=1,
    max_size=10,
).filter(lambda part: part not in (".", ".."))


@QUICK
@given(st.lists(SEGMENT, max_size=4), IDS)
def test_every_spelling_of_a_base_gives_the_same_paths(parts: list[str], id: CheckpointId) -> None:
    base = "/".join(parts)
    spellings = [
        base,
        f"/{base}",
        f"{base}/",
        f"//{'//'.join(parts)}//",
        f"s3://bucket/{base}",
        f"gs://bucket//{base}/",
        f"file:///{base}",
    ]
    expected = CheckpointPaths(base).manifest(id)
    assert {CheckpointPaths(spelling).manifest(id) for spelling in spellings} == {expected}


@QUICK
@given(st.text(max_size=60) | st.text("s3:/.a\\?#\n", max_size=20))
def test_a_base_is_normal_or_refused(base: str) -> None:
    try:
        normal = normalise_base(base)
    except BadName:
        return
    assert not normal.startswith("/")
    assert not normal.endswith("/")
    assert "//" not in normal
    assert ".." not in normal.split("/")
