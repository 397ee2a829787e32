"""Options of sources and sinks: names in any case, and paths that are folders of a file system."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from lamina.errors import BadPipeline
from lamina.pipeline.model import Option, Sink, Source
from lamina.pipeline.tokens import bad_at

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?:file|dbfs|hdfs|s3a?|gs|abfss?|wasbs?):")


def option_of(of: Source | Sink, name: str) -> Option | None:
    """An option, however its name is written."""
    return next((each for key, each in of.options.items() if key.lower() == name), None)


def folder_of(of: Source | Sink, name: str, folder: Path, *, file: str) -> Path:
    """The folder that an option names; relative ones are below *folder*.

    A URL would become a folder that is called `s3:`; so it is refused.
    """
    option = option_of(of, name)
    if option is None or not option.value:
        raise bad_option(of, f"has no {name}", file, f"Write OPTIONS ({name} 'a/folder')")
    if _URL.match(option.value):
        raise bad_option(
            of,
            f"has the {name} {option.written!r}, which is a URL",
            file,
            "Sources and sinks of files are folders of a file system: mount the bucket, or write "
            "to a folder and copy whole epochs. (`--store` takes s3:// for checkpoints.)",
        )
    return folder / option.value


def whole_number(of: Source | Sink, name: str, default: int, *, file: str, least: int = 1) -> int:
    option = option_of(of, name)
    if option is None:
        return default
    digits = option.value.strip()
    if not (digits.isascii() and digits.isdecimal()) or int(digits) < least:
        message = f"has the {name} {option.written!r}"
        raise bad_option(of, message, file, f"It is a whole number, {least} or more")
    return int(digits)


def check_options(of: Source | Sink, known: Collection[str], *, file: str) -> None:
    """An option that nobody looks at would be passed over in silence."""
    for key in of.options:
        if key.lower() not in known:
            there = ", ".join(known) or "none"
            raise bad_option(
                of, f"has the option {key!r}, which is not known", file, f"There is {there}"
            )


def bad_option(of: Source | Sink, message: str, file: str, advice: str) -> BadPipeline:
    kind = "source" if isinstance(of, Source) else "sink"
    return bad_at(f"the {kind} {of.name!r} {message}", file, of.place, advice)
