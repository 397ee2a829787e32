"""The table of promises is whole, the page shows it, and a few of its rows are tried each time.

All of them: `make mutants`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.mutants.page import PAGE, page
from tests.mutants.run import Scratch, scratch_copies
from tests.mutants.table import GUARANTEES, ROOT, RULES, Mutant, load

MUTANTS = load()
QUICK = [mutant for mutant in MUTANTS if mutant.quick]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_promise_names_one_place_and_a_test_that_exists(mutant: Mutant) -> None:
    """Changed the line? Say in tests/mutants/*.toml how the promise is kept now."""
    assert mutant.source().count(mutant.find) == 1, f"not one place in {mutant.file}"
    assert mutant.broken() != mutant.source()
    compile(mutant.broken(), mutant.file, "exec")
    file, _, test = mutant.test.partition("::")
    assert test, "one test, not a whole file"
    assert f"def {test}(" in (ROOT / file).read_text()


def test_every_rule_and_every_guarantee_has_a_mutant() -> None:
    held = {rule for mutant in MUTANTS for rule in mutant.rules}
    assert held == {*RULES, *GUARANTEES}


def test_names_are_used_once() -> None:
    assert not [name for name, times in Counter(m.name for m in MUTANTS).items() if times > 1]


def test_the_page_shows_the_table() -> None:
    """`python -m tests.mutants.page` writes it."""
    assert PAGE.read_text() == page(MUTANTS)


@pytest.fixture(scope="module")
def scratch() -> Iterator[Scratch]:
    with scratch_copies(1, sorted({mutant.test for mutant in QUICK})) as [copy]:
        yield copy


@pytest.mark.parametrize("mutant", QUICK, ids=lambda mutant: mutant.name)
def test_without_its_line_the_test_of_a_promise_fails(mutant: Mutant, scratch: Scratch) -> None:
    verdict = scratch.verdict(mutant)
    assert verdict.killed, verdict.why
