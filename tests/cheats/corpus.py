"""The headers of this folder's files: task, trick, and the verdict that each must get, per mode."""

from __future__ import annotations

import ast
import itertools
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernelsearch.core.types import Word
from kernelsearch.kernel import language

HERE = Path(__file__).resolve().parent
STUDIES = HERE.parents[1] / "studies"
STUDIED = ("softmax", "layernorm", "matmul", "linear_gelu", "column_sum", "attention")
ATTACKS = HERE / "attacks"
"""Answers of strong models that were told to fool the referee, with their tasks: each was accepted at first
(studies/referee/findings.md)."""
WRITTEN = [p for p in sorted(ATTACKS.glob("*.*")) if p.read_text().startswith("# task: ")]
TASKS = (*STUDIED, *sorted({p.read_text().partition("\n")[0].removeprefix("# task: ") for p in WRITTEN}))


@dataclass(frozen=True)
class Entry:
    """One file: `# task:`, `# trick:`, `# verdict:`, and `# interpreter: WORD (why)` where that mode differs.

    A verdict may be `WORD or WORD`: a race on a GPU shows as a wrong answer or as unequal runs, whichever comes first,
    and a read before a buffer as a crash where no memory lies there.
    A static verdict is the gate's, or with `# stage: launch` that of the launch.
    A file with `# needs: block pointers` gets its verdict up to Triton 3.8; without them the gate refuses it.
    A `.change` file is the kernel that its `# of:` line names, in tests/, with the lines behind `- ` replaced by those
    behind `+ `: most cheats are an honest kernel with one place changed. A kernel in Gluon is judged on a GPU only:
    elsewhere it must compile.
    """

    path: Path
    task: str
    trick: str
    verdict: Word
    interpreter: Word
    blind: str = ""
    also: tuple[Word, ...] = ()
    block_pointers: bool = False
    stage: str = "gate"

    @cached_property
    def text(self) -> str:
        """The kernel file. Raises ValueError if a change is not of one place."""
        text = self.path.read_text(encoding="utf-8")
        return text if self.path.suffix == ".py" else make_changes(text, self.path.name)

    @property
    def compiles_only(self) -> bool:
        """True if only a GPU can judge it."""
        return 'LANGUAGE = "gluon"' in self.text

    @property
    def known(self) -> bool:
        """True if this environment's Triton has the functions that the file uses."""
        return not self.block_pointers or language.installed_version() <= language.LAST_BLOCK_POINTERS

    @property
    def honest(self) -> bool:
        return self.verdict is Word.ACCEPT

    @property
    def task_file(self) -> Path:
        others = ATTACKS, STUDIES / "models" / "tasks", STUDIES / "helion"
        places = [STUDIES / self.task] if self.task in STUDIED else others
        return next(file for place in places if (file := place / f"{self.task}.py").exists())

    def wanted(self, mode: str) -> tuple[Word, ...]:
        if mode == "interpreter":
            own = Word.STATIC if self.compiles_only else self.interpreter
            return (own, *(self.also if own is self.verdict else ()))
        return (self.verdict, *self.also)


def read(path: Path) -> Entry:
    """The entry of one file. Raises ValueError if its first lines are not in the form."""
    lines = path.read_text(encoding="utf-8").splitlines()
    header = {}
    for line in lines[:4]:
        if line.startswith("# ") and ": " in line:
            key, _, value = line[2:].partition(": ")
            header[key] = value.strip()
    if not {"task", "trick", "verdict"} <= set(header):
        raise ValueError(f"{path.name} must begin with `# task:`, `# trick:` and `# verdict:` lines")
    verdict, *also = header["verdict"].split(" or ")
    word, _, why = header.get("interpreter", verdict).partition(" ")
    others = tuple(map(Word, also))
    needs = header.get("needs", "")
    if needs not in ("", "block pointers"):
        raise ValueError(f"{path.name} needs {needs}, which is not `block pointers`")
    stage = header.get("stage", "gate")
    about = (path, header["task"], header["trick"], Word(verdict), Word(word), why.strip("()"))
    return Entry(*about, others, bool(needs), stage)


def make_changes(text: str, name: str) -> str:
    """The kernel that a `.change` file is."""
    first, *lines = [line for line in text.splitlines() if not line.startswith("# ") or line.startswith("# of: ")]
    kernel = read_kernel(HERE.parent / first.removeprefix("# of: "))
    for minus, block in itertools.groupby(lines, lambda line: line[:2] == "- "):
        part = "\n".join(line[2:] for line in block)
        if minus:
            old = part
            if kernel.count(f"{old}\n") != 1:
                raise ValueError(f"{name}: not in one place of its kernel: {old!r}")
        else:
            kernel = kernel.replace(f"{old}\n", f"{part}\n" * bool(part))
    return kernel


def find(name: str) -> Entry:
    """The entry of a file in this folder by its name without the suffix."""
    return read(next(p for suffix in (".py", ".change") if (p := HERE / f"{name}{suffix}").exists()))


def read_kernel(path: Path) -> str:
    """A kernel file without its header, or the kernels of a task file, which is not executed."""
    text = path.read_text(encoding="utf-8")
    body = ast.parse(text).body
    if all(getattr(n, "name", "") != "reference" for n in body):
        return re.sub(r"\A(# .*\n)+", "", text)
    lines = text.splitlines()
    found = [n for n in body if isinstance(n, ast.FunctionDef) and n.decorator_list]
    code = ["\n".join(lines[f.decorator_list[0].lineno - 1 : f.end_lineno]) for f in found]
    return "import triton\nimport triton.language as tl\n\n\n" + "\n\n\n".join(code) + "\n"


def entries() -> tuple[Entry, ...]:
    """Every kernel file of the corpus, by task, honest ones first."""
    written = [
        p for p in (*HERE.glob("*.py"), *HERE.glob("*.change")) if p.name.startswith(tuple(f"{t}_" for t in STUDIED))
    ]
    files = [read(p) for p in sorted((*written, *WRITTEN))]
    return tuple(sorted(files, key=lambda e: (TASKS.index(e.task), not e.honest, e.path.name)))
