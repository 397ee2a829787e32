"""The user's own Python: where it is found, and what it is called when it fails.

A module is one of Python's path, or one beside the pipeline file, which never hides another. Tasks
look in the same folders as the driver (spark/sending.py).
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lamina.errors import BadPipeline
from lamina.pipeline.model import Code, Place
from lamina.pipeline.tokens import bad_at

_INSTALLED = "site-packages"


def find_code(code: Code, what: str, *, file: str, place: Place) -> Callable[..., Any]:
    """The function that `module:name` says; BadPipeline that names *what* needs it."""
    found = find_object(code, what, file=file, place=place)
    if not callable(found):
        raise bad_at(
            f"{what} is {code.name!r}, which is a {type(found).__name__}",
            file,
            place,
            f"Define `def {code.name.partition(':')[2]}(...)` there",
        )
    return found  # type: ignore[no-any-return]


def find_object(code: Code, what: str, *, file: str, place: Place) -> Any:
    """What `module:name` says, whatever it is; BadPipeline that names *what* needs it."""
    if code.made is not None:
        return code.made

    def bad(message: str, advice: str) -> BadPipeline:
        return bad_at(f"{what} is {code.name!r}, {message}", file, place, advice)

    module, colon, name = code.name.partition(":")
    if not (module and colon and name):
        raise bad("which is not a module and a name", "Write 'module:name'")
    folder = beside(file)
    look_in(folder)
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        said = f"whose module cannot be imported: {type(error).__name__}: {error}"
        advice = f"Python finds modules in {folder}, and in what is installed or in PYTHONPATH"
        raise bad(said, advice) from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise bad("which is not there", f"Define {name} in the module {module}")
    return found


def beside(file: str) -> str:
    """The folder of a pipeline file."""
    return str(Path(file).absolute().parent)


def folder_of(function: Callable[..., Any]) -> str:
    """Where Python finds the module of a function, if that is a file; otherwise nothing."""
    name = getattr(function, "__module__", None) or ""
    path = getattr(sys.modules.get(name), "__file__", None)
    if path is None:
        return ""
    parents = Path(path).absolute().parents
    depth = name.count(".") + (Path(path).name == "__init__.py")
    return str(parents[min(depth, len(parents) - 1)])


def look_in(folder: str) -> None:
    """Let Python find modules of a folder, after all others."""
    if folder and folder not in sys.path:
        sys.path.append(folder)
        importlib.invalidate_caches()


def line_of_error(error: BaseException) -> str:
    """Where it was raised, in a file that there is; before that, in what nobody has installed."""
    frames = traceback.extract_tb(error.__traceback__)
    there = [each for each in reversed(frames) if Path(each.filename).is_file()]
    own = [each for each in there if _INSTALLED not in Path(each.filename).parts]
    last = next(iter([*own, *there, *reversed(frames)]))
    return f"{last.filename}:{last.lineno}"
