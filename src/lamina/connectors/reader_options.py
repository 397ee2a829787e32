"""Options of Spark's file readers: which exist, and which values they take.

Spark ignores an option that it does not know: with `heder 'true'` the first line of every CSV file
would be data. So only names that its readers know are passed on. Names with a dot are settings of
Hadoop's file systems, and nobody has a list of those. Options that only matter when columns are
inferred or files are written are not here: a source does neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lamina.connectors.kinds import SourceContext, TableContext
from lamina.connectors.options import bad_option, option_of
from lamina.errors import BadPipeline
from lamina.pipeline.tokens import did_you_mean

Values = str | tuple[str, ...]  # what is expected, or the words that may stand there

TEXT, FLAG, NUMBER, CHARACTER = "text", "true or false", "a whole number", "one character"
_REBASE = ("EXCEPTION", "CORRECTED", "LEGACY")
_QUOTES = (
    "STOP_AT_CLOSING_QUOTE",
    "BACK_TO_DELIMITER",
    "STOP_AT_DELIMITER",
    "SKIP_VALUE",
    "RAISE_ERROR",
)


def _named(names: str, values: Values) -> dict[str, Values]:
    return dict.fromkeys(names.split(), values)


_TEXTS = {
    **_named("encoding charset lineSep locale timeZone compression", TEXT),
    **_named("dateFormat timeFormat timestampFormat timestampNTZFormat", TEXT),
    **_named("multiLine enableDateTimeParsingFallback", FLAG),
}
READER_OPTIONS: Mapping[str, Mapping[str, Values]] = {
    "json": {
        **_TEXTS,
        **_named("allowComments allowUnquotedFieldNames allowSingleQuotes", FLAG),
        **_named("allowNumericLeadingZeros allowBackslashEscapingAnyCharacter", FLAG),
        **_named("allowUnquotedControlChars allowNonNumericNumbers", FLAG),
    },
    "csv": {
        **_TEXTS,
        **_named("sep delimiter nullValue emptyValue nanValue positiveInf negativeInf", TEXT),
        **_named("quote escape charToEscapeQuoteEscaping comment", CHARACTER),
        **_named("header enforceSchema ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace", FLAG),
        **_named("maxColumns maxCharsPerColumn inputBufferSize", NUMBER),
        "unescapedQuoteHandling": _QUOTES,
    },
    "parquet": {
        "mergeSchema": FLAG,
        "datetimeRebaseMode": _REBASE,
        "int96RebaseMode": _REBASE,
    },
}
_STREAMING = {
    "maxfilespertrigger": "`lamina run --max-files` limits the files of an epoch",
    "latestfirst": "Files are read oldest first",
    "cleansource": "Files stay where they are",
    "maxfileage": "Every file is read once, however old it is",
}


def check_reader_options(context: SourceContext | TableContext) -> None:
    """BadPipeline at the first option that Spark's reader does not know or cannot parse."""
    known = READER_OPTIONS[context.of.format]
    lower = {name.lower(): name for name in known}
    for name, value in context.given.further.items():
        if "." in name:
            continue
        if name not in lower:
            advice = _STREAMING.get(name) or did_you_mean(name, known)
            reader = f"Spark's reader of {context.of.format} files"
            raise _bad(context, f"has the option {name!r}, which {reader} does not know", advice)
        check_value(context, lower[name], known[lower[name]], value)


def check_value(
    context: SourceContext | TableContext, name: str, expected: Values, value: str
) -> None:
    """BadPipeline if an option of Spark's reader has a value that it cannot parse."""
    if not _fits(value, expected):
        raise _bad_value(context, name, expected)


def check_place(context: SourceContext, path: str, list_every: str) -> None:
    """BadPipeline at an option that cannot be obeyed where the files are."""
    given, kind = context.given, context.of.format
    if not isinstance(given.place(path), str):
        if list_every in given.declared:
            message = f"has the option {list_every!r}, and its {path} is a folder"
            raise _bad(context, message, "It is an option of addresses; leave it out")
        return
    for name, value in given.further.items():
        if "." in name:
            advice = "Objects are not read by Hadoop: see docs/connectors.md for their options"
            raise _bad(context, f"has the option {name!r}, and its {path} is an address", advice)
        if kind == "parquet" or (name, value.lower()) in _NOT_OF_OBJECTS.get(kind, ()):
            advice = "Leave it out, or read the files from a folder"
            message = f"has the option {name!r}, which does not work with objects"
            raise _bad(context, message, advice)
        if name in ("encoding", "charset") and value.upper() not in ("UTF-8", "UTF8"):
            raise _bad_value(context, name, ("UTF-8",))


_NOT_OF_OBJECTS = {"csv": (("multiline", "true"),)}


def _bad(context: SourceContext | TableContext, message: str, advice: str) -> BadPipeline:
    return bad_option(context.of, message, context.given.file, advice)


def _bad_value(context: SourceContext | TableContext, name: str, expected: Values) -> BadPipeline:
    """Shows the value as it is written: `${VAR}` may be a secret."""
    option = option_of(context.of, name.lower())
    written = option.written if option else ""
    words = expected if isinstance(expected, str) else f"one of {', '.join(expected)}"
    return _bad(context, f"has the {name} {written!r}", f"It must be {words}")


def _fits(value: str, expected: Values) -> bool:
    if isinstance(expected, tuple):
        return value.upper() in expected
    return _FITS[expected](value)


_FITS: Mapping[str, Callable[[str], bool]] = {
    TEXT: lambda _: True,
    FLAG: lambda value: value.lower() in ("true", "false"),
    NUMBER: lambda value: value.removeprefix("-").isdecimal() and value.isascii(),
    CHARACTER: lambda value: len(value.encode("utf-16-le")) <= 2,  # or none at all
}
