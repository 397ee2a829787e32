"""The error tree: stable codes, texts that help, and a page that explains every one."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from lamina import errors
from lamina.cli.support.exits import exit_code
from lamina.errors import LaminaError, UploadFailed, all_errors

DOCS = Path(__file__).parents[2] / "docs" / "errors.md"
KINDS = [kind for kind in all_errors() if kind.__module__ == errors.__name__]
HEADING = re.compile(r"^## (LAM-\d{4}) (\w+) \(exit code (\d+)\)$", re.MULTILINE)


def test_every_error_and_no_other_is_explained() -> None:
    documented = HEADING.findall(DOCS.read_text())
    assert documented == sorted(documented)
    assert set(documented) == {
        (kind.code, kind.__name__, str(int(exit_code(kind)))) for kind in KINDS
    }


def test_every_explanation_says_meaning_cause_and_what_to_do() -> None:
    _, *sections = HEADING.sub("\0", DOCS.read_text()).split("\0")
    for section in sections:
        words = re.findall(r"^- \*\*(.+?):\*\* \S", section, re.MULTILINE)
        assert words == ["Meaning", "Typical cause", "What to do"], section


def test_codes_are_unique() -> None:
    assert len({kind.code for kind in KINDS}) == len(KINDS)


def test_the_printed_tree_is_the_tree() -> None:
    drawn = re.findall(r"^[|+ -]*(?:\+-- )?(\w+)(?:  +\S.*)?$", errors.__doc__ or "", re.MULTILINE)
    assert set(drawn) >= {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_says_what_where_and_what_to_do(kind: type[LaminaError]) -> None:
    error = kind("it broke", where="here", advice="Mend it")
    assert str(error) == f"[{kind.code}] it broke (at here). Mend it"
    assert str(kind("it broke")).startswith(f"[{kind.code}] it broke")
    assert kind("it broke").advice == kind.default_advice


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_survives_the_way_to_another_process(kind: type[LaminaError]) -> None:
    error = pickle.loads(pickle.dumps(kind("it broke", where="here", advice="Mend it")))
    assert type(error) is kind
    assert (error.message, error.where, error.advice) == ("it broke", "here", "Mend it")


def test_failed_uploads_keep_their_list() -> None:
    error = pickle.loads(pickle.dumps(UploadFailed("it broke", uploaded=("a", "b"))))
    assert error.uploaded == ("a", "b")
