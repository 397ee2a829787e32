"""Options as the kinds of sources, tables and sinks declare them: typed, names in any case."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from lamina.connectors.kinds import (
    DeclaredOption,
    Given,
    OptionType,
    SinkKind,
    SourceKind,
    TableKind,
    Value,
)
from lamina.errors import BadPipeline, UsageError
from lamina.pipeline.intervals import UNITS_US, delay_us
from lamina.pipeline.model import DeclaredSink, DeclaredSource, DeclaredTable, Option
from lamina.pipeline.tokens import bad_at
from lamina.store.address import REMOTE_SCHEMES, Address

Declared = DeclaredSource | DeclaredSink | DeclaredTable
Kind = SourceKind | SinkKind | TableKind
_CALLED = {DeclaredSource: "source", DeclaredSink: "sink", DeclaredTable: "table"}
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|(?:file|dbfs|hdfs|s3a?|gs|abfss?|wasbs?):")


def read_options(of: Declared, kind: Kind, folder: Path, *, file: str) -> Given:
    """BadPipeline at the first that is not as *kind* declares it; *folder* is the pipeline's.

    An option that nobody looks at would be ignored silently, so it is refused.
    """
    declared = {option.name.lower(): option.name for option in kind.options}
    further: dict[str, str] = {}
    for key, option in of.options.items():
        name = key.lower()
        if name in kind.refused:
            raise bad_option(of, f"has the option {key!r}", file, kind.refused[name])
        if name not in declared:
            further[name] = option.value
            if not kind.further or not name.startswith(kind.further_prefix):
                known = [*declared.values()]
                known += [f"{kind.further_prefix}*"] if kind.further_prefix else []
                message = f"has the option {key!r}, which is not known"
                raise bad_option(of, message, file, f"Known options: {', '.join(known) or 'none'}")
    values = {option.name: _value(of, option, folder, file) for option in kind.options}
    there = {name: value for name, value in values.items() if value is not None}
    return Given(file, there, further, folder)


def option_of(of: Declared, name: str) -> Option | None:
    """An option, however its name is written."""
    return next((each for key, each in of.options.items() if key.lower() == name.lower()), None)


def bad_option(of: Declared, message: str, file: str, advice: str) -> BadPipeline:
    return bad_at(f"the {_CALLED[type(of)]} {of.name!r} {message}", file, of.place, advice)


def _value(of: Declared, declared: DeclaredOption, folder: Path, file: str) -> Value | None:
    name, option = declared.name, option_of(of, declared.name)
    if option is None or (declared.required and not option.value):
        if declared.required:
            advice = f"Write OPTIONS ({name} '{_EXAMPLES[declared.type]}')"
            raise bad_option(of, f"has no {name}", file, advice)
        return declared.default
    if declared.type in (OptionType.INPUT, OptionType.OUTPUT):
        return _folder(of, declared, option, file, folder)
    return _READERS[declared.type](of, declared, option, file)


_EXAMPLES = {
    OptionType.TEXT: "...",
    OptionType.NUMBER: "1",
    OptionType.SWITCH: "true",
    OptionType.COLUMNS: "a, b",
    OptionType.INTERVAL: "10 minutes",
    OptionType.SECRET: "${A_VARIABLE}",
    OptionType.INPUT: "a/folder",
    OptionType.OUTPUT: "a/folder",
}


def _folder(
    of: Declared,
    declared: DeclaredOption,
    option: Option,
    file: str,
    folder: Path,
) -> Path | str:
    """A folder; or an address, if it may be one: else it would be a folder that is called `s3:`."""
    name = declared.name
    if not option.value:
        raise bad_option(of, f"has an empty {name}", file, f"Write OPTIONS ({name} 'a/folder')")
    if not _URL.match(option.value):
        return folder / option.value
    if not declared.remote:
        raise bad_option(
            of,
            f"has the {name} {option.written!r}, which is a URL",
            file,
            "It is a folder of a file system: mount the bucket, or copy what is in the folder",
        )
    try:
        return Address.parse(option.value).url
    except UsageError as error:
        message = f"has the {name} {option.written!r}: {error.message}"
        advice = error.advice or f"Known addresses: {', '.join(f'{s}://' for s in REMOTE_SCHEMES)}"
        raise bad_option(of, message, file, advice) from error


def _text(of: Declared, declared: DeclaredOption, option: Option, file: str) -> str:
    if not declared.choices:
        return option.value
    if option.value.strip().lower() not in declared.choices:
        message = f"has the {declared.name} {option.written!r}"
        raise bad_option(of, message, file, f"It can be {', '.join(declared.choices)}")
    return option.value.strip().lower()


def _switch(of: Declared, declared: DeclaredOption, option: Option, file: str) -> bool:
    value = option.value.strip().lower()
    if value not in ("true", "false"):
        message = f"has the {declared.name} {option.written!r}"
        raise bad_option(of, message, file, "It can be true or false")
    return value == "true"


def _columns(of: Declared, declared: DeclaredOption, option: Option, file: str) -> tuple[str, ...]:
    """Names, separated by commas; one with a comma in it stands in backquotes."""
    names = tuple(_unquoted(found) for found in _NAME.findall(option.value))
    is_list = _NAMES.fullmatch(option.value) is not None
    if not is_list or len({each.lower() for each in names}) != len(names):
        message = f"has the {declared.name} {option.written!r}"
        advice = f"Write each column once, with commas: OPTIONS ({declared.name} 'a, b')"
        raise bad_option(of, message, file, advice)
    return names


_NAME = re.compile(r"(`(?:[^`]|``)+`|[^`,\s](?:[^`,]*[^`,\s])?)")
_NAMES = re.compile(rf"\s*{_NAME.pattern}\s*(,\s*{_NAME.pattern}\s*)*")


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _interval(of: Declared, declared: DeclaredOption, option: Option, file: str) -> int:
    words = option.value.split()
    words = words[1:] if words and words[0].upper() == "INTERVAL" else words
    length = delay_us(*words) if len(words) == 2 else None
    if not length:
        units = ", ".join(UNITS_US)
        message = f"has the {declared.name} {option.written!r}"
        raise bad_option(of, message, file, f"Write a number above zero and one of {units}")
    return length


def check_secret(of: Declared, name: str, option: Option, file: str) -> None:
    """A pipeline file is shared and shown: what is secret comes from the environment."""
    if "${" not in option.written:
        advice = f"Write {name} '${{A_VARIABLE}}', and set that variable where the pipeline runs"
        raise bad_option(of, f"has a {name} in plain text", file, advice)


def _number(of: Declared, declared: DeclaredOption, option: Option, file: str) -> int:
    digits = option.value.strip()
    if not (digits.isascii() and digits.isdecimal()) or int(digits) < declared.least:
        message = f"has the {declared.name} {option.written!r}"
        raise bad_option(of, message, file, f"It must be a whole number, {declared.least} or more")
    return int(digits)


def _secret(of: Declared, declared: DeclaredOption, option: Option, file: str) -> str:
    check_secret(of, declared.name, option, file)
    return option.value


_READERS: Mapping[
    OptionType,
    Callable[[Declared, DeclaredOption, Option, str], Value],
] = {
    OptionType.TEXT: _text,
    OptionType.NUMBER: _number,
    OptionType.SWITCH: _switch,
    OptionType.COLUMNS: _columns,
    OptionType.INTERVAL: _interval,
    OptionType.SECRET: _secret,
}
