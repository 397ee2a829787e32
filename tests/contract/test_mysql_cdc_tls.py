"""MariaDB over TLS: what is checked of the server, and of the pipeline."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lamina.errors import AccessDenied, BadPipeline
from tests.contract.mysql_rig import MySqlRig, all_epochs
from tests.servers.certificates import Authority, openssl_missing
from tests.servers.mariadb import MariaServer, mariadb, mariadb_missing

pytestmark = pytest.mark.server
USER = "careful"
"""A user that must show a certificate."""


@pytest.fixture(scope="module")
def authority() -> Iterator[Authority]:
    if reason := openssl_missing():
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="lamina-mariadb-tls-"))
    folder.chmod(0o755)  # the server may be another user
    yield Authority(folder, "authority").create()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[MariaServer]:
    if reason := mariadb_missing():
        pytest.skip(reason)
    shown = authority.sign("localhost", "DNS:localhost")
    for path in authority.folder.iterdir():
        path.chmod(0o644)
    files = {"ssl-ca": authority.certificate, "ssl-cert": shown, "ssl-key": shown}
    with mariadb(**{name: str(path) for name, path in files.items()}) as made:
        made.execute(
            f"CREATE USER {USER}@'%' REQUIRE X509",
            f"GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO {USER}@'%'",
        )
        yield made


@pytest.fixture
def rig(server: MariaServer, tmp_path: Path) -> Iterator[MySqlRig]:
    made = MySqlRig(server, server.new_database(), tmp_path)
    made.create()
    yield made
    made.drop()


def read(rig: MySqlRig, **options: str) -> None:
    """The snapshot, and changes from the log: each over a connection of its own."""
    rig.offset, rig.rows = {}, {}
    source = rig.open(**options)
    rig.epoch(source)
    rig.change("REPLACE INTO TABLE_ VALUES (1, 'a', 1, NULL)", "DELETE FROM TABLE_ WHERE id > 5")
    list(all_epochs(rig, source))
    assert rig.state == rig.there()
    cipher = "SHOW SESSION STATUS LIKE 'Ssl_cipher'"
    (row,) = source._session.query("look", cipher)
    assert bool(row["value"]) == (options.get("ssl_mode") != "disabled")
    logs = rig.server.execute("SHOW PROCESSLIST")
    assert any("Binlog" in str(each) for each in logs), "the log is read over a connection"


def test_snapshot_and_log_are_encrypted_as_ssl_mode_says(
    rig: MySqlRig, authority: Authority
) -> None:
    root = str(authority.certificate)
    read(rig, host="localhost", ssl_ca=root)
    read(rig, ssl_mode="verify_ca", ssl_ca=root)
    read(rig, ssl_mode="required")
    read(rig, ssl_mode="disabled")


def test_a_server_that_is_not_who_it_should_be_gets_nothing(
    rig: MySqlRig, authority: Authority
) -> None:
    other = Authority(authority.folder, "other").create()
    nothing = authority.folder / "none"
    for options in (
        {"host": "127.0.0.1", "ssl_ca": str(authority.certificate)},  # the name is `localhost`
        {"ssl_mode": "verify_ca", "ssl_ca": str(other.certificate)},
        {"ssl_ca": str(nothing)},
        {"ssl_ca": str(rig.home)},
        {"ssl_mode": "required", "ssl_cert": str(authority.certificate)},  # its key is elsewhere
    ):
        with pytest.raises(AccessDenied, match="Check ssl_mode, ssl_ca, ssl_cert and ssl_key"):
            rig.plan(rig.open(**options), None)


def test_a_client_shows_its_certificate(rig: MySqlRig, authority: Authority) -> None:
    with pytest.raises(AccessDenied, match="Check user, password and rights"):
        rig.plan(rig.open(user=USER, ssl_mode="required"), None)
    ours = authority.sign("client", "DNS:client")
    read(rig, user=USER, host="localhost", ssl_ca=str(authority.certificate), ssl_cert=str(ours))
    key = str(authority.folder / "client.key")
    shown = str(authority.folder / "client.crt")
    read(rig, user=USER, ssl_mode="required", ssl_cert=shown, ssl_key=key)


def test_a_server_without_tls_is_refused_where_it_is_required(
    mariadb_server: MariaServer, tmp_path: Path
) -> None:
    rig = MySqlRig(mariadb_server, mariadb_server.new_database(), tmp_path)
    rig.create()
    with pytest.raises(AccessDenied, match="Check ssl_mode"):
        rig.plan(rig.open(ssl_mode="required"), None)
    rig.plan(rig.open(), None)
    rig.drop()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ssl_key": "k"}, "has ssl_key without ssl_cert"),
        ({"ssl_ca": "c", "ssl_mode": "required"}, "which ssl_mode 'required' does not look at"),
        ({"ssl_mode": "prefer"}, "It can be disabled, preferred, required, verify_ca"),
    ],
)
def test_options_that_say_nothing_are_refused(
    mariadb_server: MariaServer, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises(BadPipeline, match=said):
        MySqlRig(mariadb_server, "db", tmp_path).open(**options)
