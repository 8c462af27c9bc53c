"""What may stand inside a jit function: the gate's whitelist of statements, expressions and calls."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from kernelsearch.kernel.language import (
    ATTRIBUTES,
    BUILTINS,
    DTYPES,
    HOST_FUNCTIONS,
    KEYWORDS_OF_METHODS,
    LIBDEVICE,
    MATH_FUNCTIONS,
    METHODS,
    VARIADIC,
    WORDS,
    functions,
    installed,
    refusal,
)

MAX_INTEGER = 2**64
MAX_POWER = 64
MAX_TEXT = 200

_NAMESPACES = frozenset(
    {
        "tl",
        "tl.math",
        "tl.extra",
        "tl.extra.cuda",
        "tl.extra.libdevice",
        "tl.extra.cuda.libdevice",
        "triton",
        "triton.language",
        "libdevice",
    }
)
_LOOPS = frozenset({"range", "tl.range", "tl.static_range"})
_MESSAGES = frozenset({"tl.static_assert", "tl.device_assert"})
_FLOAT_WORDS = frozenset({"inf", "-inf", "+inf", "infinity", "-infinity", "nan"})
_BINARY = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.LShift,
    ast.RShift,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
)
_COMPARE = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot)


class Refused(Exception):
    """The gate's own signal: the line (0 when there is none) and the reason. Never leaves the gate."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line, self.reason = line, reason


@dataclass(frozen=True)
class Names:
    """What the file defines: helper functions with their parameters, and constants."""

    helpers: Mapping[str, tuple[str, ...]]
    constants: frozenset[str]


def local_names(function: ast.FunctionDef) -> dict[str, int]:
    """Every name that the function binds, parameters included, with the first line."""
    found: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            found.setdefault(node.arg, node.lineno)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            found.setdefault(node.id, node.lineno)
    return found


def check_body(function: ast.FunctionDef, names: Names) -> None:
    """Raises Refused at the first thing that is not on the list."""
    _Body(names, frozenset(local_names(function))).statements(function.body)


