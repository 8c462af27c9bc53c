"""The gate: a deny-by-default whitelist over a kernel file's syntax tree. It never executes anything.

It checks, in this order: the text (size, characters), the file (imports, literals, jit functions), each function's
body (`body.py`), and last that the parts which will be compiled are the parts that were checked.
"""

from __future__ import annotations

import ast
import io
import re
import threading
import tokenize
import warnings
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from kernelsearch.core.errors import ExpressionError, KernelSyntaxError
from kernelsearch.core.formats import UNSEEN
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import LAUNCH_OPTIONS, Verdict, Word
from kernelsearch.kernel import expressions
from kernelsearch.kernel.descriptors import DESCRIPTOR_FORM, are_descriptors
from kernelsearch.kernel.dialects import Dialect, find_dialect
from kernelsearch.kernel.language import BUILTINS, DTYPES, JIT_FLAGS, refuse_scratch_dtype
from kernelsearch.kernel.literals import refuse_option
from kernelsearch.kernel.source import SPEC_NAMES, Kernel, normalise_constant, read_language
from kernelsearch.kernel.space import config_of
from kernelsearch.kernel.unrolling import find_excess
from kernelsearch.verify.body import (
    MAX_INTEGER,
    GateRefusal,
    Names,
    check_body,
    collect_local_names,
    is_word,
    refuse,
    shorten_source,
)

MAX_BYTES = 64 * 1024
MAX_LINES = 3000
MAX_NODES = 20_000
MAX_DEPTH = 100
MAX_FUNCTIONS = 32
MAX_PARAMETERS = 100
MAX_LAUNCHES = 64

RESERVED = frozenset({"int", "bool", *BUILTINS, *SPEC_NAMES})
"""Names that a kernel file may not give to anything of its own at module level, beside those of its language."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,79}")
_ANNOTATIONS = ("constexpr", "const", "tensor", *DTYPES)
_PARSING = threading.Lock()  # the filter list of `warnings` belongs to the process
_NOT_PYTHON = "not Python that can be read"
_NOT_WHOLE = "the file's parts do not stand on their own"


def check(text: str, own: bool = False) -> Verdict:
    """Accept, or reject-static with the line and the allowed alternatives. Never raises, never executes anything.

    own: it is a task's own kernel, in whose functions all may stand that runs only with them, under any names.
    """
    try:
        _check_file(text, own)
    except GateRefusal as refused:
        where = f"line {refused.line}: " if refused.line else ""
        detail = {"line": refused.line} if refused.line else {}
        return Verdict(Word.STATIC, "gate", f"{where}{refused.reason}", detail=detail)
    return Verdict(Word.ACCEPT, "gate")


def check_stored(source: str, digest: str, is_own: bool = False) -> str:
    """Why a kernel of a database is not what was judged, or never could be; empty if it may be."""
    try:
        if Kernel.parse(source).digest != digest:
            return f"kernel {digest[:8]} was changed: its source has another digest"
    except KernelSyntaxError as error:
        return f"kernel {digest[:8]} cannot be read: {error}"
    verdict = check(source, is_own)
    return "" if verdict.accepted else f"kernel {digest[:8]} is refused by the gate: {verdict.reason}"


def _check_file(text: str, own: bool) -> None:
    text = _check_text(text)
    tree = _parse(text)
    _check_size(tree)
    if not own and not text.isascii():
        _check_identifiers(text)
    dialect = _find_dialect(tree)
    functions, constants = _check_top_level(tree, dialect, own)
    names = Names(dialect, {f.name: tuple(p.arg for p in _parameters(f)) for f in functions}, frozenset(constants))
    for function in functions:
        _check_signature(function, dialect)
        if not own:
            _check_names(function, dialect)
            check_body(function, names)
    _check_call_graph(functions)
    _check_compiled_is_read(text, tree, functions, dialect)


# ---------------------------------------------------------------- the text


def _check_text(text: str) -> str:
    """The text with Unix line ends."""
    if not isinstance(text, str):
        raise GateRefusal(0, "a kernel file is text")
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise GateRefusal(0, f"the file is longer than {MAX_BYTES} bytes")
    text = text.replace("\r\n", "\n")
    bad = UNSEEN.search(text)
    if bad:
        raise GateRefusal(
            text.count("\n", 0, bad.start()) + 1, f"the character U+{ord(bad.group()):04X} is not allowed"
        )
    if text.count("\n") > MAX_LINES:
        raise GateRefusal(MAX_LINES, f"the file has more than {MAX_LINES} lines")
    return text


def _parse(text: str) -> ast.Module:
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return parse_python(text)
        except SyntaxError as error:
            raise GateRefusal(error.lineno or 0, f"not Python: {error.msg}") from None
        except (ValueError, RecursionError, MemoryError, OverflowError) as error:
            raise GateRefusal(0, f"{_NOT_PYTHON}: {type(error).__name__}") from None


def _check_size(tree: ast.AST) -> None:
    count, stack = 0, [(tree, 0, 0)]
    while stack:
        node, depth, line = stack.pop()
        count += 1
        line = getattr(node, "lineno", line)
        if count > MAX_NODES:
            raise GateRefusal(line, f"the file has more than {MAX_NODES} syntax nodes")
        if depth > MAX_DEPTH:
            raise GateRefusal(line, f"the code nests deeper than {MAX_DEPTH}")
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) > MAX_INTEGER:
            raise GateRefusal(line, "an integer beyond 2**64")
        stack.extend((child, depth + 1, line) for child in ast.iter_child_nodes(node))


def _check_identifiers(text: str) -> None:
    """Python reads look-alike letters as one name (NFKC); a person does not, so names are ASCII."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            in_code = token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.ERRORTOKEN)
            if in_code and not token.string.isascii():
                raise GateRefusal(token.start[0], f"names are ASCII; {token.string[:20]!r} is not")
    except (tokenize.TokenError, SyntaxError):
        raise GateRefusal(0, _NOT_PYTHON) from None


