"""The grammar of `kernel_file.lark` for one use: templates written out, declared words filled in, in three dialects.

The rules of `tl` functions come from `kernel/language.py`, which the gate reads too. Keyword arguments stand in the
order of the list, so that none can be given twice.
"""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from string import ascii_letters, digits

from kernelsearch.core.types import content_digest
from kernelsearch.kernel import language
from kernelsearch.kernel.source import SPEC_NAMES
from kernelsearch.propose.grammar.bounded import bound_rules

FILE = Path(__file__).with_name("kernel_file.lark")
UNUSABLE = (*keyword.kwlist, "tl", "triton", "libdevice", *SPEC_NAMES)
"""Words that are not names of a kernel's own."""
METHODS: Mapping[str, str] = {
    "to": "dtype fp_downcast_rounding bitcast",
    "load": "offsets",
    "store": "offsets value",
    "gather": "x_offsets y_offset",
    "scatter": "value x_offsets y_offset",
    "logical_and": "other",
    "logical_or": "other",
}
"""Parameters of methods that no function of tl has, or with others."""

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|/(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\[])+/|\w+|[{}(),|*+?]')
_PIECE = re.compile(r"\[(?:\\.|[^\]\\])*\]|\\.|\{[\d,]+\}|[()|*+?]|.")

Definitions = dict[str, tuple[tuple[str, ...], list[str]]]
"""Parameters and tokens of each rule and terminal, by name."""


@dataclass(frozen=True)
class KernelGrammar:
    """A grammar as the rules that its start needs, each as tokens; terminals are in capitals."""

    start: str
    rules: Mapping[str, Sequence[str]]
    after_thought: KernelGrammar | None = None
    """The same for an answer that begins within a thought, which the model's chat template has opened."""

    @cached_property
    def lark(self) -> str:
        """For llguidance, and providers that take Lark."""
        names = {self.start: "start"}
        lines = (f"{names.get(n, n)}: {' '.join(names.get(t, t) for t in body)}" for n, body in self.rules.items())
        return "\n".join(lines) + "\n"

    @cached_property
    def ebnf(self) -> str:
        """For xgrammar; llama.cpp reads it as GBNF, whose names have no underscores."""
        lines = (f"{self._ebnf_name(n)} ::= {' '.join(map(self._ebnf, body))}" for n, body in self.rules.items())
        return "\n".join(lines) + "\n"

    @cached_property
    def digest(self) -> str:
        """Hash of the grammar's text."""
        return content_digest(self.lark)

    def _ebnf_name(self, name: str) -> str:
        return "root" if name == self.start else name.replace("_", "-")

    def _ebnf(self, token: str) -> str:
        if token in self.rules:
            return self._ebnf_name(token)
        return f"({' '.join(_write_pattern(token[1:-1]))})" if token[0] == "/" else token


@lru_cache(maxsize=64)
def hold_kernels(sites: tuple[str, ...], passed: tuple[str, ...]) -> KernelGrammar:
    """The grammar of whole-kernel answers: their kernel bears a site's name, or LAUNCHES says what runs.

    A kernel with a site's name begins with a parameter that the launcher passes.
    """
    words = {"SITE": sites, "PASSED": passed}
    return replace(make_grammar("kernel_answer", words), after_thought=make_grammar("after_thought", words))


def make_grammar(
    start: str, words: Mapping[str, Iterable[str]] | None = None, rules: str = "", nesting: int | None = None
) -> KernelGrammar:
    """The grammar that begins with a rule of the file, or of further rules in its syntax.

    words has the texts of terminals, in place of the file's. nesting bounds the language: so many brackets in each
    other, and no part more than once where the file has it any number of times.
    """
    known = {**_general(), **_read(rules)}
    known |= {name: ((), _alternatives(texts)) for name, texts in (words or {}).items() if texts}
    made: dict[str, list[str]] = {}
    _write_out(start, (), known, made)
    return KernelGrammar(start, made if nesting is None else bound_rules(made, start, nesting))


def _read(text: str) -> Definitions:
    """The rules and terminals of a text in the file's syntax."""
    found: Definitions = {}
    text = re.sub(r"^(//|%).*\n", "", text, flags=re.MULTILINE)
    for part in re.split(r"\n(?=\w)", "\n" + text):
        head, _, body = part.partition(":")
        name, *parameters = re.findall(r"\w+", head) or [""]
        if name:
            found[name] = tuple(parameters), _TOKEN.findall(body)
    return found


def _write_out(name: str, given: tuple[str, ...], known: Definitions, made: dict[str, list[str]]) -> str:
    """Adds a rule with its templates' arguments put in, and all that it refers to; gives its name."""
    full = "_".join((name, *given)).lower() if given else name
    if full in made:
        return full
    parameters, tokens = known[name]
    made[full] = body = []
    names, at = dict(zip(parameters, given, strict=True)), 0

    def symbol(at: int) -> tuple[str, int]:
        """The symbol at a token, its arguments written out, and the token behind it."""
        word, arguments = names.get(tokens[at], tokens[at]), []
        at += 1
        if at < len(tokens) and tokens[at] == "{":
            while tokens[at] != "}":
                argument, at = symbol(at + 1)
                arguments.append(argument)
            at += 1
        return (_write_out(word, tuple(arguments), known, made) if word in known else word), at

    while at < len(tokens):
        if re.match(r"\w", tokens[at]):
            word, at = symbol(at)
            body.append(word)
        else:
            body.append(tokens[at])
            at += 1
    return full


