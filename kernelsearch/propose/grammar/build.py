"""The form of edits of one parent: what its engine is held to, and what an answer makes of the parent.

The grammar is that of kernel files with the parent's line numbers, names and settings filled in, bounded so that any
model ends (`bounded.py`). The reader is the same for every engine, and knows no grammar: directives in their format,
Python, names that are bound, the gate.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

from kernelsearch.core.errors import KernelSyntaxError
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import LAUNCH_OPTIONS, TaskFacts, Value, Verdict
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.contract import Rewrite
from kernelsearch.propose.grammar.answer import (
    Answer,
    AnswerRejection,
    Malformed,
    apply_changes,
    find_blocks,
    parse,
    strip_thinking,
)
from kernelsearch.propose.grammar.kernel_file import KernelGrammar, make_grammar
from kernelsearch.propose.grammar.source_page import SourcePage, StatementPlace, find_unresolved

CHANGES, LINES, NESTING, FRESH = 2, 3, 3, 2
"""Of an answer under the grammar: changed places, new lines at each, brackets in each other, new names."""
NUMBERS = ("0", "1", "2", "4", "16", "0.0", "0.5", "1.0", "2.0", "1.4426950408889634")
"""Numbers that an answer may use, beside the parent's own; the last is log2(e), for exp2 in place of exp."""
PLAIN = """GAP: " "
WIDE: " "
FLAG: WORD
MESSAGE: WORD
LIBDEVICE: "libdevice.rsqrt(" | "libdevice.tanh("
value{s}: test{s} | WORD | collection
test{s}: comparison{s}
collection: "[" extent (", " extent)? "]"
extent: NAME | NUMBER
close: ")"
"""
"""Rules of the file in the short form that small models need."""


class NoGrammar(ValueError):
    """Raised when no answer can change this parent; the message has the reason."""


@dataclass(frozen=True)
class Grammar:
    """The edits of one parent; edits are the typed ones that an answer may name, with their variants.

    tried are the digests of kernels that the run has already: an edit that makes one is not offered again.
    """

    parent: Kernel
    page: SourcePage
    space: Space
    edits: Mapping[str, Sequence[Rewrite]] = field(default_factory=dict)
    tried: frozenset[str] = frozenset()

    def without(self, seen: Container[str]) -> Grammar:
        """The same without edits that make a kernel which was seen."""
        made = (v.kernel.digest for variants in self.edits.values() for v in variants)
        return replace(self, tried=frozenset(digest for digest in made if digest in seen))

    @cached_property
    def offered(self) -> Mapping[str, Sequence[int]]:
        """The numbers of each edit's variants that an answer may name."""
        left = {
            name: [n for n, v in enumerate(variants, 1) if v.kernel.digest not in self.tried]
            for name, variants in self.edits.items()
        }
        return {name: numbers for name, numbers in left.items() if numbers}

    @property
    def lines(self) -> tuple[str, ...]:
        """The parent's source as the prompt shows it."""
        return self.page.lines

    @cached_property
    def numbered(self) -> str:
        """The parent's lines with their numbers, for the prompt."""
        return "\n".join(f"{n:>3} {line}".rstrip() for n, line in enumerate(self.lines, 1)) + "\n"

    @cached_property
    def fresh(self) -> Mapping[str, str]:
        """Names that the parent does not use, for an answer's own values."""
        free = (f"t{i}" for i in range(1000) if f"t{i}" not in self.page.names)
        return {name: "yours to bind" for name, _ in zip(free, range(FRESH), strict=False)}

    @cached_property
    def for_engine(self) -> KernelGrammar:
        """What an engine holds its answers to, if it can."""
        words = {"NAME": (*self.page.names, *self.fresh), "NUMBER": dict.fromkeys((*NUMBERS, *self.page.numbers))}
        helpers = "HELPER: " + (" | ".join(map(json.dumps, self.page.helpers)) or "NONE") + "\n"
        rules = PLAIN + helpers + "\n".join(_write_rules(self)) + "\n"
        return make_grammar("edit_answer", words, rules, NESTING)

    @property
    def digest(self) -> str:
        return self.for_engine.digest

    def tidy(self, text: str) -> str:
        """The answer without a model's habits, if it is in the format then: thinking, white space, a code fence."""
        said = strip_thinking(text)
        forms = [text, *(f for t in (said, *find_blocks(said)[::-1]) for f in (t, t.strip(), t.strip() + "\n"))]
        return next((form for form in dict.fromkeys(forms) if is_edit(form)), text)

    def apply(
        self, text: str, *, stopped: bool = True, gate: Callable[[str], Verdict] | None = None
    ) -> Answer | AnswerRejection:
        """The kernel that an answer makes of the parent, or the first stage that refuses it.

        stopped is False for an answer that the engine cut short; gate is `verify.gate.check`.
        """
        if not stopped:
            return AnswerRejection(text, "stopped", f"the answer was cut short after {len(text)} characters")
        try:
            parse(text)
        except Malformed as error:
            return AnswerRejection(text, "grammar", str(error))
        try:
            answer = self._answer(text)
        except (Malformed, KernelSyntaxError) as error:
            return AnswerRejection(text, "parses", str(error))
        unknown = [n for n in find_unresolved(answer.kernel) if n not in self.page.unresolved]
        if unknown and not answer.variant:
            return AnswerRejection(text, "names", f"{unknown[0]!r} is not bound where it is read")
        verdict = gate(answer.kernel.render()) if gate else None
        if verdict is not None and not verdict.accepted:
            return AnswerRejection(text, "gate", verdict.reason)
        return answer

    def _answer(self, text: str) -> Answer:
        """The kernel that the answer's directives make. Raises Malformed and KernelSyntaxError."""
        directives, kernel = parse(text), self.parent
        edit, variant = directives.edit or ("lines" if directives.changes else "launch", 0)
        if directives.edit:
            variants = self.edits.get(edit, ())
            if not 1 <= variant <= len(variants):
                raise Malformed(f"EDIT {edit} {variant} is not one of the offered edits")
            kernel = variants[variant - 1].kernel
        if directives.changes:
            kernel = self.page.kernel(apply_changes(self.lines, self.page.spans, directives.changes))
        if directives.grid is not None:
            if directives.grid not in list_grids(self.parent):
                raise Malformed(
                    f"GRID {directives.grid[:60]}: the grid of a kernel whose programs do not loop over it stays"
                )
            kernel = kernel.with_changes(grid={**kernel.grid, kernel.entries[0]: directives.grid})
        config = {name: _value(value) for name, value in directives.settings.items()}
        known = {*LAUNCH_OPTIONS, *self.space, *kernel.space, *(c for f in kernel.functions for c in f.constexprs)}
        if unknown := [name for name in config if name not in known]:
            raise Malformed(f"SET {unknown[0][:40]}: it may be one of {', '.join(sorted(known))}")
        if config:
            kernel = kernel.with_changes(config={**kernel.config, **config})
        return Answer(text, kernel, edit, variant, config)


