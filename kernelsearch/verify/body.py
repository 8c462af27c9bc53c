"""The gate's whitelist for the inside of a jit function: statements, expressions and calls."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeGuard

from kernelsearch.kernel import language
from kernelsearch.kernel.dialects import Dialect
from kernelsearch.kernel.unrolling import fold

MAX_INTEGER = 2**64
MAX_POWER = 64
MAX_FLOAT_POWER = 1024

_MESSAGES = ("static_assert", "device_assert")
_FLOAT_WORDS = frozenset({"inf", "-inf", "+inf", "infinity", "-infinity", "nan"})
_BINARY = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_BITWISE = (ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor)
_COMPARE = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot)


class GateRefusal(Exception):
    """The gate's own signal: the line (0 if there is none) and the reason. It never leaves the gate."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line, self.reason = line, reason


def refuse(node: ast.expr | ast.stmt | ast.arg, reason: str) -> NoReturn:
    """Raises GateRefusal at the node's line."""
    raise GateRefusal(node.lineno, reason)


@dataclass(frozen=True)
class Names:
    """The names of the file: its language's, helper functions with their parameters, and constants."""

    dialect: Dialect
    helpers: Mapping[str, tuple[str, ...]]
    constants: frozenset[str]


def collect_local_names(function: ast.FunctionDef) -> dict[str, int]:
    """Every name that the function binds, parameters included, with the first line."""
    lines: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            lines.setdefault(node.arg, node.lineno)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            lines.setdefault(node.id, node.lineno)
    return lines


def check_body(function: ast.FunctionDef, names: Names) -> None:
    """Raises GateRefusal at the first thing that is not on the list."""
    _Checker(names, frozenset(collect_local_names(function))).check_statements(function.body)