# ---------------------------------------------------------------- the file


def _find_dialect(tree: ast.Module) -> Dialect:
    try:
        return find_dialect(read_language(tree))
    except KernelSyntaxError as error:
        raise GateRefusal(0, str(error)) from None


def _check_top_level(tree: ast.Module, dialect: Dialect, own: bool) -> tuple[list[ast.FunctionDef], list[str]]:
    functions: list[ast.FunctionDef] = []
    constants: list[str] = []
    spec: dict[str, ast.expr] = {}
    end = 0
    for index, node in enumerate(tree.body):
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        if node.col_offset or first <= end:
            refuse(node, "every statement of the file starts on a line of its own, without `;`")
        end = node.end_lineno or first
        match node:
            case ast.Expr(value=ast.Constant(value=str())) if index == 0:
                pass
            case ast.Import() | ast.ImportFrom():
                if not dialect.allows_import(node):
                    allowed = "; ".join(sorted(dialect.imports))
                    refuse(node, f"`{shorten_source(node)}` is refused; allowed are: {allowed}")
            case ast.FunctionDef():
                functions.append(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in SPEC_NAMES:
                if name in spec:
                    refuse(node, f"{name} is given twice")
                spec[name] = value
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                wanted = f"{dialect.alias}.constexpr"
                annotation = shorten_source(node.annotation) if isinstance(node, ast.AnnAssign) else wanted
                if annotation != wanted:
                    refuse(node, f"a global is annotated `{wanted}`, not `{annotation}`")
                _check_constant(name, value, node.lineno, dialect, own)
                constants.append(name)
            case _:
                allowed = f"imports of triton, @{dialect.jit} functions, {dialect.alias}.constexpr literals and "
                refuse(
                    node, f"{type(node).__name__} is refused here; a kernel file holds {allowed}{', '.join(SPEC_NAMES)}"
                )
    if not functions:
        raise GateRefusal(0, f"the file has no @{dialect.jit} function")
    if len(functions) > MAX_FUNCTIONS:
        raise GateRefusal(functions[MAX_FUNCTIONS].lineno, f"the file has more than {MAX_FUNCTIONS} functions")
    names = [f.name for f in functions] + constants
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice:
        raise GateRefusal(0, f"{twice!r} is defined twice")
    for name, value in spec.items():
        _check_spec(name, value)
    return functions, constants


def _check_constant(name: str, value: ast.expr, line: int, dialect: Dialect, own: bool) -> None:
    check_name(name, line, dialect, module=True)
    match value:
        case ast.Call(func=function, args=[inner], keywords=[]) if (
            shorten_source(function) == f"{dialect.alias}.constexpr"
        ):
            value = inner
    number = value.operand if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) else value
    if not (isinstance(number, ast.Constant) and isinstance(number.value, (bool, int, float, *[str] * own))):
        raise GateRefusal(line, f"the global {name} must be a literal number, not `{shorten_source(value)}`")


