"""Credentials of an AWS profile: keys in a file, or what a program of the user's prints.

obstore itself knows environment variables, web identities, container credentials and the machine's
own role, and renews them. It does not read `~/.aws`. This does, and reads a file again whenever it
has changed: somebody else may renew the keys in it while a pipeline runs.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from configparser import Error, RawConfigParser
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lamina.errors import AccessDenied, LaminaError, UsageError

DEFAULT = "default"
PROCESS_SECONDS_MAX = 60
_NOW = datetime.fromtimestamp(0, UTC)  # expired: asked again before the next request
_GIVEN = ("access_key_id", "aws_access_key_id", "skip_signature", "credential_provider")
_IDENTITY = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")
_CONTAINER = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
_EXPORT = "credential_process = aws configure export-credentials --profile {} --format process"

Sections = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class Files:
    """Where profiles are, and what these files were when they were read."""

    credentials: Path
    config: Path

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Files:
        folder = Path(environment.get("HOME") or "/") / ".aws"
        credentials = environment.get("AWS_SHARED_CREDENTIALS_FILE")
        config = environment.get("AWS_CONFIG_FILE")
        return cls(Path(credentials or folder / "credentials"), Path(config or folder / "config"))

    def stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Differs when one of them was changed or replaced."""
        return tuple(_stamp(path) for path in (self.credentials, self.config))

    def profile(self, name: str) -> dict[str, str]:
        """Its settings; keys in the file of credentials win. UsageError if there is none."""
        heading = name if name == DEFAULT else f"profile {name}"
        found = _sections(self.config).get(heading, {}) | _sections(self.credentials).get(name, {})
        if not found:
            raise UsageError(
                f"there is no AWS profile {name!r}",
                where=f"{self.credentials} and {self.config}",
                advice="Correct AWS_PROFILE or the option profile, or write the profile",
            )
        return found


class ProfileCredentials:
    """What obstore calls for credentials. `failure` is why the last call had none."""

    def __init__(self, name: str, files: Files) -> None:
        self._name, self._files = name, files
        self._stamp: object = None
        self._settings: dict[str, str] = {}
        self.failure: LaminaError | None = None

    @property
    def region(self) -> str:
        """That of the profile, or empty."""
        return self._read().get("region", "")

    def __call__(self) -> dict[str, Any]:
        try:
            found = self._credentials(self._read())
        except LaminaError as error:
            self.failure = error  # obstore tells only the text of it
            raise
        self.failure = None
        return found

    def check(self) -> None:
        """UsageError if the profile has no credentials in a form that is understood."""
        settings = self._read()
        if "credential_process" not in settings:
            self._credentials(settings)

    def _read(self) -> dict[str, str]:
        stamp = self._files.stamp()
        if stamp != self._stamp:
            self._settings = self._files.profile(self._name)
            self._stamp = stamp
        return self._settings

    def _credentials(self, settings: Mapping[str, str]) -> dict[str, Any]:
        key, secret = settings.get("aws_access_key_id"), settings.get("aws_secret_access_key")
        if key and secret:
            token = settings.get("aws_session_token")
            return _credential(key, secret, token, expires_at=_NOW)
        if command := settings.get("credential_process"):
            return _printed(command, self._name)
        raise UsageError(
            f"the AWS profile {self._name!r} has neither keys nor a credential_process",
            where=str(self._files.credentials),
            advice=f"For roles and single sign-on write: {_EXPORT.format('NAME')}",
        )


def profile_credentials(
    name: str, options: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> ProfileCredentials | None:
    """Those of the profile that counts, if one does; *name* is the option `profile`, or empty.

    Keys and web identities that are given come first, as with every AWS tool; a container's or a
    machine's role comes after a profile.
    """
    files = Files.of(environment)
    if not name:
        if any(each in options for each in _GIVEN) or any(map(environment.get, _IDENTITY)):
            return None
        name = environment.get("AWS_PROFILE", "")
    if not name and (any(map(environment.get, _CONTAINER)) or not _has_default(files)):
        return None
    found = ProfileCredentials(name or DEFAULT, files)
    found.check()
    return found


def _has_default(files: Files) -> bool:
    """Whether there is a default profile with credentials; one of settings alone is none."""
    found = _sections(files.config).get(DEFAULT, {}) | _sections(files.credentials).get(DEFAULT, {})
    return "aws_access_key_id" in found or "credential_process" in found


def _sections(path: Path) -> Sections:
    """Of a file of AWS; no file is an empty one."""
    parser = RawConfigParser(strict=False, default_section="", interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, Error) as error:
        # Not the text of the error: it quotes lines, and these hold secrets.
        message = f"cannot read the file of AWS profiles ({type(error).__name__})"
        raise UsageError(message, where=str(path), advice="Correct it, or its rights") from None
    return {name: dict(parser.items(name)) for name in parser.sections()}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _printed(command: str, name: str) -> dict[str, Any]:
    """What the program of a profile prints; it may ask anybody, and is asked again in time."""
    try:
        done = subprocess.run(  # noqa: S603  the user's own command, from the user's own file
            shlex.split(command), capture_output=True, timeout=PROCESS_SECONDS_MAX, check=False
        )
        told = json.loads(done.stdout) if done.returncode == 0 else {}
        expires = told.get("Expiration")
        return _credential(
            told["AccessKeyId"],
            told["SecretAccessKey"],
            told.get("SessionToken"),
            expires_at=datetime.fromisoformat(expires) if expires else None,
        )
    except (OSError, ValueError, KeyError, AttributeError, subprocess.TimeoutExpired) as error:
        raise AccessDenied(
            f"the credential_process of the AWS profile {name!r} gave no credentials "
            f"({type(error).__name__})",
            advice="Run it by hand to see why: it prints JSON with AccessKeyId, SecretAccessKey",
        ) from None


def _credential(
    key: str, secret: str, token: str | None, *, expires_at: datetime | None
) -> dict[str, Any]:
    return {
        "access_key_id": key,
        "secret_access_key": secret,
        "token": token,
        "expires_at": expires_at,
    }