def build_grammar(kernel: Kernel, task: TaskFacts, edits: Mapping[str, Sequence[Rewrite]] | None = None) -> Grammar:
    """The form of edits of a parent; edits are the typed ones to offer, by name, with their variants of this parent.

    Raises NoGrammar for a parent without statements.
    """
    page = SourcePage.of(kernel)
    if not page.places:
        raise NoGrammar("no line of the parent can be changed: its functions have no statements")
    offered = {name: tuple(variants) for name, variants in (edits or {}).items() if variants}
    return Grammar(kernel, page, space_of(kernel, task), offered)


def is_edit(text: str) -> bool:
    """True if the text is in the format of edits."""
    try:
        return bool(parse(text))
    except Malformed:
        return False


def _value(text: str) -> Value:
    try:
        return ast.literal_eval(parse_python(text.lstrip(" \t"), "eval"))
    except (ValueError, SyntaxError):
        return text


# ---------------------------------------------------------------- the rules of one parent


def _write_rules(grammar: Grammar) -> Iterator[str]:
    """Rules in the file's syntax: a few changes in ascending order and settings, the launch alone, or a typed edit."""
    places, endings = grammar.page.places, _Endings()
    end = endings.of(grammar.space)
    others = [endings.first(grammar.space)] if grammar.space else []
    if grids := list_grids(grammar.parent):
        others.append(f'"GRID " ({_choose(grids)}) "\\n" {end}')
    for name, numbers in grammar.offered.items():
        for number in numbers:
            made = grammar.edits[name][number - 1].kernel
            others.append(f'"EDIT {name} {number}\\n" {endings.of(with_options(made.space))}')
    yield "edit_answer: " + " | ".join(["changes_0_0", *others])
    for at, place in enumerate(places):
        yield f"change_{at}: {_write_change(place)}"
        for done in range(CHANGES):
            after = f"(changes_{at + 1}_{done + 1} | {end})" if done + 1 < CHANGES and at + 1 < len(places) else end
            later = f" | changes_{at + 1}_{done}" if at + 1 < len(places) else ""
            yield f"changes_{at}_{done}: change_{at} {after}{later}"
    for indent in sorted({p.indent for p in places}):
        new = f'"{" " * indent}" action "\\n"'
        yield f"new_{indent}: {new}" + f" ({new}" * (LINES - 1) + ")?" * (LINES - 1)
    yield from endings.rules


