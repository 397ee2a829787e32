"""Every page: of what runs, of what was killed, of what is damaged, of names that bite."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from lamina.clock import SystemClock
from lamina.console.jobs import Job
from lamina.console.settings import Access
from lamina.console.subjects import Subject, find_subjects
from lamina.running.control import Ask, is_asked
from tests.support.command_line import make_pipeline, tree, without_rights
from tests.support.consoles import HOSTILE, Project, client, make_project, running

TABS = ("", "/epochs", "/checkpoints", "/state", "/diff", "/recovery", "/wal", "/verify")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def page(project: Project) -> Iterator[TestClient]:
    with client(project.subjects()) as opened:
        yield opened


def text_of(html: str) -> str:
    """What a person reads, in one line."""
    body = re.sub(r"<(script|style|title)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def form_token(page: TestClient, path: str = "/p/orders/recovery") -> str:
    found = re.search(r'name="form_token" value="(\w+)"', page.get(path).text)
    assert found is not None
    return found[1]


def finished(page: TestClient, path: str) -> str:
    """A page when its job is over."""
    with page.stream("GET", path) as events:
        assert 'over": true' in "".join(events.iter_text())
    return ""


@pytest.mark.parametrize("name", ["trades", "orders", "billing"])
def test_every_page_of_every_pipeline_answers(page: TestClient, name: str) -> None:
    for tab in TABS:
        answer = page.get(f"/p/{name}{tab}")
        assert answer.status_code == 200, (name, tab, answer.text[:500])


def test_looking_changes_nothing(project: Project, page: TestClient) -> None:
    before = tree(project.folder)
    for tab in TABS:
        page.get(f"/p/orders{tab}")
    page.get("/p/orders/state?operator=totals&at=head")
    assert tree(project.folder) == before


def test_the_overview_tells_running_killed_and_damaged_apart(
    project: Project, page: TestClient
) -> None:
    with running(project, "trades"):
        said = text_of(page.get("/?all").text)
    assert re.search(r"billing failed", said)
    assert re.search(r"orders killed", said)
    assert re.search(r"trades running Epoch \d+", said)
    assert "1 damaged or failed" in said


def test_a_killed_pipeline_is_complete(page: TestClient) -> None:
    said = text_of(page.get("/p/orders").text)
    assert "Epoch 13" in said  # the fourteenth is torn
    assert "its process is gone without a word" in said
    assert "epoch 12" in said
    assert "part-00013" in said
    assert "CREATE STREAM priced AS" in said
    assert 'aria-label="Graph of the pipeline: ' in page.get("/p/orders").text


def test_a_damaged_manifest_leaves_the_others_visible(page: TestClient) -> None:
    said = text_of(page.get("/p/billing/checkpoints").text)
    assert "4 checkpoints" in said
    assert said.count("LAM-3001") == 2
    ids = re.findall(
        r'href="(/p/billing/checkpoints/[0-9a-f-]{36})"', page.get("/p/billing/checkpoints").text
    )
    assert len(ids) == 4
    damaged = page.get(ids[0])
    assert damaged.status_code == 200
    assert "Epoch 8" in text_of(damaged.text)
    assert "LAM-3001" in damaged.text
    whole = text_of(page.get(ids[-1]).text)
    assert "totals" in whole
    assert "LAM-" not in whole


def test_a_damaged_log_is_shown_with_its_place(page: TestClient) -> None:
    said = text_of(page.get("/p/billing/wal").text)
    assert "LAM-3005" in said
    assert re.search(r"driver/0{19}1-\d+\.wal, byte \d+", said)
    assert "LAM-3005" in page.get("/p/billing/recovery").text


def test_a_torn_end_is_a_note_and_not_damage(page: TestClient) -> None:
    said = text_of(page.get("/p/orders/wal").text)
    assert "torn at byte" in said
    assert "Lands on epoch 13" in text_of(page.get("/p/orders/recovery").text)


def test_the_last_start_is_told_from_the_log(page: TestClient) -> None:
    said = text_of(page.get("/p/orders/recovery").text)
    assert re.search(r"The last start Generation 1, .* ago", said)


def test_state_is_shown_page_by_page_each_key_once(page: TestClient) -> None:
    path: str | None = "/p/orders/state?operator=totals"
    seen: list[str] = []
    while path is not None:
        html = page.get(path).text
        seen += re.findall(r"<tr><td>(.*?)</td>", html)
        following = re.search(r'rel="next" href="([^"]+)"', html)
        path = following[1].replace("&amp;", "&") if following else None
    assert len(seen) == len(set(seen)) == 400


def test_state_by_key_and_at_an_epoch_of_the_log(page: TestClient) -> None:
    def row(at: str) -> str:
        html = page.get(
            "/p/orders/state", params={"operator": "totals", "at": at, "key.symbol": "DB029"}
        )
        return " ".join(re.findall(r"<td[^>]*>(.*?)</td>", html.text))

    assert row("12") == "DB029 29 493"
    assert "at epoch 13" in text_of(page.get("/p/orders/state?at=head").text)
    assert "at epoch 3," in text_of(page.get("/p/orders/state?at=before+the+upgrade").text)
    assert "No such key" in page.get("/p/orders/state?operator=totals&key.symbol=nobody").text


@pytest.mark.parametrize(
    "query",
    [
        "at=999",
        "at=nobody",
        "operator=nobody",
        "operator=totals&after=x",
        "at=../../etc",
        "operator=minutes&key.minute=never",
        f"at={'9' * 5000}",
        "at=%00",
        "at=<script>",
    ],
)
def test_what_is_not_there_is_said_in_the_page(page: TestClient, query: str) -> None:
    answer = page.get(f"/p/orders/state?{query}")
    assert answer.status_code == 200
    assert 'role="alert"' in answer.text
    assert "<script>alert" not in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/p/nobody",
        "/p/nobody/wal",
        "/p/orders/nothing",
        "/p/orders/checkpoints/nobody",
        "/p/orders/checkpoints/019a3f63-3e60-74c7-8d7a-e2e483a62529",
        "/p/%3Cscript%3E",
        "/p/..%2F..%2Fetc",
        f"/p/{'x' * 10240}",
        "/static/nothing",
        "/p/nobody/events",
        "/static/..%2f..%2fapp.py",
        "/p/orders/jobs/nobody",
    ],
)
def test_unknown_names_are_not_found(page: TestClient, path: str) -> None:
    answer = page.get(path)
    assert answer.status_code == 404
    assert "<script>" not in answer.text
    assert len(answer.text) < 5000


def test_hostile_names_are_text(tmp_path: Path) -> None:
    """In a file name, in SQL, in a savepoint, in state, in what a process says: never markup."""
    project = Project(tmp_path)
    evil = "<img src=x onerror=alert(1)>"
    project.add(evil, epochs=4, every=2, sql=f"-- {HOSTILE}\n" + HOSTILE)
    project.say(evil, why=HOSTILE, phase="failed", sinks={HOSTILE: 1, "x" * 10_240: 2})
    with client(project.subjects()) as page:
        (key,) = [each.key for each in project.subjects()]
        paths = [f"/p/{key}{tab}" for tab in TABS] + [f"/p/{key}/state?operator=totals", "/?all"]
        shown = [page.get(path).text for path in paths]
    for html in shown:
        assert HOSTILE not in html
        assert evil not in html
        assert re.findall(r"<(?:script|img)\b[^>]*>", html) == [
            tag for tag in re.findall(r"<(?:script|img)\b[^>]*>", html) if "/static/" in tag
        ]
        assert not re.search(r'<[^>]+\son\w+="', html)
        assert not re.search(r'<[^>]+\sstyle="', html)
        assert len(html) < 60_000
    assert any("&lt;script&gt;alert" in html for html in shown)


def test_a_store_without_access_says_so_and_the_others_are_shown(
    project: Project, tmp_path: Path
) -> None:
    made = make_pipeline(tmp_path / "locked")
    subjects = find_subjects((), (), (str(made.root),)) + project.subjects()
    made.root.chmod(0)
    try:
        with without_rights(), client(subjects) as page:
            said = text_of(page.get("/p/locked").text)
            assert "LAM-5002" in said
            assert page.get("/p/locked/checkpoints").status_code == 200
            assert "locked" in text_of(page.get("/?all").text)
    finally:
        made.root.chmod(0o755)


def test_a_store_alone_is_enough(tmp_path: Path) -> None:
    """The driver and its machine are gone; the object store has what is needed to look."""
    made = make_pipeline(tmp_path / "orders")
    with client(find_subjects((), (), (str(made.root),))) as page:
        for tab in TABS:
            assert page.get(f"/p/orders{tab}").status_code == 200
        said = text_of(page.get("/p/orders").text)
        assert "Epoch 30" in said
        assert "stored" in said
        one = text_of(page.get(f"/p/orders/checkpoints/{made.ids[1]}").text)
        assert "failed: connection refused" in one
        assert "clicks" in one


def test_a_home_alone_is_enough(project: Project) -> None:
    subject = replace(project.subjects()[1], store="", file=None)
    assert subject.key == "orders"
    with client((subject,)) as page:
        for tab in TABS:
            assert page.get(f"/p/orders{tab}").status_code == 200
        assert "driver/" in page.get("/p/orders/wal").text


def test_a_file_that_never_ran_has_a_page(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.file("new").write_text("CREATE SOURCE nothing")
    with client(project.subjects()) as page:
        for tab in TABS:
            assert page.get(f"/p/new{tab}").status_code == 200
        assert "LAM-1100" in page.get("/p/new").text


def test_a_pipeline_is_read_while_it_is_written(tmp_path: Path) -> None:
    project = Project(tmp_path).add("orders", epochs=2, every=1, keys=50)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            project.add("orders", epochs=4, every=2, keys=50, mark="", clock=SystemClock())

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with client(project.subjects()) as page:
            for _ in range(6):
                for tab in ("", "/checkpoints", "/recovery", "/wal", "/state?operator=totals"):
                    answer = page.get(f"/p/orders{tab}")
                    assert answer.status_code == 200
                    assert "LAM-3" not in answer.text, text_of(answer.text)
    finally:
        stop.set()
        writer.join()


def test_many_readers_at_once(project: Project, page: TestClient) -> None:
    seen: list[int] = []

    def read() -> None:
        seen.extend(page.get(f"/p/orders{tab}").status_code for tab in TABS)

    readers = [threading.Thread(target=read) for _ in range(16)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert seen == [200] * (16 * len(TABS))


def test_an_open_page_is_told_of_every_change(project: Project, page: TestClient) -> None:
    with running(project, "trades"):
        versions = set()
        with page.stream("GET", "/p/trades/events") as events:
            assert events.headers["content-type"].startswith("text/event-stream")
            for line in events.iter_lines():
                if line.startswith("data: "):
                    versions.add(line)
                if len(versions) == 2:
                    break
    assert len(versions) == 2


def test_a_verification_finds_the_damage(page: TestClient) -> None:
    token = form_token(page)
    for name, verdict in (
        ("orders", "Everything is as it was"),
        ("billing", "Something is damaged"),
    ):
        answer = page.post(f"/p/{name}/verify", data={"form_token": token}, follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/p/{name}/verify")
        finished(page, f"/p/{name}/jobs/verify")
        assert verdict in text_of(page.get(f"/p/{name}/verify").text)


def test_two_states_are_compared(page: TestClient) -> None:
    data = {"form_token": form_token(page), "a": "3", "b": "12"}
    answer = page.post("/p/orders/diff", data=data)
    assert answer.status_code == 200
    finished(page, "/p/orders/jobs/diff/3%0012")
    said = text_of(page.get("/p/orders/diff?a=3&b=12").text)
    assert "From epoch 3 (checkpoint" in said
    assert re.search(r"totals 0 added 0 removed \d+ changed", said)
    data["b"] = "nobody"
    page.post("/p/orders/diff", data=data)
    finished(page, "/p/orders/jobs/diff/3%00nobody")
    assert "LAM-2000" in page.get("/p/orders/diff?a=3&b=nobody").text


@pytest.mark.parametrize("data", [{}, {"form_token": ""}, {"form_token": "0" * 32}])
@pytest.mark.parametrize("path", ["verify", "diff", "actions/stop"])
def test_a_form_that_is_not_ours_does_nothing(
    project: Project, path: str, data: dict[str, str]
) -> None:
    access = Access(port=8650, allow_actions=True)
    with running(project, "trades") as here, client(project.subjects(), access) as page:
        assert page.post(f"/p/trades/{path}", data=data).status_code == 409
        assert not is_asked(here.home, Ask.STOP)


def test_a_form_that_is_too_long_is_refused(page: TestClient) -> None:
    assert page.post("/p/orders/diff", data={"a": "x" * 100_000}).status_code == 400


def test_without_allow_actions_nothing_can_be_asked(project: Project, page: TestClient) -> None:
    with running(project, "trades") as here:
        data = {"form_token": form_token(page)}
        for action in ("stop", "checkpoint", "savepoint"):
            assert page.post(f"/p/trades/actions/{action}", data=data).status_code == 409
            assert f"actions/{action}" not in page.get("/p/trades").text
        assert not is_asked(here.home, Ask.STOP)


def test_with_it_a_running_pipeline_can_be_asked(project: Project) -> None:
    access = Access(port=8650, allow_actions=True)
    with running(project, "trades") as here, client(project.subjects(), access) as page:
        data = {"form_token": form_token(page)}
        assert "actions/stop" in page.get("/p/trades").text
        assert page.post("/p/trades/actions/checkpoint", data=data).status_code == 200
        assert is_asked(here.home, Ask.CHECKPOINT)
        assert page.post("/p/trades/actions/stop", data=data).status_code == 200
        assert here.is_asked(Ask.STOP)
        assert page.post("/p/trades/actions/nothing", data=data).status_code == 404
        assert page.post("/p/orders/actions/stop", data=data).status_code == 404  # nothing runs


def test_a_checkpoint_can_be_named(tmp_path: Path) -> None:
    made = make_pipeline(tmp_path / "orders")
    access = Access(port=8650, allow_actions=True)
    with client(find_subjects((), (), (str(made.root),)), access) as page:
        data = {"form_token": form_token(page), "id": str(made.ids[2]), "name": "release 7"}
        answer = page.post("/p/orders/actions/savepoint", data=data)
        assert "release 7" in text_of(answer.text)
        taken = page.post("/p/orders/actions/savepoint", data=data | {"name": "before-upgrade"})
        assert taken.status_code in (404, 409)
        assert page.post("/p/orders/actions/savepoint", data=data | {"name": ""}).status_code == 400


def test_a_state_that_is_large_is_fetched_only_when_somebody_says_so(
    project: Project, page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lamina.console.reading.states.FETCH_BYTES_MAX", 100)
    html = page.get("/p/orders/state?operator=totals").text
    assert "Fetch and show" in html
    assert "<td>" not in html
    assert "<td>" in page.get("/p/orders/state?operator=totals&fetch=yes").text


def test_a_job_says_how_far_it_is() -> None:
    job = Job("x", "x", 0)
    assert (job.share, job.is_over) == (0.0, False)


def test_one_pipeline_is_shown_at_once(project: Project) -> None:
    subject: Subject = project.subjects()[1]
    with client((subject,)) as page:
        assert page.get("/", follow_redirects=False).headers["location"] == f"/p/{subject.key}"
        assert page.get("/?all").status_code == 200


def test_the_history_is_shown_after_the_driver_died(page: TestClient) -> None:
    html = page.get("/p/orders").text
    said = text_of(html)
    assert "The last epochs" in said
    assert 'aria-label="The last 13 epochs by phase: ' in html
    for plot in ("Rows a second", "Time of an epoch", "Lag of the watermark", "State"):
        assert f'aria-label="{plot}: ' in html
    epochs = text_of(page.get("/p/orders/epochs").text)
    assert re.search(r"13 2025-11-01 12:30:\d\d [\d,]+", epochs)


def test_epochs_are_shown_page_by_page(tmp_path: Path) -> None:
    project = Project(tmp_path).add("orders", epochs=2, every=2, keys=10)
    project.remember("orders", range(1, 131), end_ms=1_762_000_000_000)
    with client(project.subjects()) as page:
        seen: list[int] = []
        path: str | None = "/p/orders/epochs"
        while path is not None:
            html = page.get(path).text
            seen += [int(number) for number in re.findall(r'<tr id="e(\d+)">', html)]
            following = re.search(r'rel="next" href="([^"]+)"', html)
            path = following[1] if following else None
        assert seen == list(range(130, 0, -1))
        page.post("/p/orders/epochs", data={"form_token": form_token(page)})
        finished(page, "/p/orders/jobs/history")
        assert "All 130 epochs" in text_of(page.get("/p/orders/epochs").text)


def test_a_damaged_history_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    project = Project(tmp_path).add("orders", epochs=2, every=2, keys=10)
    project.remember("orders", range(1, 11), end_ms=1_762_000_000_000)
    (file,) = (project.home("orders") / "history").iterdir()
    file.write_bytes(file.read_bytes().replace(b'"epoch":4', b'"epoch":5', 1))
    with client(project.subjects()) as page:
        for path in ("/p/orders", "/p/orders/epochs"):
            html = page.get(path).text
            assert "a line of the history is torn or damaged" in html
        left = re.findall(r'<tr id="e(\d+)">', html)
        assert left == ["10", "9", "8", "7", "6", "5", "3", "2", "1"]
