"""The tree keeps the design's promises: layers, no cycles, small files, narrow excepts, an instant --help."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "kernelsearch"
LAYERS = {
    "": (
        "core", "kernel", "ir", "compile record tasks tune verify", "evaluate", "measure propose", "worker",
        "export trial", "cluster", "env search", "report", "api train", "graphs", "cli",
        "__main__",
    ),
    "kernel": (
        "descriptors expressions language literals targets", "gluon unrolling", "dialects", "source",
        "blocks dtype_tests launch space", "target_space",
    ),
    "tasks": (
        "differentiation idle_code module narrowing reach shrink tile_uses", "named_function seed shipped space task",
        "grids tried_inputs",
        "facts forms",
        "native", "bare gradient kernelbench", "load",
    ),
    "record": (
        "sqlite_library", "migrations rows run_locks", "confirmation_rows database_file",
        "store", "export_queries family_tree merge plan_rows region_rows steps stored_trials queries",
    ),
    "compile": ("code complaints elf known tensor_maps", "ir marks ptx", "blocks ttgir ttir", "amdgcn", "build"),
    "evaluate": (
        "faults libdevice", "arithmetic sums", "buffers", "memory", "accesses", "steps", "launch", "counting",
        "offsets places",
    ),
    "verify": (
        "bits dispatch pieces regime_words scalars",
        "blind_spots body cures domains exactness library precision scales tolerance widest",
        "planted", "drawn_integers regimes",
        "error_samples terms", "sites",
        "expectation", "gate half_roundings judge", "rows",
    ),
    "measure": ("static_model timing", "hints"),
    "propose": (
        "analysis bandit contract engines history", "edits grammar", "models typed_edits", "inductor mix",
        "proposers",
    ),
    "worker": ("isolation messages", "launcher processes child", "judging", "gpu", "roles"),
    "trial": (
        "compile_cache evaluator fewer_stages rejection run_jobs shared_state", "bench", "answers bound_candidate",
        "shape_session hints unrun_blocks", "confirmation estimate profile",
        "without_gpu", "race_look", "with_gpu",
        "coverage evaluation",
        "first_asks own_configs referee reuse",
    ),
    "search": (
        "contract first_kernel history pending runs steps", "candidates facts population strategies",
        "between near_estimates", "loop",
        "planned_run settling", "study",
    ),
    "export": (
        "choose launches layouts ship", "examine", "exported_task", "tables",
        "binaries engine_tables task_modules texts", "function_form", "package",
    ),
    "cluster": (
        "cards crew node_probe task_files", "holder", "ray_actors", "remote_bench", "machines",
    ),
    "graphs": (
        "regions", "task_text", "replace", "watch", "costs", "collect region_report", "model_options schedule",
        "apply model_package",
    ),
    "api": ("optimize_options results", "boards measurement optimization verification"),
    "report": (
        "tables", "findings hint_report lineage model_costs study_text terminal",
        "kernel_file leaderboard_text progress study_facts summary", "leaderboard", "html",
    ),
}  # fmt: skip
"""Layers of the package and of its large rooms, lowest first; modules in one string may not import each other."""
MAX_LINES = 400
LAZY = ("torch", "triton", "optuna", "sqlite_utils", "numpy")

SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE\s+FROM|WITH\s+\w+\s+AS)\s")


@cache
def modules():
    """The tree of every module of the package, by dotted name without the package's own."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[0] in ("_strategies", "_studies"):
            continue
        found[".".join(parts).removesuffix("__init__").rstrip(".")] = path
    return found


@cache
def tree_of(path):
    return ast.parse(path.read_text())


@cache
def imports(module):
    """The package's own modules that a module imports, at its top or inside its functions."""
    found = set()
    for node in ast.walk(tree_of(modules()[module])):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively in line {node.lineno}"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "kernelsearch":
                inner = name.removeprefix("kernelsearch").lstrip(".")
                found.add(inner if inner in modules() else inner.rpartition(".")[0])
    return found


def room_of(module):
    return module.split(".")[0]


def check_layers(room):
    """Every pair of a module and what it imports above its own layer of a room (`""`: the package)."""
    rank = {name: number for number, layer in enumerate(LAYERS[room]) for name in layer.split()}
    prefix = f"{room}." if room else ""
    wrong = []
    for module in modules():
        place = module.removeprefix(prefix).split(".")[0]
        if not module or not module.startswith(prefix):
            continue
        assert place in rank, f"{module} has no layer: add {place} to LAYERS[{room!r}]"
        for other in imports(module):
            if other.startswith(prefix) and other != prefix.rstrip("."):
                target = other.removeprefix(prefix).split(".")[0]
                if target and target != place and rank[target] >= rank[place]:
                    wrong.append(f"{module} imports {other}")
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("room", LAYERS)
def test_imports_point_down_only(room):
    assert not check_layers(room)


def test_every_large_room_has_layers():
    sizes = Counter(room_of(m) for m in modules() if m)
    assert {room for room, size in sizes.items() if size > 8} <= {*LAYERS, "core", "tune", "cli"}


def test_no_import_cycle():
    done, path = set(), []

    def visit(module):
        assert module not in path, f"cycle: {' -> '.join([*path[path.index(module) :], module])}"
        if module in done:
            return
        path.append(module)
        for other in sorted(imports(module)):
            if other and other != module:
                visit(other)
        done.add(path.pop())

    for module in sorted(modules()):
        visit(module)