def _write_change(place: StatementPlace) -> str:
    """The edits of one place; what takes a statement's place binds the name that it bound."""
    n, new, indent = place.line, f"new_{place.indent}", " " * place.indent
    before = f'"BEFORE {n}\\n" {new}'
    if place.header:
        heads = {
            "if": '"if" GAP test{GAP}',
            "while": '"while" GAP test{GAP}',
            "for": f'"for {place.target} in " counted',
        }
        return f'"LINE {n}\\n" "{indent}" {heads[place.header]} ":\\n" | {before}'
    if place.target:
        return f'"LINE {n}\\n" {new}? "{indent}{place.target} = " value{{GAP}} "\\n" | {before}'
    return f'"LINE {n}\\n" {new} | {before} | "DELETE {n}\\n"'


class _Endings:
    """Rules for END, perhaps after SET lines: each name once, in the space's order, two at most."""

    def __init__(self) -> None:
        self.rules: list[str] = []
        self.known: dict[tuple, str] = {}

    def of(self, space: Space) -> str:
        return f'("END" | {self.first(space)})' if space else '"END"'

    def first(self, space: Space) -> str:
        """The rule of at least one SET line, and END."""
        key = tuple((name, tuple(map(str, values))) for name, values in space.items())
        if key not in self.known:
            own = self.known[key] = f"settings_{len(self.known)}"
            sets = [f'"SET {name} " ({_choose(values)}) "\\n"' for name, values in key]
            self.rules += [f"{own}_{at}: {one}" for at, one in enumerate(sets)]
            each = []
            for at in range(len(sets)):
                more = " | ".join(f'{own}_{later} "END"' for later in range(at + 1, len(sets)))
                each.append(f'{own}_{at} ("END"{f" | {more}" if more else ""})')
            self.rules.append(f"{own}: {' | '.join(each)}")
        return self.known[key]


def _choose(texts: Iterable[str]) -> str:
    return " | ".join(map(json.dumps, texts))


# ------------------------------------------------------------ what an answer may say beside lines of code

OPTIONS: Mapping[str, tuple[int, ...]] = {"num_warps": (1, 2, 4, 8, 16, 32), "num_stages": (1, 2, 3, 4, 5)}
"""Values of the launch options that a space does not name."""

Space = Mapping[str, Sequence[Value]]


def space_of(kernel: Kernel, task: TaskFacts) -> dict[str, tuple[Value, ...]]:
    """What may be SET, with its values: the kernel's own space or the task's, and the launch options."""
    known = {p for f in kernel.functions for p in f.constexprs} | set(LAUNCH_OPTIONS)
    space = with_options(kernel.space or task.space)
    return {name: values for name, values in space.items() if name.rpartition(".")[2] in known}


def list_grids(kernel: Kernel) -> list[str]:
    """Grids of the one launched function, if its programs loop: with any other, programs would be missing."""
    node = tree.function_of(kernel.function(kernel.entries[0]).text)
    if len(kernel.entries) != 1 or not tree.calls(node, "num_programs"):
        return []
    axes = [tree.program_axis(call) for call in tree.calls(node, "program_id")]
    numbers = [axis for axis in axes if axis is not None]
    if not numbers or len(numbers) < len(axes):
        return []
    own = [f"grid({axis})" for axis in range(max(numbers) + 1)]
    sizes = [(g, *(f"min({g}, {n})" for n in ("num_sms", "2 * num_sms", "4 * num_sms"))) for g in own]
    made = [f"({', '.join(one)}{',' * (len(one) == 1)})" for one in product(*sizes)]
    return list(dict.fromkeys([*made, *(" ".join(text.split()) for text in kernel.grid.values())]))


def with_options(space: Space) -> dict[str, tuple[Value, ...]]:
    """The space and the launch options, without values that a SET line cannot say."""
    plain = {n: tuple(v for v in vs if v is not None and " " not in str(v)) for n, vs in {**OPTIONS, **space}.items()}
    return {name: values for name, values in plain.items() if values}