def check_name(name: str, line: int, dialect: Dialect, module: bool = False) -> None:
    """Raises GateRefusal for a name that a kernel may not define."""
    if name in dialect.reserved or (module and name in RESERVED):
        raise GateRefusal(line, f"{name!r} may not be redefined")
    if name.startswith("__") or not _NAME.fullmatch(name):
        raise GateRefusal(
            line, f"{name[:40]!r} is not a name that a kernel may use (ASCII, at most 80, no leading `__`)"
        )


def _check_spec(name: str, node: ast.expr) -> None:
    """Raises GateRefusal if the value is not a literal, or holds an expression that the evaluator does not accept."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise GateRefusal(node.lineno, f"{name} must be a literal (numbers, strings, lists, dicts)") from None
    if name == "SCRATCH":
        texts = _scratch_texts(value, node.lineno)
    elif name == "DESCRIPTORS":
        if not are_descriptors(value):
            raise GateRefusal(node.lineno, f"DESCRIPTORS must be {DESCRIPTOR_FORM}")
        texts = (text for spec in value.values() for text in spec[1:4])
    else:
        texts = iter(()) if name in ("LAUNCHES", "INIT") else _strings_in(value)
    if name == "LAUNCHES" and len(list(_strings_in(value))) > MAX_LAUNCHES:
        raise GateRefusal(node.lineno, f"LAUNCHES has more than {MAX_LAUNCHES} steps")
    for text in texts:
        try:
            expressions.validate(text)
        except ExpressionError as error:
            raise GateRefusal(node.lineno, f"{name}: {error}") from None


def _scratch_texts(value: object, line: int) -> Iterator[str]:
    for item in value.values() if isinstance(value, dict) else ():
        if not (isinstance(item, (tuple, list)) and len(item) in (2, 3) and isinstance(item[1], str)):
            raise GateRefusal(line, 'SCRATCH must be {"name": ("float32", "(shape, expression)")}')
        if why := refuse_scratch_dtype(item[0]):
            raise GateRefusal(line, f"SCRATCH: {why}")
        if len(item) == 3 and (isinstance(item[2], bool) or item[2] != 0):
            raise GateRefusal(line, "SCRATCH: a third item can only be 0, which asks for zero-fill")
        yield item[1]


def _strings_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list, tuple, set)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings_in(inner)


# ---------------------------------------------------------------- functions


def _parameters(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _check_signature(function: ast.FunctionDef, dialect: Dialect) -> None:
    line = function.lineno
    check_name(function.name, line, dialect, module=True)
    _check_decorator(function, dialect)
    if function.args.vararg or function.args.kwarg:
        raise GateRefusal(line, "a kernel has named parameters only, no * or **")
    if getattr(function, "type_params", None):
        raise GateRefusal(line, "type parameters are refused")
    if function.returns is not None:
        raise GateRefusal(line, "a return annotation is refused: leave it out")
    parameters = _parameters(function)
    if len(parameters) > MAX_PARAMETERS:
        raise GateRefusal(line, f"a function has at most {MAX_PARAMETERS} parameters")
    alias = dialect.alias
    annotations = {"int", "float", "bool"}.union(f"{alias}.{name}" for name in _ANNOTATIONS)
    for parameter in parameters:
        annotation = "" if parameter.annotation is None else shorten_source(parameter.annotation)
        if annotation and annotation.strip("'") not in annotations:
            refused = f"the annotation `{annotation}` is refused"
            refuse(parameter, f"{refused}; allowed are {alias}.constexpr, a {alias} dtype, int, float, bool")
    for default in (*function.args.defaults, *function.args.kw_defaults):
        if default is not None and not _is_default(default, alias):
            refuse(default, f"a default must be a literal or a {alias} dtype, not `{shorten_source(default)}`")


def _check_names(function: ast.FunctionDef, dialect: Dialect) -> None:
    arguments = {p.arg for p in _parameters(function)}
    for name, at in collect_local_names(function).items():
        if name in SPEC_NAMES and name not in arguments:
            raise GateRefusal(at, f"{name!r} may not be redefined")
        check_name(name, at, dialect)


def _is_default(node: ast.expr, alias: str) -> bool:
    match node:
        case ast.Constant(value=str()):
            return is_word(node)
        case ast.Constant(value=bool() | int() | float() | None):
            return True
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return _is_default(node.operand, alias)
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return module == alias and name in DTYPES
    return False


def _check_decorator(function: ast.FunctionDef, dialect: Dialect) -> None:
    flags = ", ".join(sorted(JIT_FLAGS))
    wanted = f"each function has the one decorator @{dialect.jit} (with at most {flags})"
    if len(function.decorator_list) != 1:
        refuse(function, wanted)
    decorator = function.decorator_list[0]
    if isinstance(decorator, ast.Call):
        good = not decorator.args and all(k.arg in JIT_FLAGS and _is_flag(k.value) for k in decorator.keywords)
        if not good or not decorator.keywords:
            refuse(decorator, wanted)
        decorator = decorator.func
    if shorten_source(decorator) != dialect.jit:
        refuse(decorator, wanted)


def _is_flag(node: ast.expr) -> bool:
    if isinstance(node, (ast.List, ast.Tuple)):
        return all(_is_flag(item) for item in node.elts)
    if not isinstance(node, ast.Constant):
        return False
    is_name = isinstance(node.value, str) and _NAME.fullmatch(node.value) is not None
    return is_name or isinstance(node.value, (bool, int))


def _check_call_graph(functions: list[ast.FunctionDef]) -> None:
    """Refuses recursion: Triton inlines helpers, so a function that reaches itself can only hang or crash."""
    names = {f.name for f in functions}
    used = {
        f.name: {n.id for n in ast.walk(f) if isinstance(n, ast.Name)} - set(collect_local_names(f)) for f in functions
    }
    try:
        TopologicalSorter({name: sorted(others & names) for name, others in used.items()}).prepare()
    except CycleError as error:
        first = next(f for f in functions if f.name in error.args[1])
        raise GateRefusal(first.lineno, f"{first.name} calls itself; a kernel cannot recurse") from None


def _check_compiled_is_read(text: str, tree: ast.Module, functions: list[ast.FunctionDef], dialect: Dialect) -> None:
    """Refuses a file if the source parts that `Kernel` cuts out by line numbers are not the trees checked above."""
    try:
        kernel = Kernel.parse(text)
        compiled = parse_python(kernel.code)
    except KernelSyntaxError as error:
        raise GateRefusal(0, str(error)) from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise GateRefusal(0, _NOT_WHOLE) from None
    assigned = (n for n in tree.body if isinstance(n, (ast.Assign, ast.AnnAssign)))
    constants = [n for n in assigned if _target(n) not in SPEC_NAMES]
    alias = dialect.alias
    checked = [parse_python(text).body[0] if (text := normalise_constant(n, alias)) else n for n in constants]
    cut = [n for n in compiled.body if not dialect.allows_import(n)]
    if [ast.dump(n) for n in cut] != [ast.dump(n) for n in (*checked, *functions)]:
        raise GateRefusal(0, _NOT_WHOLE)
    for name in kernel.entries:
        given = config_of(kernel.config, name, kernel.sites_of(name))
        plain = {n: v for n, v in given.items() if isinstance(v, (int, float))}
        refusals = (refuse_option(n, v) for n, v in plain.items() if n in LAUNCH_OPTIONS)
        if excess := next(filter(None, (*refusals, find_excess(kernel.code, name, tuple(plain.items())))), ""):
            raise GateRefusal(0, excess)


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    return target.id if isinstance(target, ast.Name) else ""
