"""AWS profiles: which one counts, what it says, and what is wrong with it."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lamina.errors import AccessDenied, LaminaError, UsageError
from lamina.store.profile import Files, ProfileCredentials, profile_credentials

KEYS = "aws_access_key_id = k\naws_secret_access_key = hunter2\n"


@pytest.fixture
def aws(tmp_path: Path) -> Path:
    folder = tmp_path / ".aws"
    folder.mkdir()
    return folder


def found(aws: Path, name: str = "", **environment: str) -> ProfileCredentials | None:
    return profile_credentials(name, {}, {"HOME": str(aws.parent), **environment})


def test_without_files_there_is_no_profile(aws: Path) -> None:
    assert found(aws) is None


def test_the_default_profile_has_keys_that_are_asked_for_again(aws: Path) -> None:
    (aws / "credentials").write_text(f"[default]\n{KEYS}")
    provider = found(aws)
    assert provider is not None
    assert provider() == {
        "access_key_id": "k",
        "secret_access_key": "hunter2",
        "token": None,
        "expires_at": datetime.fromtimestamp(0, UTC),
    }
    (aws / "credentials").write_text("[default]\n" + KEYS.replace("= k", "= renewed"))
    assert provider()["access_key_id"] == "renewed"


def test_a_profile_is_in_both_files_and_credentials_win(aws: Path) -> None:
    (aws / "config").write_text(f"[profile team]\nregion = eu-north-1\n{KEYS}")
    (aws / "credentials").write_text("[team]\naws_access_key_id = mine\n[other]\n" + KEYS)
    provider = found(aws, AWS_PROFILE="team")
    assert provider is not None
    assert (provider()["access_key_id"], provider.region) == ("mine", "eu-north-1")


def test_files_may_lie_elsewhere(aws: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(f"[default]\n{KEYS}")
    assert found(aws, AWS_SHARED_CREDENTIALS_FILE=str(tmp_path / "elsewhere")) is not None


@pytest.mark.parametrize("given", ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"])
def test_keys_and_identities_of_the_environment_come_first(aws: Path, given: str) -> None:
    (aws / "credentials").write_text(f"[default]\n{KEYS}")
    assert found(aws, AWS_PROFILE="default", **{given: "x"}) is None
    assert found(aws, "default", **{given: "x"}) is not None, "but not before the option"


def test_options_come_first(aws: Path) -> None:
    (aws / "credentials").write_text(f"[default]\n{KEYS}")
    environment = {"HOME": str(aws.parent)}
    for given in ({"access_key_id": "x"}, {"skip_signature": True}):
        assert profile_credentials("", given, environment) is None


def test_a_container_has_its_role_unless_a_profile_is_named(aws: Path) -> None:
    (aws / "credentials").write_text(f"[default]\n{KEYS}")
    container = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials"}
    assert found(aws, **container) is None
    assert found(aws, AWS_PROFILE="default", **container) is not None


def test_a_default_profile_of_settings_alone_is_none(aws: Path) -> None:
    (aws / "config").write_text("[default]\nregion = eu-north-1\n")
    assert found(aws) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[other]\n" + KEYS, "there is no AWS profile 'team'"),
        ("[team]\nsso_session = x\n", "neither keys nor a credential_process"),
        ("[team]\naws_access_key_id = k\n", "neither keys nor a credential_process"),
        ("[team\nhunter2\n", "cannot read the file of AWS profiles"),
        ("hunter2", "cannot read the file of AWS profiles"),
        ("[team]\nhunter2\n", "cannot read the file of AWS profiles"),
    ],
)
def test_a_profile_that_cannot_be_used_is_an_error_at_once(
    aws: Path, text: str, message: str
) -> None:
    (aws / "credentials").write_text(text)
    with pytest.raises(UsageError, match=message) as refused:
        found(aws, AWS_PROFILE="team")
    assert "hunter2" not in str(refused.value)
    assert "credentials" in refused.value.where
    assert refused.value.advice


def test_bytes_that_are_no_text(aws: Path) -> None:
    (aws / "credentials").write_bytes(b"[default]\n\xff")
    with pytest.raises(UsageError, match="cannot read"):
        found(aws)


def process(aws: Path, code: str) -> ProfileCredentials:
    program = aws / "program.py"
    program.write_text(code)
    command = f"credential_process = {sys.executable} {program}\n"
    (aws / "config").write_text(f"[profile team]\n{command}")
    return ProfileCredentials("team", Files.of({"HOME": str(aws.parent)}))


def test_what_a_program_prints(aws: Path) -> None:
    told = {
        "Version": 1,
        "AccessKeyId": "k",
        "SecretAccessKey": "s",
        "SessionToken": "t",
        "Expiration": "2026-02-28T23:58:00Z",
    }
    assert process(aws, f"print({json.dumps(told)!r})")() == {
        "access_key_id": "k",
        "secret_access_key": "s",
        "token": "t",
        "expires_at": datetime(2026, 2, 28, 23, 58, tzinfo=UTC),
    }
    del told["Expiration"]
    assert process(aws, f"print({json.dumps(told)!r})")()["expires_at"] is None


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit('hunter2')",
        "print('hunter2')",
        "print('[]')",
        "print('{}')",
        'print(\'{"AccessKeyId": "k", "SecretAccessKey": "hunter2", "Expiration": "soon"}\')',
    ],
)
def test_a_program_that_gives_nothing_is_an_error_without_what_it_said(
    aws: Path, code: str
) -> None:
    provider = process(aws, code)
    with pytest.raises(AccessDenied, match="credential_process of the AWS profile 'team'") as bad:
        provider()
    assert "hunter2" not in str(bad.value)
    assert isinstance(provider.failure, LaminaError)


def test_a_program_that_is_not_there(aws: Path) -> None:
    (aws / "config").write_text("[default]\ncredential_process = /nothing/here\n")
    provider = found(aws)
    assert provider is not None
    with pytest.raises(AccessDenied, match="FileNotFoundError"):
        provider()