class _Body:
    def __init__(self, names: Names, local: frozenset[str]) -> None:
        self.names, self.local = names, local

    # ------------------------------------------------------------ statements

    def statements(self, body: list[ast.stmt]) -> None:
        for node in body:
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Pass():
                pass
            case ast.Expr(value=ast.Constant(value=str())):
                pass
            case ast.Expr(value=ast.Call() as call):
                self.value(call)
            case ast.Return(value=value):
                if value is not None:
                    self.value(value)
            case ast.Assign(targets=[target], value=value):
                self.target(target)
                self.value(value)
            case ast.AnnAssign(target=ast.Name(), annotation=annotation, value=ast.expr() as value):
                if short(annotation) != "tl.constexpr":
                    raise Refused(node.lineno, "the only annotation of a variable is tl.constexpr")
                self.value(value)
            case ast.AugAssign(target=ast.Name(), op=op, value=value):
                self.operator(node, op, value)
                self.value(value)
            case ast.If(test=test, body=body, orelse=orelse):
                self.value(test)
                self.statements(body)
                self.statements(orelse)
            case ast.While(test=test, body=body, orelse=[]):
                self.value(test)
                self.statements(body)
            case ast.For(target=ast.Name(), iter=ast.Call() as iterator, body=body, orelse=[]):
                if self.called(iterator) not in _LOOPS:
                    raise Refused(node.lineno, "a loop runs over range, tl.range or tl.static_range")
                self.value(iterator, loop=True)
                self.statements(body)
            case ast.Import() | ast.ImportFrom():
                raise Refused(node.lineno, "an import inside a function is refused")
            case _:
                raise Refused(
                    node.lineno,
                    f"{type(node).__name__} is refused in a kernel; allowed are assignments to names, calls, "
                    "if, for over range, while, return",
                )

    def target(self, node: ast.expr) -> None:
        if isinstance(node, (ast.Tuple, ast.List)):
            for item in node.elts:
                self.target(item)
        elif not isinstance(node, ast.Name):
            raise Refused(node.lineno, "only names are assigned to; memory is written with tl.store")

    # ------------------------------------------------------------ expressions

    def value(self, node: ast.expr, loop: bool = False) -> None:
        match node:
            case ast.Constant():
                self.constant(node)
            case ast.Name(id=name):
                self.name(node, name)
            case ast.Attribute():
                self.attribute(node)
            case ast.Call():
                self.call(node, loop)
            case ast.BinOp(left=left, op=op, right=right):
                self.operator(node, op, right, left)
                self.value(left)
                self.value(right)
            case ast.UnaryOp(operand=operand):
                self.value(operand)
            case ast.BoolOp(values=values):
                for item in values:
                    self.value(item)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, _COMPARE):
                flag = isinstance(op, (ast.Eq, ast.NotEq))
                for side in (left, right):
                    if not (flag and _is_flag_word(side)):
                        self.value(side)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                for item in (test, body, orelse):
                    self.value(item)
            case ast.Subscript(value=value, slice=index):
                if isinstance(value, ast.Constant):
                    raise Refused(node.lineno, "a literal is not indexed")
                self.value(value)
                self.index(index)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                for item in items:
                    self.value(item)
            case ast.Compare():
                raise Refused(node.lineno, "a comparison has two sides and none of `in`, `not in`: join two with `&`")
            case _:
                raise Refused(node.lineno, f"{type(node).__name__} is refused in a kernel: `{short(node)}`")

    def constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, str) and value not in WORDS:
            hint = ": `evict_first` is allowed" if value == "evict_last" else ""
            raise Refused(node.lineno, f"the string {value[:40]!r} is not one that a kernel may use{hint}")
        if not isinstance(value, (str, int, float, bool)) and value is not None:
            raise Refused(node.lineno, f"{type(value).__name__} literals are refused")

    def name(self, node: ast.expr, name: str) -> None:
        if name in self.local or name in self.names.constants or name in self.names.helpers:
            return
        if name in ("tl", "triton", "libdevice"):
            raise Refused(node.lineno, f"{name} is only used as {name}.NAME")
        raise Refused(node.lineno, f"{name!r} is not bound by this kernel")

    def index(self, node: ast.expr) -> None:
        match node:
            case ast.Tuple(elts=items):
                for item in items:
                    self.index(item)
            case ast.Slice(lower=lower, upper=upper, step=step):
                for item in (lower, upper, step):
                    if item is not None:
                        self.value(item)
            case _:
                self.value(node)

    def operator(self, node: ast.AST, op: ast.operator, right: ast.expr, left: ast.expr | None = None) -> None:
        if not isinstance(op, _BINARY):
            raise Refused(node.lineno, "`@` is refused: use tl.dot")
        for side in (left, right):
            if isinstance(side, (ast.List, ast.Tuple)) or _is_text(side):
                raise Refused(node.lineno, "arithmetic on lists, tuples or strings is refused")
        if isinstance(op, ast.Pow):
            # Two constants are folded by Python itself while compiling: keep that small.
            number = isinstance(right, ast.Constant) and isinstance(right.value, (int, float))
            small = number and right.value <= MAX_POWER
            nested = left is not None and any(isinstance(n, ast.Pow) for n in ast.walk(left))
            if not small or nested or left is None:
                raise Refused(node.lineno, f"`**` takes a literal power of at most {MAX_POWER}; else use tl.exp2")

    def attribute(self, node: ast.Attribute) -> None:
        base = _namespace(node.value)
        if base is not None:
            if base not in ("tl", "triton.language") or node.attr not in DTYPES:
                raise Refused(node.lineno, _refused_member(base, node.attr, "as a value"))
            return
        if node.attr not in ATTRIBUTES:
            raise Refused(node.lineno, f"the attribute .{node.attr[:40]} is refused; allowed are {_list(ATTRIBUTES)}")
        self.value(node.value)

    # ------------------------------------------------------------ calls

    def called(self, node: ast.Call) -> str:
        """The dotted name of what is called when it is not a method; `triton.language` reads as `tl`."""
        if isinstance(node.func, ast.Name):
            return node.func.id
        base = _namespace(node.func.value) if isinstance(node.func, ast.Attribute) else None
        return f"{'tl' if base == 'triton.language' else base}.{node.func.attr}" if base else ""

    def call(self, node: ast.Call, loop: bool) -> None:
        if any(k.arg is None for k in node.keywords) or any(isinstance(a, ast.Starred) for a in node.args):
            raise Refused(node.lineno, "arguments are written out, without * and **")
        name = self.called(node)
        if isinstance(node.func, ast.Name):
            self.named_call(node, name, loop)
        elif name:
            self.member_call(node, name, loop)
        elif isinstance(node.func, ast.Attribute):
            self.method_call(node)
        else:
            raise Refused(node.lineno, f"`{short(node.func)}` is not something that a kernel may call")
        arguments = [*node.args, *(k.value for k in node.keywords)]
        for argument in arguments:
            message = name in _MESSAGES and _is_text(argument)
            if message and len(argument.value) > MAX_TEXT:
                raise Refused(argument.lineno, f"a message has at most {MAX_TEXT} characters")
            if not message and not (name == "float" and _is_text(argument)):
                self.value(argument)

    def named_call(self, node: ast.Call, name: str, loop: bool) -> None:
        if name in self.names.helpers and name not in self.local:
            self.arguments(node, name, self.names.helpers[name])
            return
        if name in self.local or name not in BUILTINS or name in self.names.constants:
            raise Refused(
                node.lineno,
                f"{name[:40]}(...) is refused; a kernel calls tl functions, its own jit functions, " + _list(BUILTINS),
            )
        if name == "range" and not loop:
            raise Refused(node.lineno, "range is only used in `for ... in range(...)`")
        if name == "float":
            words = [a for a in node.args if _is_text(a)]
            if len(node.args) != 1 or any(a.value.lower() not in _FLOAT_WORDS for a in words):
                raise Refused(node.lineno, "float takes a number, 'inf', '-inf' or 'nan'")
        if node.keywords:
            raise Refused(node.lineno, f"{name} takes no keywords")

    def member_call(self, node: ast.Call, name: str, loop: bool) -> None:
        base, _, member = name.rpartition(".")
        if base == "triton" and member in HOST_FUNCTIONS:
            self.arguments(node, name, ("x", "y"))
        elif base.endswith("libdevice") and member in LIBDEVICE:
            if node.keywords:
                raise Refused(node.lineno, f"{name} takes no keywords here")
        elif base == "tl.math" and member in MATH_FUNCTIONS:
            self.arguments(node, name, MATH_FUNCTIONS[member])
        elif base == "tl" and member in functions(installed()):
            if name in _LOOPS and not loop:
                raise Refused(node.lineno, f"{name} is only used in `for ... in {name}(...)`")
            self.arguments(node, name, functions(installed())[member], variadic=member in VARIADIC)
        else:
            raise Refused(node.lineno, _refused_member(base, member, "as a call"))

    def arguments(self, node: ast.Call, name: str, params: tuple[str, ...], variadic: bool = False) -> None:
        unknown = [k.arg for k in node.keywords if k.arg not in params]
        if unknown:
            raise Refused(node.lineno, f"{name} has no argument {unknown[0]!r}; it takes {', '.join(params) or 'none'}")
        if len(node.args) > len(params) and not variadic:
            raise Refused(node.lineno, f"{name} takes at most {len(params)} arguments")

    def method_call(self, node: ast.Call) -> None:
        method = node.func.attr
        if method not in METHODS:
            raise Refused(node.lineno, f"the method .{method[:40]}(...) is refused; use a tl function")
        unknown = [k.arg for k in node.keywords if k.arg not in KEYWORDS_OF_METHODS]
        if unknown:
            raise Refused(node.lineno, f".{method} has no argument {unknown[0]!r}")
        if _is_text(node.func.value):
            raise Refused(node.lineno, "a string has no methods here")
        self.value(node.func.value)


def _namespace(node: ast.expr) -> str | None:
    """The dotted name when the node is one of the modules that a kernel may reach into."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    dotted = ".".join([node.id, *reversed(parts)])
    return dotted if dotted in _NAMESPACES else None


def _refused_member(base: str, member: str, how: str) -> str:
    if base in ("tl", "triton.language"):
        if member in functions(installed()) or member in DTYPES:
            return f"tl.{member} is refused {how}"
        return f"tl.{member[:40]} is refused: {refusal(member)}"
    if base == "triton":
        return f"triton.{member[:40]} is refused inside a kernel; allowed are triton.cdiv, triton.next_power_of_2"
    return f"{base}.{member[:40]} is refused {how}"


def _is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_flag_word(node: ast.expr) -> bool:
    """A string that a constexpr is compared with, as in `if ACTIVATION == "gelu"`: it can only give a bool."""
    return _is_text(node) and len(node.value) <= MAX_TEXT


def _list(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def short(node: ast.AST) -> str:
    """The node's source on one line of at most 60 characters, for a reason."""
    try:
        text = ast.unparse(node)
    except ValueError:  # an f-string that Python 3.11 cannot write back
        return type(node).__name__
    return text if len(text) <= 60 else text[:57] + "..."
