"""Addresses of stores: what a person may write, and what it means."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from lamina.errors import UsageError
from lamina.format.canonical import sha256_hex
from lamina.store.base import check_key

FOLDER = ".lamina"
REMOTE_SCHEMES = ("s3", "gs", "az", "abfs", "abfss")
SCHEMES = ("file", "memory", *REMOTE_SCHEMES)


def home_address(home: str | os.PathLike[str] | None) -> str:
    """The address of a home in an object store; an empty text if it is a folder."""
    given = os.fspath(home) if home else ""
    scheme, _, rest = given.partition(":")
    if scheme in SCHEMES and rest.startswith("/") and not rest.startswith("//"):
        advice = "Give the address as a text: a Path has only one slash where it needs two"
        raise UsageError("the home is neither a folder nor an address", where=given, advice=advice)
    if "://" not in given:
        return ""
    if scheme.lower() not in REMOTE_SCHEMES:
        known = ", ".join(f"{each}://" for each in REMOTE_SCHEMES)
        message = f"no home has the scheme {scheme[:40]!r}; known are a path, {known}"
        raise UsageError(message, where=given)
    return given.rstrip("/")


@dataclass(frozen=True, slots=True)
class Kept:
    """What a pipeline keeps: beside its file, unless somebody says otherwise."""

    home: Path  # of a home in an object store: the folder of this machine beside the file
    store: str
    remote: str = ""  # the address of a home in an object store


def kept_by(
    file: Path, home: str | os.PathLike[str] | None = None, store: str | None = None
) -> Kept:
    """Home and store of the pipeline of a file, as they are given, or by default."""
    beside = file.absolute().parent / FOLDER / file.stem
    remote = home_address(home)
    if remote:
        name = f"remote-{sha256_hex(remote.encode())[:12]}"
        return Kept(beside / name, store or f"{remote}/store", remote)
    return Kept(Path(home) if home else beside / "home", store or str(beside / "store"))


@dataclass(frozen=True, slots=True)
class Address:
    """`scheme://bucket/prefix`; Azure also `abfss://container@account.dfs.core.windows.net/...`."""

    scheme: str
    bucket: str
    prefix: str = ""
    options: dict[str, str] = field(default_factory=dict)
    url: str = ""

    @classmethod
    def parse(cls, url: str) -> Address:
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        if scheme not in REMOTE_SCHEMES:
            raise UsageError(f"no object store has the scheme {scheme!r}")
        _refuse_secrets(url)
        container, at, host = parts.netloc.rpartition("@")
        bucket = container if at else host
        if not bucket:
            raise UsageError(f"the address {scheme}:// names no bucket or container")
        prefix = "/".join(part for part in parts.path.split("/") if part)
        if prefix:
            check_key(prefix)
        options = _account(host) if at else {}
        shown = f"{scheme}://{parts.netloc}/{prefix}".rstrip("/")
        return cls(scheme, bucket, prefix, options, shown)


def _refuse_secrets(url: str) -> None:
    """An address is shown and logged, so it must not hold a key, a token or a signature."""
    parts = urlsplit(url)
    container_at_account = parts.scheme.lower() in ("abfs", "abfss") and parts.password is None
    if parts.query or parts.fragment or ("@" in parts.netloc and not container_at_account):
        raise UsageError(
            f"an address of {parts.scheme}:// holds no user, password, query or fragment",
            advice="Give credentials as options or environment variables",
        )


def _account(host: str) -> dict[str, str]:
    """`account.dfs.core.windows.net` names the account; other clouds need the option `endpoint`."""
    account, _, domain = host.partition(".")
    if domain and domain not in ("dfs.core.windows.net", "blob.core.windows.net"):
        return {"account_name": account, "endpoint": f"https://{account}.{_blob(domain)}"}
    return {"account_name": account}


def _blob(domain: str) -> str:
    return domain.replace("dfs.", "blob.", 1) if domain.startswith("dfs.") else domain
