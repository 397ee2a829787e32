"""Certificates for tests, by the openssl command: an authority, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path


def openssl_missing() -> str:
    """Why no certificates can be made here, or the empty text."""
    return "" if shutil.which("openssl") else "no openssl"


@dataclass(frozen=True)
class Authority:
    """Signs certificates in a folder of its own."""

    folder: Path
    name: str

    @property
    def certificate(self) -> Path:
        return self.folder / f"{self.name}.pem"

    @property
    def _key(self) -> Path:
        return self.folder / f"{self.name}.key"

    def create(self) -> Authority:
        made = ["-x509", "-nodes", "-days", "2", "-subj", f"/CN={self.name}"]
        _openssl("req", *_NEW_KEY, *made, "-keyout", self._key, "-out", self.certificate)
        return self

    def sign(self, name: str, alternative: str, *, days: int = 2) -> Path:
        """A key and its certificate in one PEM file; *days* below 0: it has expired."""
        key, request, signed, extra, whole = (
            self.folder / f"{name}.{ending}" for ending in ("key", "csr", "crt", "ext", "pem")
        )
        extra.write_text(f"subjectAltName={alternative}\n")
        subject = ["-nodes", "-subj", f"/CN={name}"]
        _openssl("req", *_NEW_KEY, *subject, "-keyout", key, "-out", request)
        authority = ["-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"]
        wanted = ["-days", str(days), "-extfile", extra]
        _openssl("x509", "-req", "-in", request, *authority, *wanted, "-out", signed)
        whole.write_text(key.read_text() + signed.read_text())
        return whole


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


def _openssl(command: str, *arguments: str | Path) -> None:
    subprocess.run(["openssl", command, *map(str, arguments)], check=True, capture_output=True)
