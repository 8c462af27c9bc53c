"""A grammar of the allowed answers for one parent: its rules, its texts for engines, its check and its application."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kernelsearch.core.errors import KernelSyntaxError
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import TaskFacts, Value, Verdict
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.contract import Rewrite
from kernelsearch.propose.grammar.answer import Answer, AnswerRejection, Malformed, apply_changes, parse
from kernelsearch.propose.grammar.language import Language
from kernelsearch.propose.grammar.lines import Lines
from kernelsearch.propose.grammar.names import find_unresolved
from kernelsearch.propose.grammar.rules import Ref, Rules
from kernelsearch.propose.grammar.settings import add_ending, draft_launch_changes, draft_typed_edits, space_of
from kernelsearch.propose.grammar.source_page import SourcePage
from kernelsearch.propose.grammar.unwrapped import find_blocks, strip_thinking

BUDGET = 512
"""Bytes of the longest answer: no tokenizer can need more tokens, since each is a byte at least."""


class NoGrammar(ValueError):
    """Raised when no answer can change this parent; the message has the reason."""


@dataclass(frozen=True)
class Grammar(Language):
    """All allowed answers for one parent.

    lines is the parent's source as the prompt shows it; edits are the typed edits that an answer may name, with their
    variants; budget is in bytes. `lark` is for llguidance, `ebnf` for xgrammar.
    """

    parent: Kernel
    page: SourcePage
    rules: Rules
    start: Ref
    edits: Mapping[str, Sequence[Rewrite]] = field(default_factory=dict)
    budget: int = BUDGET
    fresh: Mapping[str, str] = field(default_factory=dict)
    """Names that an answer may bind for itself, with their kinds in words: `float32 [BLOCK]`."""

    @property
    def lines(self) -> tuple[str, ...]:
        return self.page.lines

    @cached_property
    def numbered(self) -> str:
        """The parent's lines with their numbers, for the prompt."""
        return "\n".join(f"{n:>3} {line}".rstrip() for n, line in enumerate(self.lines, 1)) + "\n"

    @property
    def for_engine(self) -> Grammar:
        """What an engine holds its answers to."""
        return self

    def accepts(self, text: str) -> bool:
        """True if the rules themselves, and no engine, allow the text."""
        return self.mismatch(text) is None

    def tidy(self, text: str) -> str:
        """The answer without a model's habits, if the rules then allow it: thinking, white space, a code fence."""
        said = strip_thinking(text)
        forms = [text, *(f for t in (said, *find_blocks(said)[::-1]) for f in (t, t.strip(), t.strip() + "\n"))]
        near = (form for form in dict.fromkeys(forms) if len(form) <= self.longest + 1)
        return next((form for form in near if self.accepts(form)), text)

    def apply(
        self, text: str, *, stopped: bool = True, gate: Callable[[str], Verdict] | None = None, strict: bool = True
    ) -> Answer | AnswerRejection:
        """The kernel that an answer makes of the parent, or the first stage that refuses it.

        stopped is False for an answer that the engine cut short; gate is `verify.gate.check`; without strict an answer
        that does not belong to the grammar is still parsed, for studies of what engines without a grammar write.
        """
        if (strict or not stopped) and (refusal := self.refuse(text, stopped)):
            return refusal
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
            kernel = kernel.with_changes(grid={**kernel.grid, kernel.entries[0]: directives.grid})
        config = {name: _value(value) for name, value in directives.settings.items()}
        if config:
            kernel = kernel.with_changes(config={**kernel.config, **config})
        touched = tuple(dict.fromkeys(c.line for c in directives.changes))
        return Answer(text, kernel, edit, variant, config, directives.grid, touched)


def build_grammar(
    kernel: Kernel, task: TaskFacts, edits: Mapping[str, Sequence[Rewrite]] | None = None, *, budget: int = BUDGET
) -> Grammar:
    """The grammar of the allowed answers for a parent.

    edits are the typed edits to offer, by name, with their variants of this parent. budget bounds an answer in bytes,
    and so in tokens of any tokenizer: pass the engine's `max_tokens`. Raises NoGrammar when there is nothing to change.
    """
    page = SourcePage.of(kernel, task)
    offered = {name: tuple(variants) for name, variants in (edits or {}).items() if variants}
    rules, space = Rules(), space_of(kernel, task)
    lines = Lines(rules, page, add_ending(rules, space), budget)
    others = [draft_launch_changes(rules, kernel, space), draft_typed_edits(rules, offered)]
    short = [[d for d in drafts if None not in d and rules.length(d) <= budget] for drafts in others]
    start = rules.add([(lines.start(),), *((rules.add(drafts),) for drafts in short)])
    if start is None:
        raise NoGrammar(f"no line, setting or edit of the parent fits into an answer of {budget} bytes, its budget")
    fresh = {f.name: f.kind.text() for pool in lines.pool.values() for f in pool}
    return Grammar(kernel, page, rules, start, offered, budget, fresh)


def _value(text: str) -> Value:
    try:
        return ast.literal_eval(parse_python(text.lstrip(" \t"), "eval"))
    except (ValueError, SyntaxError):
        return text
