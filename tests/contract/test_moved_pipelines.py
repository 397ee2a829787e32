"""`lamina move` with the defaults that people have: the advice it prints is what a start needs."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from lamina.clock import Clock
from lamina.engine.engine import Engine
from lamina.errors import NotFound, Refused, UsageError
from lamina.format.remote_names import EPOCHS
from lamina.front.places import place_of
from lamina.store import Store, open_store
from lamina.workspace import LocalWorkspace
from lamina.workspace.base import Workspace
from lamina.workspace.remote import remote_workspace
from tests.engine.pipelines import World, run_out
from tests.engine.test_kills import EXPECTED
from tests.servers.s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from tests.support.command_line import answer, lamina

_CORNERS = count()


@dataclass
class Started(World):
    """A pipeline that is started with the --home and the --store that somebody has printed."""

    home_at: str = ""

    def space(self, clock: Clock, store: Store) -> Workspace:
        if "://" not in self.home_at:
            return LocalWorkspace(Path(self.home_at), clock)
        scratch = self.root / f"machine-{next(_CORNERS)}"
        return remote_workspace(
            self.home_at, scratch, clock, store=store.url, tasks_here=False, take_over=True
        )

    def start(self, home: str, store: str, *, epochs: int | None = None) -> Engine:
        self.home_at, self.store = home, open_store(store)
        engine = self.open()
        run_out(engine, epochs=epochs)
        engine.checkpoint()
        return engine


@pytest.fixture
def bucket(ministack_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ministack_server.port}",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    return ministack_server.url(f"moved-{next(_CORNERS)}")


def advised(*move: str) -> tuple[str, str]:
    told = lamina("move", *move)
    assert told.exit_code == 0, told.stderr
    found = re.search(r"start it with --home (\S+) --store (\S+)$", told.stdout, re.MULTILINE)
    assert found, told.stdout
    return found[1], found[2]


def test_there_and_on_and_back_with_the_defaults_and_the_old_places_deleted(
    bucket: str, tmp_path: Path
) -> None:
    """A folder, a bucket, another place in it, a folder: each time it runs, and saves."""
    file = str(tmp_path / "trades.sql")
    place = place_of(file)
    world = Started(tmp_path)
    world.start(str(place.home), place.store, epochs=3).close()

    first = f"{bucket}/first"
    home, store = advised(file, "--to-home", first)
    assert (home, store) == (first, f"{first}/store")
    shutil.rmtree(place.home.parent)
    world.start(home, store, epochs=1).close()

    second = f"{bucket}/second"
    home, store = advised("--home", first, "--to-home", second)
    assert (home, store) == (second, f"{second}/store")
    old = open_store(first)
    for info in list(old.list()):
        old.delete(info.key)
    world.start(home, store, epochs=1).close()

    home, store = advised(file, "--home", second, "--to-home", str(place.home))
    assert (home, store) == (str(place.home), place.store)
    world.start(home, store).close()
    assert world.outcome() == EXPECTED


def test_checkpoints_that_somebody_has_put_elsewhere_stay(bucket: str, tmp_path: Path) -> None:
    """And if they are below the old place, that is said."""
    file, chosen, first = str(tmp_path / "trades.sql"), f"{bucket}/chosen", f"{bucket}/home"
    place = place_of(file)
    world = Started(tmp_path)
    world.start(str(place.home), chosen, epochs=2).close()
    refused(NotFound.code, "--store", "move", file, "--to-home", first)
    assert advised(file, "--to-home", first, "--store", chosen) == (first, chosen)
    world.start(first, chosen, epochs=2).close()
    back = str(tmp_path / "back")
    told = lamina("move", "--home", first, "--to-home", back)
    assert f"start it with --home {back}, and --store as before" in told.stdout
    world.start(back, chosen).close()
    assert world.outcome() == EXPECTED

    Started(tmp_path / "other").start(f"{bucket}/a", f"{bucket}/a/store", epochs=1).close()
    told = lamina("move", "--home", f"{bucket}/a", "--to-home", str(tmp_path / "b"))
    assert f"--store {bucket}/a/store" in told.stdout
    assert f"keep {bucket}/a/store" in told.stdout


def test_what_cannot_work_is_refused_before_anything_is_moved(bucket: str, tmp_path: Path) -> None:
    file = str(tmp_path / "trades.sql")
    place = place_of(file)
    world = Started(tmp_path)
    world.start(str(place.home), place.store, epochs=2).close()
    to = ("--to-home", f"{bucket}/home")
    local = str(place.home)
    refused(UsageError.code, "PIPELINE or --store", "move", "--home", local, *to)
    refused(
        UsageError.code, "--to-store", "move", file, *to, "--to-store", str(tmp_path / "folder")
    )
    taken = f"{bucket}/taken"
    Started(tmp_path / "other").start(str(tmp_path / "o"), taken, epochs=1).close()
    refused(Refused.code, "other checkpoints", "move", file, *to, "--to-store", taken)
    plan = answer(lamina("move", file, *to, "--dry-run", "--json"))
    assert (plan["store"], plan["moved"]) == (f"{bucket}/home/store", False)
    assert not list(open_store(f"{bucket}/home").list(EPOCHS))
    assert not list(open_store(f"{bucket}/home/store").list("log"))
    world.start(local, place.store).close()
    assert world.outcome() == EXPECTED


def refused(code: str, words: str, *command: str) -> None:
    told = lamina(*command)
    assert told.exit_code
    assert code in told.stderr, told.stderr
    assert words in told.stderr, told.stderr
