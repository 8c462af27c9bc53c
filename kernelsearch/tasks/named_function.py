"""A function or module of any file as a task: `FILE.py:NAME` becomes FILE_NAME.py, which says what the reference is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kernelsearch.core.errors import TaskError
from kernelsearch.core.files import write_user_file
from kernelsearch.core.parsing import find_nearest, parse_python
from kernelsearch.tasks.module import read_text

OWN = "kernel_as_reference("
"""What stands in a task file whose kernel is its own reference."""
RECORDED = "# What it was called with, recorded from a call.\n"
LEFT_OUT = "# Left out: "
"""What the recorded part may begin with: calls that are no shapes of the task."""
MARK = "# ---- The reference is {name} of {file}; this part was added by kernelsearch.\n"


def find_task_file(path: str, recorded: str = "") -> str:
    """The task file of `FILE.py:NAME`, written beside FILE.py; any other path as it is. Raises TaskError.

    recorded is the text of `get_inputs` after a call; without it that of an earlier one, where the file has none.
    """
    file, colon, name = path.rpartition(":")
    if not colon or not file.endswith(".py") or Path(path).exists():
        return path
    task = Path(file).with_name(f"{Path(file).stem}_{name}.py")
    earlier = task.read_text(encoding="utf-8") if task.exists() else ""
    text, added = make_task_text(Path(file), name, recorded or earlier.partition(RECORDED)[2])
    if earlier and added.splitlines()[0] not in earlier:
        raise TaskError(f"{task} is in the way: it was not made from {Path(file).name}; move it away")
    if earlier != text:
        write_user_file(str(task), text)
    return str(task)


@contextmanager
def blame_original(named: str, task: str) -> Iterator[None]:
    """Within the context, an error is of `FILE.py:NAME`, not of the task file made of it, which begins with FILE.py.

    An error in a line that was added keeps the task file's name.
    """
    try:
        yield
    except TaskError as error:
        lines = [int(line) for line in re.findall(r"\bline (\d+)", str(error))]
        if named == task or max(lines, default=0) > len(read_text(named.rpartition(":")[0]).splitlines()):
            raise
        raise type(error)(str(error).replace(Path(task).name, Path(named).name)) from None


def refuse_method(file: Path, name: str) -> None:
    """Raises TaskError for a method, `run` or `Twice.run`, and for a class that is no module: none is called alone."""
    with suppress(SyntaxError):
        top = {n.name: n for n in parse_python(read_text(file)).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        owner, _, method = name.rpartition(".")
        classes = {n: c for n, c in top.items() if isinstance(c, ast.ClassDef) and (not owner or n == owner)}
        own = {(n, f.name): f for n, c in classes.items() for f in c.body if isinstance(f, ast.FunctionDef)}
        if name in classes and not classes[name].bases:
            owner, method = name, next((f for n, f in own if n == name and not f.startswith("_")), "")
        found = [f for f in own if f[1] == method] if name not in top or owner else []
        if found:
            (of, what), given = found[0], ", ".join(a.arg for a in own[found[0]].args.args[1:])
            how = f"{explain_method(of, what, given)}; then name {what}, which the script calls"
            raise TaskError(f"{file.name}: {of}.{what} is a method: {how}")


def explain_method(owner: str, method: str, given: str) -> str:
    """What to write in place of a method that is a launcher; given are its parameters."""
    return f"add a function at the top level that calls it, `def {method}({given}): return {owner}().{method}({given})`"


def make_task_text(file: Path, name: str, recorded: str = "") -> tuple[str, str]:
    """(The file's text with the function or class of this name as the reference, the part that was added).

    Its inputs are those of get_inputs_NAME, else of get_inputs, else the recorded ones. Raises TaskError.
    """
    text = read_text(file)
    try:
        defined = {n.name: n for n in parse_python(text).body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    except SyntaxError as error:
        raise TaskError(f"{file} is not Python: {error.msg}, line {error.lineno}") from None
    refuse_method(file, name)
    if name not in defined:
        near = find_nearest(name, defined)
        hint = f"did you mean {near}?" if near else f"it has {', '.join(defined) or 'none'}"
        raise TaskError(f"{file.name} has no function or class {name!r}; {hint}")
    module = isinstance(defined[name], ast.ClassDef)
    has_inputs = any(f"get_inputs{of}" in defined for of in ("", f"_{name}"))
    lines = [f"Model = {name}"] if module else ["Model = None", f"reference = {name}"]
    for wanted in ("get_inputs", "get_init_inputs") if module else ("get_inputs",):
        if f"{wanted}_{name}" in defined:
            lines.append(f"{wanted} = {wanted}_{name}")
        elif wanted == "get_inputs" and wanted not in defined and not recorded:
            raise TaskError(
                f"{file.name} does not say what {name} is called with; add\n"
                f"    def get_inputs_{name}(): return [torch.randn(...)]\n"
                f"or record it: kernelsearch seed {file.name}:{name} --call SCRIPT.py"
            )
    if OWN in recorded:
        has_inputs, lines = False, lines[: "Model" in defined]
    lines = [line for line in lines if line != f"{line.split()[0]} = {line.split()[0]}"]
    added = MARK.format(name=name, file=file.name) + "\n".join(lines) + "\n"
    if not has_inputs:
        added += f"\n\n{RECORDED}{recorded}"
    return f"{text.rstrip()}\n\n\n{added}", added
