"""Options of sources and sinks, as their kinds declare them: names in any case, typed values."""

from __future__ import annotations

import re
from pathlib import Path

from lamina.connectors.kinds import DeclaredOption, Given, OptionType, SinkKind, SourceKind, Value
from lamina.errors import BadPipeline
from lamina.pipeline.model import DeclaredSink, DeclaredSource, Option
from lamina.pipeline.tokens import bad_at

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?:file|dbfs|hdfs|s3a?|gs|abfss?|wasbs?):")


def read_options(
    of: DeclaredSource | DeclaredSink, kind: SourceKind | SinkKind, folder: Path, *, file: str
) -> Given:
    """BadPipeline at the first that is not as *kind* declares it; *folder* is the pipeline's.

    An option that nobody looks at would be ignored silently, so it is refused.
    """
    declared = [option.name for option in kind.options]
    further: dict[str, str] = {}
    for key, option in of.options.items():
        name = key.lower()
        if name in kind.refused:
            raise bad_option(of, f"has the option {key!r}", file, kind.refused[name])
        if name not in declared:
            further[name] = option.value
            if not kind.further:
                message = f"has the option {key!r}, which is not known"
                raise bad_option(
                    of, message, file, f"Known options: {', '.join(declared) or 'none'}"
                )
    values = {option.name: _value(of, option, folder, file) for option in kind.options}
    there = {name: value for name, value in values.items() if value is not None}
    return Given(file, there, further)


def option_of(of: DeclaredSource | DeclaredSink, name: str) -> Option | None:
    """An option, however its name is written."""
    return next((each for key, each in of.options.items() if key.lower() == name), None)


def bad_option(
    of: DeclaredSource | DeclaredSink, message: str, file: str, advice: str
) -> BadPipeline:
    kind = "source" if isinstance(of, DeclaredSource) else "sink"
    return bad_at(f"the {kind} {of.name!r} {message}", file, of.place, advice)


def _value(
    of: DeclaredSource | DeclaredSink, declared: DeclaredOption, folder: Path, file: str
) -> Value | None:
    name, option = declared.name, option_of(of, declared.name)
    if option is None or (declared.required and not option.value):
        if declared.required:
            advice = f"Write OPTIONS ({name} '{_EXAMPLES[declared.type]}')"
            raise bad_option(of, f"has no {name}", file, advice)
        return declared.default
    match declared.type:
        case OptionType.NUMBER:
            return _number(of, declared, option, file)
        case OptionType.INPUT | OptionType.OUTPUT:
            return _folder(of, name, option, file, folder)
        case OptionType.TEXT:
            return option.value


_EXAMPLES = {
    OptionType.TEXT: "...",
    OptionType.NUMBER: "1",
    OptionType.INPUT: "a/folder",
    OptionType.OUTPUT: "a/folder",
}


def _folder(
    of: DeclaredSource | DeclaredSink, name: str, option: Option, file: str, folder: Path
) -> Path:
    """A URL would become a folder that is called `s3:`; so it is refused."""
    if not option.value:
        raise bad_option(of, f"has an empty {name}", file, f"Write OPTIONS ({name} 'a/folder')")
    if _URL.match(option.value):
        raise bad_option(
            of,
            f"has the {name} {option.written!r}, which is a URL",
            file,
            "Sources and sinks of files are folders of a file system: mount the bucket, or write "
            "to a folder and copy whole epochs. (`--store` takes s3:// for checkpoints.)",
        )
    return folder / option.value


def _number(
    of: DeclaredSource | DeclaredSink, declared: DeclaredOption, option: Option, file: str
) -> int:
    digits = option.value.strip()
    if not (digits.isascii() and digits.isdecimal()) or int(digits) < declared.least:
        message = f"has the {declared.name} {option.written!r}"
        raise bad_option(of, message, file, f"It must be a whole number, {declared.least} or more")
    return int(digits)