class _Checker:
    """Checks the parts of one function's body; every method raises GateRefusal."""

    def __init__(self, names: Names, local: frozenset[str]) -> None:
        self.names, self.local, self.dialect = names, local, names.dialect
        self.alias = names.dialect.alias
        self.messages = frozenset(f"{self.alias}.{name}" for name in _MESSAGES)

    # ------------------------------------------------------------ statements

    def check_statements(self, body: list[ast.stmt]) -> None:
        for node in body:
            self.check_statement(node)

    def check_statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Pass() | ast.Expr(value=ast.Constant(value=str())) | ast.Return(value=None):
                pass
            case ast.Expr(value=ast.Call() as value) | ast.Return(value=ast.expr() as value):
                self.check_value(value)
            case ast.Assign(targets=[target], value=value):
                self.check_target(target)
                self.check_value(value)
            case ast.AnnAssign(target=ast.Name(), annotation=annotation, value=ast.expr() as value):
                if shorten_source(annotation) != f"{self.alias}.constexpr":
                    refuse(node, f"the only annotation of a variable is {self.alias}.constexpr")
                self.check_value(value)
            case ast.AugAssign(target=ast.Name(), op=op, value=value):
                self.check_operator(node, op, value)
                self.check_value(value)
            case ast.If(test=test, body=body, orelse=orelse):
                self.check_value(test)
                self.check_statements(body)
                self.check_statements(orelse)
            case ast.While(test=test, body=body, orelse=[]):
                self.check_value(test)
                self.check_statements(body)
            case ast.For(target=ast.Name(), iter=ast.Call() as iterator, body=body, orelse=[]):
                if self.called_name(iterator) not in self.dialect.loops:
                    refuse(node, f"a loop runs over {' or '.join(sorted(self.dialect.loops))}")
                self.check_value(iterator, loop=True)
                self.check_statements(body)
            case ast.Import() | ast.ImportFrom():
                refuse(node, "an import inside a function is refused")
            case _:
                allowed = "assignments to names, calls, if, for over range, while, return"
                refuse(node, f"{type(node).__name__} is refused in a kernel; allowed are {allowed}")

    def check_target(self, node: ast.expr) -> None:
        if isinstance(node, (ast.Tuple, ast.List)):
            for item in node.elts:
                self.check_target(item)
        elif not isinstance(node, ast.Name):
            refuse(node, f"only names are assigned to; memory is written with {self.alias}.store")

    # ------------------------------------------------------------ expressions

    def check_values(self, *nodes: ast.expr) -> None:
        for node in nodes:
            self.check_value(node)

    def check_value(self, node: ast.expr, loop: bool = False) -> None:
        match node:
            case ast.Constant():
                self.check_constant(node)
            case ast.Name(id=name):
                self.check_name(node, name)
            case ast.Attribute():
                self.check_attribute(node)
            case ast.Call():
                self.check_call(node, loop)
            case ast.BinOp(left=left, op=op, right=right):
                self.check_operator(node, op, right, left)
                self.check_values(left, right)
            case ast.UnaryOp(operand=operand):
                self.check_value(operand)
            case ast.BoolOp(values=items) | ast.Tuple(elts=items) | ast.List(elts=items):
                self.check_values(*items)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, _COMPARE):
                may_be_flag = isinstance(op, (ast.Eq, ast.NotEq))
                self.check_values(*(side for side in (left, right) if not (may_be_flag and _is_flag_word(side))))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.check_values(test, body, orelse)
            case ast.Subscript(value=value, slice=index):
                if isinstance(value, ast.Constant):
                    refuse(node, "a literal is not indexed")
                self.check_value(value)
                self.check_index(index)
            case ast.Compare():
                refuse(node, "a comparison has two sides and none of `in`, `not in`: join two with `&`")
            case _:
                refuse(node, f"{type(node).__name__} is refused in a kernel: `{shorten_source(node)}`")

    def check_constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, str) and value not in language.WORDS:
            hint = ": `evict_first` is allowed" if value in language.REFUSED_WORDS else ""
            refuse(node, f"the string {value[:40]!r} is not one that a kernel may use{hint}")
        if not isinstance(value, (str, int, float, bool)) and value is not None:
            refuse(node, f"{type(value).__name__} literals are refused")

    def check_name(self, node: ast.expr, name: str) -> None:
        if name in self.local or name in self.names.constants or name in self.names.helpers:
            return
        if name in self.dialect.reserved:
            how = f"{name}.NAME" if name in self.dialect.modules else f"{name}(...)"
            refuse(node, f"{name} is only used as {how}")
        refuse(node, f"{name!r} is not bound by this kernel")

    def check_index(self, node: ast.expr) -> None:
        match node:
            case ast.Tuple(elts=items):
                for item in items:
                    self.check_index(item)
            case ast.Slice(lower=lower, upper=upper, step=step):
                self.check_values(*(item for item in (lower, upper, step) if item is not None))
            case _:
                self.check_value(node)

    def check_operator(
        self, node: ast.expr | ast.stmt, op: ast.operator, right: ast.expr, left: ast.expr | None = None
    ) -> None:
        if not isinstance(op, (*_BINARY, *_BITWISE)):
            refuse(node, "`@` is refused: use tl.dot")
        for side in (left, right):
            joined = isinstance(side, ast.Tuple) and isinstance(op, ast.Add)
            if (isinstance(side, (ast.List, ast.Tuple)) and not joined) or _is_text(side):
                refuse(node, "arithmetic on lists, tuples or strings is refused; two tuples are joined with `+`")
        if isinstance(op, ast.Pow):  # Python folds two constants while it compiles: keep the result small
            base, power = (None if side is None else fold(side, {}) for side in (left, right))
            most = MAX_FLOAT_POWER if isinstance(base, float) else MAX_POWER
            nested = left is not None and any(isinstance(n, ast.Pow) for n in ast.walk(left))
            small = abs(power) <= most if power is not None else base == 2 and _names_any(right)  # as `1 << bits`
            if not small or nested or left is None:
                refuse(
                    node,
                    f"`**` takes a literal power of at most {MAX_POWER}, or the base 2; else use {self.alias}.exp2",
                )

    def check_attribute(self, node: ast.Attribute) -> None:
        base = self.dialect.read_name(node.value)
        if base is None and self.is_member(node):
            return
        if base is not None:
            if base not in (self.alias, "triton.language") or node.attr not in language.DTYPES:
                refuse(node, self.explain_member(base, node.attr, "as a value"))
            return
        if node.attr not in self.dialect.attributes:
            allowed = _list(self.dialect.attributes)
            refuse(node, f"the attribute .{node.attr[:40]} is refused; allowed are {allowed}")
        self.check_value(node.value)

    # ------------------------------------------------------------ calls

    def called_name(self, node: ast.Call) -> str:
        """The dotted name of a called function, empty for a method; `triton.language` reads as `tl`."""
        if isinstance(node.func, ast.Name):
            return node.func.id
        if isinstance(node.func, ast.Attribute) and (base := self.dialect.read_name(node.func.value)):
            return f"{'tl' if base == 'triton.language' else base}.{node.func.attr}"
        return ""

    def check_call(self, node: ast.Call, loop: bool) -> None:
        if any(k.arg is None for k in node.keywords) or any(isinstance(a, ast.Starred) for a in node.args):
            refuse(node, "arguments are written out, without * and **")
        name = self.called_name(node)
        if isinstance(node.func, ast.Name):
            self.check_named_call(node, name, loop)
        elif name:
            self.check_member_call(node, name, loop)
        elif isinstance(node.func, ast.Attribute):
            self.check_method_call(node, node.func)
        else:
            refuse(node, f"`{shorten_source(node.func)}` is not something that a kernel may call")
        for argument in (*node.args, *(k.value for k in node.keywords)):
            message = name in self.messages and _is_text(argument)
            if message and not _is_flag_word(argument):
                refuse(argument, f"a message has at most {language.MAX_TEXT} characters")
            handed_on = name in self.names.helpers and is_word(argument)
            if not message and not handed_on and not (name == "float" and _is_text(argument)):
                self.check_value(argument)

    def check_named_call(self, node: ast.Call, name: str, loop: bool) -> None:
        if name in self.names.helpers and name not in self.local:
            self.check_arguments(node, name, self.names.helpers[name])
            return
        if name in self.dialect.functions:
            self.check_arguments(node, name, self.dialect.functions[name])
            return
        if name in self.local or name not in language.BUILTINS or name in self.names.constants:
            allowed = f"{self.alias} functions, its own jit functions, {_list(language.BUILTINS)}"
            refuse(node, f"{name[:40]}(...) is refused; a kernel calls {allowed}")
        if name == "range" and not loop:
            refuse(node, "range is only used in `for ... in range(...)`")
        if name == "float":
            words = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            if len(node.args) != 1 or any(word.lower() not in _FLOAT_WORDS for word in words):
                refuse(node, "float takes a number, 'inf', '-inf' or 'nan'")
        if node.keywords:
            refuse(node, f"{name} takes no keywords")

    def check_member_call(self, node: ast.Call, name: str, loop: bool) -> None:
        base, _, member = name.rpartition(".")
        if name in self.dialect.without_keywords:
            if node.keywords:
                refuse(node, f"{name} takes no keywords here")
        elif name in self.dialect.functions:
            if name in self.dialect.loops and not loop:
                refuse(node, f"{name} is only used in `for ... in {name}(...)`")
            variadic = base == self.alias and member in language.VARIADIC
            self.check_arguments(node, name, self.dialect.functions[name], variadic=variadic)
        else:
            refuse(node, self.explain_member(base, member, "as a call"))

    def check_arguments(self, node: ast.Call, name: str, params: tuple[str, ...], variadic: bool = False) -> None:
        unknown = [k.arg for k in node.keywords if k.arg not in params]
        if unknown:
            refuse(node, f"{name} has no argument {unknown[0]!r}; it takes {', '.join(params) or 'none'}")
        if len(node.args) > len(params) and not variadic:
            refuse(node, f"{name} takes at most {len(params)} arguments")

    def check_method_call(self, node: ast.Call, function: ast.Attribute) -> None:
        method = function.attr
        if method not in self.dialect.methods:
            refuse(node, f"the method .{method[:40]}(...) is refused; use a {self.alias} function")
        unknown = [k.arg for k in node.keywords if k.arg not in language.KEYWORDS_OF_METHODS]
        if unknown:
            refuse(node, f".{method} has no argument {unknown[0]!r}")
        if _is_text(function.value):
            refuse(node, "a string has no methods here")
        self.check_value(function.value)

    # ------------------------------------------------------------ members of modules

    def is_member(self, node: ast.Attribute) -> bool:
        """True for `tl.NAME.MEMBER` as in `language.MEMBERS`."""
        owner = node.value
        if not isinstance(owner, ast.Attribute):
            return False
        known = f"{owner.attr}.{node.attr}" in language.MEMBERS
        return known and self.dialect.read_name(owner.value) in ("tl", "triton.language")

    def explain_member(self, base: str, member: str, how: str) -> str:
        """Why `base.member` is refused, with what is allowed instead."""
        if base in (self.alias, "triton.language"):
            if f"{self.alias}.{member}" in self.dialect.functions or member in language.DTYPES:
                return f"{self.alias}.{member} is refused {how}"
            why = language.explain_refusal(member) if self.alias == "tl" else "it is not in the list of Gluon functions"
            return f"{self.alias}.{member[:40]} is refused: {why}"
        if base == "triton":
            return f"triton.{member[:40]} is refused inside a kernel; allowed are triton.cdiv, triton.next_power_of_2"
        return f"{base}.{member[:40]} is refused {how}"


def _is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_flag_word(node: ast.expr) -> TypeGuard[ast.Constant]:
    """True if a constexpr may be compared with this string, as in `if ACTIVATION == "gelu"`: that only gives a bool."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= language.MAX_TEXT


def is_word(node: ast.expr) -> bool:
    """True if a parameter may have this string as its value."""
    return _is_flag_word(node) and node.value not in language.REFUSED_WORDS


def _names_any(node: ast.expr) -> bool:
    """Whether Python cannot fold it while it compiles; a power in it could make of small numbers a huge one."""
    parts = list(ast.walk(node))
    return any(isinstance(n, ast.Name) for n in parts) and not any(isinstance(n, ast.Pow) for n in parts)


def _list(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def shorten_source(node: ast.AST) -> str:
    """The node's source on one line of at most 60 characters, for a reason."""
    try:
        text = ast.unparse(node)
    except ValueError:  # an f-string that Python 3.11 cannot write back
        return type(node).__name__
    return text if len(text) <= 60 else text[:57] + "..."