@pytest.mark.parametrize("module", sorted(modules()))
def test_a_file_is_short_and_begins_with_a_sentence(module):
    text = modules()[module].read_text()
    assert len(text.splitlines()) <= MAX_LINES
    first = (ast.get_docstring(tree_of(modules()[module])) or "").split("\n\n")[0]
    assert first and first.rstrip()[-1] in ".:;", f"{module}: its first line is no sentence: {first!r}"


def test_broad_excepts_only_in_the_workers_child():
    """`except BaseException` may clean up and raise again; nothing but the worker's child may swallow.

    `plugins.blame` raises what a user's own module raised as the project's own error.
    """
    broad = []
    for module, path in modules().items():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ExceptHandler) and module != "worker.child":
                names = "Exception" if node.type is None else ast.unparse(node.type)
                wide = {"Exception", "BaseException"} & set(names.strip("()").replace(" ", "").split(","))
                blamed = module == "core.plugins"
                again = any(isinstance(n, ast.Raise) and (n.exc is None or blamed) for n in ast.walk(node))
                if wide and not again:
                    broad.append(f"{module}:{node.lineno}")
    assert not broad


def test_modes_that_see_operations_do_not_import_the_compiler():
    """The first call of any other `TorchDispatchMode` imports torch's compiler, which takes 1 to 6 s."""
    users = [m for m, path in modules().items() if "TorchDispatchMode" in path.read_text()]
    assert users == ["verify.dispatch"]


def test_help_imports_nothing_heavy():
    code = (
        "import json, sys\nfrom click.testing import CliRunner\nfrom kernelsearch.cli import main\n"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0\n"
        f"print(json.dumps([m for m in {LAZY!r} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_reading_a_database_imports_neither_torch_nor_pandas():
    """`leaderboard`, `lineage` and `show` answer in half a second: torch takes 2 s, pandas 1.3 s."""
    code = (
        "import json, sys\nfrom kernelsearch.record.store import Store\n"
        "from kernelsearch.report import kernel_file, leaderboard, lineage, terminal\n"
        "print(json.dumps([m for m in ('torch', 'triton', 'pandas') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_a_search_without_a_gpu_imports_neither_torch_nor_triton():
    """Its workers do, beside it: on few processors a command is seconds quicker without."""
    code = (
        "import sys, kernelsearch.api.optimization, kernelsearch.api.verification, kernelsearch.cli.run_try\n"
        "from kernelsearch.trial.bench import choose_target\n"
        "choose_target('h100')\n"
        "sys.exit(' '.join({'torch', 'triton'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not done.stderr.strip(), done.stderr


def test_only_the_stages_that_use_them_import_heavy_packages_at_their_top():
    """torch, triton and the like at a module's top only where processes that import it need them anyway."""
    allowed = {
        "optuna": {"tune"}, "sqlite_utils": {"record"},
        "torch": {"tasks", "verify", "measure", "evaluate", "worker", "export", "graphs"},
        "triton": {"tasks", "worker", "export"},
        "numpy": {"tasks", "verify", "measure", "evaluate", "worker", "tune"},
    }  # fmt: skip
    for module, path in modules().items():
        for node in tree_of(path).body:
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else ([node.module] if isinstance(node, ast.ImportFrom) else [])
            )
            for name in names:
                package = name.split(".")[0]
                # the registry imports an engine when a spec asks for it, and `train` its trainer when it begins
                late = module.startswith("propose.engines.") or module == "train.ranking"
                assert package not in allowed or late or room_of(module) in allowed[package], f"{module} imports {name}"


def test_no_two_test_files_have_one_name():
    """pytest imports them by their names alone."""
    names = [path.name for path in (ROOT.parent / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names)), sorted({n for n in names if names.count(n) > 1})


def test_only_the_record_holds_sql():
    """Other rooms call functions of record/ that are named by what they return."""
    with_sql = set()
    for module, path in modules().items():
        strings = (n.value for n in ast.walk(tree_of(path)) if isinstance(n, ast.Constant))
        if room_of(module) != "record" and any(isinstance(s, str) and SQL.match(s) for s in strings):
            with_sql.add(module)
    assert not with_sql


def test_no_class_name_occurs_twice():
    places = {}
    for module, path in modules().items():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert not {name: found for name, found in places.items() if len(found) > 1}


@pytest.mark.parametrize("folder", ["studies", "strategies", "scripts"])
def test_what_is_imported_from_the_package_is_there(folder):
    """No test runs every study: one was broken for months."""
    missing = []
    for path in (ROOT.parent / folder).rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == ROOT.name:
                module = importlib.import_module(node.module)
                names = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                lacking = [n for n in names if not importlib.util.find_spec(f"{node.module}.{n}")]
                missing += [f"{path.relative_to(ROOT.parent)}: {node.module}.{name}" for name in lacking]
    assert not missing


def list_texts(module):
    """The docstrings of a module, those of its constants among them."""
    return [
        node.value.value
        for node in ast.walk(tree_of(modules()[module]))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def test_docstrings_name_only_modules_and_answers_that_exist():
    files = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py")}
    classes = {node.name for p in files for node in ast.walk(tree_of(ROOT / p)) if isinstance(node, ast.ClassDef)}
    unknown = []
    for module in modules():
        texts = "\n".join(list_texts(module))
        named = {n for n in re.findall(r"`(\w+/[\w/]+\.py)`", texts) if (ROOT / n.partition("/")[0]).is_dir()}
        unknown += [f"{module}: {name}" for name in sorted(named - files)]
        if module.startswith("worker.messages"):
            unknown += [name for name in re.findall(r"answered with ([A-Z]\w+)", texts) if name not in classes]
    assert not unknown
