"""Credentials that may not do everything, or expire, and clocks that are wrong: on real servers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from email.message import Message
from pathlib import Path

import pytest

from lamina.errors import AccessDenied, LaminaError, StoreError, StoreUnavailable, UsageError
from lamina.store import RemoteStore, RetryPolicy, Store, open_store
from tests.servers import BOUNDED, S3Server, deny
from tests.servers.certificates import Authority, openssl_missing
from tests.servers.credentials import CredentialServer, credential_server
from tests.servers.fault_proxy import FaultProxy, fault_proxy

pytestmark = pytest.mark.server
SECONDS = RetryPolicy(budget_seconds=20, first_wait_ms=50)
AT_ONCE = RetryPolicy(budget_seconds=0)


@pytest.fixture(autouse=True)
def nothing_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


# Rights


@pytest.mark.parametrize(
    ("action", "doing"),
    [
        ("s3:PutObject", "write"),
        ("s3:GetObject", "read"),
        ("s3:ListBucket", "list"),
        ("s3:DeleteObject", "delete"),
    ],
)
def test_a_right_that_is_missing_is_named_when_the_store_is_opened(
    seaweedfs_server: S3Server, action: str, doing: str
) -> None:
    prefix = f"denied-{doing}"
    deny(seaweedfs_server, action, prefix)
    options = seaweedfs_server.options(**BOUNDED)
    with pytest.raises(AccessDenied, match=f"does not allow these credentials to {doing}") as found:
        open_store(seaweedfs_server.url(prefix), **options)
    assert action in found.value.advice
    assert BOUNDED["secret_access_key"] not in str(found.value)
    open_store(seaweedfs_server.url(f"allowed-{doing}"), **options)


def test_a_store_to_read_needs_no_right_to_write(seaweedfs_server: S3Server) -> None:
    url = seaweedfs_server.url("only-read")
    open_store(url, **seaweedfs_server.options()).put("k", b"1")
    deny(seaweedfs_server, "s3:PutObject", "only-read")
    store = open_store(url, writable=False, **seaweedfs_server.options(**BOUNDED))
    assert store.get("k") == b"1"


# Clocks


def test_a_clock_that_is_wrong_is_named_with_what_to_do(seaweedfs_server: S3Server) -> None:
    def hours_off(headers: Message) -> None:
        date = headers["x-amz-date"]  # 20260229T235958Z
        headers.replace_header(
            "x-amz-date", f"{date[:9]}{(int(date[9:11]) + 6) % 24:02}{date[11:]}"
        )

    with fault_proxy(seaweedfs_server.port) as proxy:
        proxy.look = hours_off
        with pytest.raises(AccessDenied, match="RequestTimeTooSkewed") as found:
            open_store(seaweedfs_server.url("skewed"), **through(proxy, seaweedfs_server))
    assert "clocks of this machine and of the store are too far apart" in found.value.message
    assert "Set the clock" in found.value.advice


# Credentials that expire in mid-run


def through(proxy: FaultProxy, server: S3Server) -> dict[str, object]:
    return server.options(endpoint=f"http://127.0.0.1:{proxy.port}")


def without_keys(proxy: FaultProxy, server: S3Server) -> dict[str, object]:
    options = through(proxy, server)
    del options["access_key_id"], options["secret_access_key"]
    return options


@pytest.fixture
def issuer() -> Iterator[CredentialServer]:
    with credential_server() as server:
        yield server


@pytest.fixture
def guarded(issuer: CredentialServer, ministack_server: S3Server) -> Iterator[dict[str, object]]:
    """Options of a server that takes the token of *issuer* only; they hold no credentials."""
    with fault_proxy(ministack_server.port) as proxy:
        proxy.look = issuer.refusal
        yield without_keys(proxy, ministack_server)


def write_on(store: Store, issuer: CredentialServer) -> None:
    """Objects are written and read while credentials expire, three times."""
    for number in range(6):
        store.put_if_absent(f"log/{number}", b"%d" % number)
        if number % 2:
            issuer.expire()
    assert [store.get(f"log/{number}") for number in range(6)] == [b"%d" % n for n in range(6)]
    assert {f"token-{number}" for number in (1, 2, 3, 4)} <= issuer.seen


def test_credentials_of_a_container_are_renewed(
    issuer: CredentialServer, guarded: dict[str, object], ministack_server: S3Server, tmp_path: Path
) -> None:
    secret = tmp_path / "authorization"
    secret.write_text("first")
    options = {
        "container_credentials_full_uri": f"{issuer.url}/creds",
        "container_authorization_token_file": str(secret),
    }
    store = open_store(ministack_server.url("container"), retry=SECONDS, **guarded, **options)
    secret.write_text("second")
    write_on(store, issuer)
    assert (issuer.presented[0], issuer.presented[-1]) == ("first", "second")


@pytest.mark.skipif(bool(openssl_missing()), reason=openssl_missing())
def test_web_identities_are_renewed_with_the_token_that_is_in_the_file_now(
    ministack_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path, "authority").create()
    certificate = authority.sign("tokens", "IP:127.0.0.1")
    token = tmp_path / "token"
    token.write_text("first")
    with credential_server(certificate) as issuer, fault_proxy(ministack_server.port) as proxy:
        proxy.look = issuer.refusal
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/lamina")
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", issuer.url)
        trusted = {"allow_http": True, "root_certificate": authority.certificate.read_text()}
        options = without_keys(proxy, ministack_server) | {"client_options": trusted}
        store = open_store(ministack_server.url("identity"), retry=SECONDS, **options)
        token.write_text("second")
        write_on(store, issuer)
    assert (issuer.presented[0], issuer.presented[-1]) == ("first", "second")


class Profile:
    """A file of credentials that somebody renews."""

    def __init__(self, file: Path, issuer: CredentialServer) -> None:
        self.file, self._issuer = file, issuer
        self.write()

    def write(self) -> None:
        found = self._issuer.credentials()
        self.file.parent.mkdir(exist_ok=True)
        temp = self.file.with_suffix(".new")
        temp.write_text(
            f"[default]\naws_access_key_id = {found['AccessKeyId']}\n"
            f"aws_secret_access_key = {found['SecretAccessKey']}\n"
            f"aws_session_token = {found['Token']}\n"
        )
        temp.replace(self.file)


def test_a_file_of_credentials_that_is_renewed_is_read_again(
    issuer: CredentialServer, guarded: dict[str, object], ministack_server: S3Server, tmp_path: Path
) -> None:
    profile = Profile(tmp_path / ".aws" / "credentials", issuer)
    store = open_store(ministack_server.url("file"), retry=SECONDS, **guarded)
    for number in range(3):
        store.put_if_absent(f"log/{number}", b"1")
        issuer.expire()
        profile.write()
    assert len(list(store.list("log"))) == 3
    assert {"token-1", "token-2", "token-3", "token-4"} <= issuer.seen


def put_until_asked(store: Store) -> None:
    """obstore asks for credentials at most ten times a second."""
    for _ in range(1000):
        store.put("k", b"1")


def test_a_file_that_goes_bad_in_mid_run_is_an_error_that_names_it(
    issuer: CredentialServer, guarded: dict[str, object], ministack_server: S3Server, tmp_path: Path
) -> None:
    profile = Profile(tmp_path / ".aws" / "credentials", issuer)
    store = open_store(ministack_server.url("bad"), retry=SECONDS, **guarded)
    profile.file.write_text("[default]\nhunter2\n")
    with pytest.raises(UsageError, match="cannot read the file of AWS profiles") as found:
        put_until_asked(store)
    assert found.value.where == str(profile.file)
    assert "hunter2" not in str(found.value)
    profile.write()
    store.put("k", b"2")
    assert store.get("k") == b"2"


def test_what_a_credential_process_prints_is_renewed(
    issuer: CredentialServer, guarded: dict[str, object], ministack_server: S3Server, tmp_path: Path
) -> None:
    program = tmp_path / "print_credentials.py"
    program.write_text(
        "import json, urllib.request\n"
        f"found = json.load(urllib.request.urlopen({issuer.url!r}))\n"
        "print(json.dumps({**found, 'SessionToken': found['Token'], 'Version': 1}))\n"
    )
    config = tmp_path / ".aws" / "config"
    config.parent.mkdir()
    config.write_text(f"[profile team]\ncredential_process = {sys.executable} {program}\n")
    options = {**guarded, "profile": "team"}
    write_on(open_store(ministack_server.url("process"), retry=SECONDS, **options), issuer)


def test_a_fixed_token_that_has_expired_is_not_waited_for(
    issuer: CredentialServer, guarded: dict[str, object], ministack_server: S3Server
) -> None:
    fixed = {"access_key_id": "k", "secret_access_key": "s", "session_token": issuer.token}
    store = open_store(ministack_server.url("fixed"), retry=SECONDS, **guarded, **fixed)
    issuer.expire()
    with pytest.raises(AccessDenied, match="the session token has expired") as found:
        store.put("k", b"1")
    assert "start again with a new one" in found.value.advice


def test_an_expired_token_is_known_when_a_head_is_refused(ministack_server: S3Server) -> None:
    """The answer to a HEAD has no body: 400, and nothing more."""
    with fault_proxy(ministack_server.port) as proxy:
        store = RemoteStore(ministack_server.url("head"), **through(proxy, ministack_server))
        proxy.look = lambda _: b"<Error><Code>ExpiredToken</Code></Error>"
        with pytest.raises(StoreUnavailable, match="the credentials have expired"):
            store.head("k")
        proxy.look = lambda _: b"<Error><Code>InvalidRequest</Code></Error>"
        with pytest.raises(StoreError, match="refused the request"):
            store.head("k")


def test_a_container_that_gives_no_credentials_any_more(
    guarded: dict[str, object], ministack_server: S3Server
) -> None:
    gone = {"container_credentials_full_uri": "http://127.0.0.1:9/creds"}
    with pytest.raises(LaminaError) as found:
        open_store(ministack_server.url("gone"), retry=AT_ONCE, **guarded, **gone)
    assert found.value.code in ("LAM-5001", "LAM-5002")
