"""docs/promises.md, made of the table: `python -m tests.mutants.page` writes it."""

from __future__ import annotations

from tests.mutants.table import GUARANTEES, HERE, ROOT, RULES, Mutant, load

PAGE = ROOT / "docs" / "promises.md"
HEAD = HERE / "head.md"
COLUMNS = ("| promise | line | without it | test |", "|---|---|---|---|")


def page(mutants: tuple[Mutant, ...]) -> str:
    parts = [HEAD.read_text()]
    for rule in (*RULES, *GUARANTEES):
        rows = [mutant for mutant in mutants if mutant.rules[0] == rule]
        if rows:
            parts += [
                f"\n## {rule}\n",
                "| promise | line | without it | test |",
                "|---|---|---|---|",
            ]
            parts += [_row(mutant) for mutant in rows]
    return "\n".join(parts) + "\n"


def _row(mutant: Mutant) -> str:
    also = f" ({', '.join(mutant.rules[1:])})" if len(mutant.rules) > 1 else ""
    line = f"`{mutant.file.removeprefix('src/lamina/')}`: `{_cell(mutant.line)}`"
    file, _, test = mutant.test.rpartition("::")
    return f"| {mutant.promise}{also} | {line} | {_change(mutant)} | `{file}` `{test}` |"


def _change(mutant: Mutant) -> str:
    before = set(mutant.find.splitlines())
    new = [line.strip() for line in mutant.change.splitlines() if line not in before]
    return f"`{_cell(' '.join(new))}`" if new else "deleted"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")


if __name__ == "__main__":
    PAGE.write_text(page(load()))
