"""The two languages of kernel files: what each calls its functions, and which of them the gate lets through."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property

from kernelsearch.core.parsing import read_dotted
from kernelsearch.kernel import gluon, language


@dataclass(frozen=True)
class Dialect:
    """What a kernel file in one language may use.

    alias is the module of its functions, jit its decorator, header the imports of a compiled text. imports are those
    that a file may write, and importable the names that it may import one by one from a module. modules may be reached
    into. functions are by called name, with their parameters; without_keywords take none by name.
    """

    alias: str
    jit: str
    header: str
    imports: frozenset[str]
    modules: frozenset[str]
    functions: Mapping[str, tuple[str, ...]]
    attributes: frozenset[str]
    methods: frozenset[str]
    importable: tuple[str, frozenset[str]] = ("", frozenset())
    without_keywords: frozenset[str] = frozenset()

    @cached_property
    def loops(self) -> frozenset[str]:
        """What a `for` may run over."""
        return frozenset({"range"}.union({f"{self.alias}.range", f"{self.alias}.static_range"} & self.functions.keys()))

    @cached_property
    def reserved(self) -> frozenset[str]:
        """Names of modules and imported functions, which a kernel may not bind."""
        return frozenset(name for name in self.modules if "." not in name) | self.importable[1]

    def allows_import(self, node: ast.stmt) -> bool:
        """True for an import that a kernel file may have."""
        module, names = self.importable
        if isinstance(node, ast.ImportFrom) and node.module == module and not node.level:
            return all(alias.name in names and alias.asname is None for alias in node.names)
        return isinstance(node, (ast.Import, ast.ImportFrom)) and ast.unparse(node) in self.imports

    def read_name(self, node: ast.expr) -> str | None:
        """The dotted name of a module that a kernel may reach into, None for any other node."""
        dotted = ".".join(read_dotted(node))
        return dotted if dotted in self.modules else None


_TRITON_IMPORTS = (
    "import triton|import triton.language as tl|from triton import language as tl"
    "|from triton.language.extra import libdevice"
)
_LIBDEVICE = ("libdevice", "tl.extra.libdevice", "tl.extra.cuda.libdevice")
_HOST: Mapping[str, tuple[str, ...]] = {f"triton.{name}": ("x", "y") for name in language.HOST_FUNCTIONS}


def find_dialect(name: str) -> Dialect:
    """The language of that name, `triton` or `gluon`, as the installed Triton has it."""
    return _make_dialect(name, language.installed_version())


@cache
def _make_dialect(name: str, version: tuple[int, int]) -> Dialect:
    return _make_gluon() if name == "gluon" else _make_triton(version)


def _make_triton(version: tuple[int, int]) -> Dialect:
    known = language.functions_of(version)
    functions = {f"tl.{name}": parameters for name, parameters in known.items()}
    functions |= {f"tl.math.{name}": parameters for name, parameters in language.MATH_FUNCTIONS.items()}
    arithmetic = frozenset(f"{place}.{name}" for place in _LIBDEVICE for name in language.LIBDEVICE)
    return Dialect(
        alias="tl",
        jit="triton.jit",
        header="import triton\nimport triton.language as tl",
        imports=frozenset(_TRITON_IMPORTS.split("|")),
        modules=frozenset("tl tl.math tl.extra tl.extra.cuda triton triton.language".split()).union(_LIBDEVICE),
        functions={**functions, **_HOST},
        attributes=language.ATTRIBUTES,
        methods=language.METHODS,
        without_keywords=arithmetic,
    )


def _make_gluon() -> Dialect:
    return Dialect(
        alias="gl",
        jit="gluon.jit",
        header=gluon.HEADER,
        imports=frozenset(gluon.HEADER.split("\n")),
        modules=frozenset({"gl", "gluon", "triton", *(n.partition(".")[0] for n in gluon.HOPPER if "." in n)}),
        functions={**gluon.FUNCTIONS, **_HOST},
        attributes=gluon.ATTRIBUTES,
        methods=gluon.METHODS,
        importable=(gluon.MODULE, frozenset(gluon.IMPORTED)),
    )