def _write_pattern(pattern: str) -> Iterator[str]:
    """A regular expression of classes, groups and repetitions as EBNF."""
    for piece in _PIECE.findall(pattern):
        if (len(piece) == 1 and piece in "()|*+?") or (piece[0] in "[{" and piece != "["):
            yield piece.replace(r"\/", "/")
        else:
            yield json.dumps({r"\n": "\n"}.get(piece, piece[-1]))


# ---------------------------------------------------------------- what the file declares


@cache
def _general() -> Definitions:
    """The file's rules, with what it declares for any kernel."""
    functions = dict(language.functions_of(language.installed_version()))
    words = sorted(language.WORDS)
    libdevice = [f"{m}.{n}(" for m in ("libdevice", "tl.extra.libdevice", "tl.extra.cuda.libdevice")
                 for n in sorted(language.LIBDEVICE)]  # fmt: skip
    types = sorted(f"tl.{t}" for t in language.DTYPES)
    texts = {
        "ANNOTATION": ("tl.constexpr", "tl.const", "tl.tensor", "int", "float", "bool", *types),
        "TYPE": types,
        "MEMBER": sorted(f"tl.{m}" for m in language.MEMBERS),
        "SCRATCH_DTYPE": _quote(language.SCRATCH_DTYPES),
        "WORD": _quote(words),
        "NUMBER_WORD": _quote(("inf", "-inf", "+inf", "infinity", "-infinity", "nan")),
        "ATTRIBUTE": [f".{a}" for a in sorted(language.ATTRIBUTES)],
        "LIBDEVICE": libdevice,
    }
    made = _read(FILE.read_text(encoding="utf-8"))
    made |= {name: ((), _alternatives(values)) for name, values in texts.items()}
    made["NAME"] = (), [f"/{_write_names(UNUSABLE)}/"]
    made["HELPER"] = made["SITE"] = made["PASSED"] = (), ["NAME"]
    counted = {f"tl.{n}(": functions.pop(n) for n in ("range", "static_range")}
    asserted = ("static_assert", "device_assert")
    called = {f"tl.{n}(": p for n, p in functions.items() if n not in asserted}
    called |= {f"tl.math.{n}(": p for n, p in language.MATH_FUNCTIONS.items()}
    called |= {f"triton.{n}(": ("x", "y") for n in sorted(language.HOST_FUNCTIONS)}
    own = {n: tuple(METHODS[n].split()) if n in METHODS else functions.get(n, ("",))[1:] for n in language.METHODS}
    methods = {f".{n}(": p for n, p in sorted(own.items())}
    counted["range("] = ("", "", "")
    variadic = {f"{head}{n}(" for n in language.VARIADIC for head in ("tl.", ".")}
    for name, calls in (("tl_call", called), ("method_call", methods), ("counted", counted)):
        made |= _read("\n".join(_write_calls(name, calls, variadic)))
    return made


def _write_calls(name: str, calls: Mapping[str, tuple[str, ...]], variadic: set[str]) -> Iterator[str]:
    """Rules for calls, one for each list of parameters: values by position, then keywords in order."""
    groups: dict[tuple[tuple[str, ...], bool], list[str]] = {}
    for text, parameters in calls.items():
        groups.setdefault((parameters, text in variadic), []).append(text)
    yield f"{name}: " + " | ".join(f"{name}_{n}" for n in range(len(groups)))
    for n, ((parameters, many), texts) in enumerate(groups.items()):
        own, last = f"{name}_{n}", len(parameters)
        yield f"{own.upper()}: " + " ".join(_alternatives(texts))
        arguments = f"{own}_from_0 close | " if parameters else ""
        yield f'{own}: {own.upper()} WIDE? ({arguments}")")'
        for at, parameter in enumerate(parameters):
            more = f"(comma{{WIDE}} {own}_from_{at + 1})?" if at + 1 < last else "(comma{WIDE} value{WIDE})*" * many
            keyword_more = f"(comma{{WIDE}} {own}_named_{at + 1})?" if at + 1 < last else ""
            if parameter:
                yield f"{own}_from_{at}: value{{WIDE}} {more} | {own}_named_{at}"
                yield f'{own}_named_{at}: "{parameter}" equals{{WIDE}} value{{WIDE}} {keyword_more}' + (
                    f" | {own}_named_{at + 1}" if at + 1 < last else ""
                )
            else:
                yield f"{own}_from_{at}: value{{WIDE}} {more}"


def _alternatives(texts: Iterable[str]) -> list[str]:
    return [token for text in texts for token in ("|", json.dumps(text))][1:]


def _quote(texts: Iterable[str]) -> list[str]:
    return [f"{mark}{text}{mark}" for text in texts for mark in "\"'"]


def _write_names(unusable: Iterable[str]) -> str:
    """A regular expression of all names but these, and none that begins with two underscores."""
    words, letters, every = {*unusable, "__"}, set(ascii_letters + "_"), set(ascii_letters + digits + "_")

    def behind(begin: str) -> str:
        """What may follow the beginning of an unusable word."""
        after = {w[len(begin)] for w in words if w.startswith(begin) and w != begin}
        others = _write_class((every if begin else letters) - after) + "[A-Za-z0-9_]*"
        further = [f"{a}{behind(begin + a)}" for a in sorted(after) if begin + a != "__"]
        return f"({'|'.join([others, *further])})" + ("?" if begin and begin not in words else "")

    return behind("")


def _write_class(characters: set[str]) -> str:
    """A class of characters with runs of them written as ranges."""
    runs: list[str] = []
    for c in sorted(characters):
        if runs and ord(c) == ord(runs[-1][-1]) + 1:
            runs[-1] = runs[-1][0] + c
        else:
            runs.append(c)
    return "[" + "".join(f"{r[0]}-{r[1]}" if len(r) == 2 and ord(r[1]) > ord(r[0]) + 1 else r for r in runs) + "]"
