"""Writes a task file with Inductor's kernels as the seed: kernels, a launcher and a space that a person can read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import indent
from typing import Any

from kernelsearch.propose.analysis.device_functions import find_helpers
from kernelsearch.propose.inductor import attention, column_sums
from kernelsearch.propose.inductor.kernel_text import KernelText, read_kernel
from kernelsearch.propose.inductor.module_text import Allocation, KernelRun, ModuleText, read_module
from kernelsearch.tasks.module import SEED_LAUNCHER

MARK = "# ---- The first kernels: written by TorchInductor, made into plain Triton by kernelsearch."
PRODUCTS = re.compile(r"torch\.(mm|addmm|bmm|baddbmm)\(|\(attend\(|tl\.dot\(")
SLOW_PRODUCTS = (
    'float32 products have no tensor cores under PRECISION = "ieee": expect no gain over torch\'s library on them; '
    'PRECISION = "tf32" or "tf32x3", if that is precise enough, makes kernels of them'
)
"""What is said of a file with such products."""
LIMITED = "the kernels are right for"
"""How the comment begins on sizes that became numbers; the file is then right for these alone."""
WARPS = (1, 2, 4, 8, 16)
STAGES = (1, 2, 3, 4)
PER_WARP = (256, 512, 1024)
"""Elements of a row for one warp, where programs hold rows as a whole."""
LONG = 2048
"""An R0_BLOCK that Inductor tries for long rows only; they may like 8192 and 32 warps, which its own search reaches."""
ROW_TILE = 128
"""Elements of a first tile of rows: four for each lane of a warp."""
NEAR = 8
"""Elements between neighbours that still share much of what is loaded, as in windows that move by steps."""
_FRAME = re.compile(r"^class Runner:.*?(?=^    def call\()", re.DOTALL | re.MULTILINE)
"""What is the same in all of Inductor's modules, with names of its own."""
_MOVES = frozenset(("unsafe", "view", "clone", "expand", "permute", "squeeze", "unsqueeze", "reshape"))
"""Words of operations that compute nothing."""
_PREFIX = re.compile(r"triton_(?:red|per|poi|tem|for|mix|spl)_fused_*")


@dataclass(frozen=True)
class InductorSeed:
    """What is known of Inductor's work for a task.

    text is its module; arguments are the inputs of its `call`: parameters of the reference, or `self.NAME`. configs are
    those that Inductor itself would try, by kernel; symbols are the text's names of the shape's integers. form is the
    task file's; parameters are those of its reference; numbers are the positions of inputs that are Python numbers;
    dtype is that of all inputs, such as `torch.float32`, empty where they differ. products is true where matrix
    products and attention are kernels. hidden are expressions of the inputs, `{0}` and so on, for the sizes of one more
    argument of `call`, which is there for them alone.
    """

    text: str
    arguments: tuple[str, ...]
    configs: Mapping[str, Sequence[Mapping[str, int]]]
    symbols: Mapping[str, str]
    form: str
    parameters: tuple[str, ...]
    numbers: tuple[int, ...] = ()
    dtype: str = ""
    products: bool = False
    hidden: tuple[str, ...] = ()


def write_task_file(original: str, seed: InductorSeed) -> str:
    """The original's text, then kernels, launcher, and space. Raises NotConvertible."""
    module, kernels, names = read_seed(seed)
    configs = {k: list_configs(kernels[k], seed.configs[k]) for k in kernels}
    functions = list(_write_functions(kernels, configs))
    code = "\n\n\n".join(functions)
    parts = [
        original.rstrip(),
        f"{MARK}\n\nimport torch\n{list_imports(code)}",
        *find_helpers(code),
        code,
        _write_launcher(module, names, kernels, configs, seed),
        write_space(kernels, configs, len(kernels) > 1),
    ]
    return "\n\n\n".join(parts) + "\n"


def read_seed(seed: InductorSeed) -> tuple[ModuleText, dict[str, KernelText], dict[str, str]]:
    """(Inductor's module, its kernels as plain Triton, better names of the host's tensors). Raises NotConvertible."""
    module = read_module(_rename_symbols(seed), seed.numbers, seed.products)
    if seed.hidden:
        *arguments, carrier = module.arguments
        known = {f"{carrier}.shape[{i}]": text.format(*arguments) for i, text in enumerate(seed.hidden)}
        sizes = tuple((name, known.get(value, value)) for name, value in module.sizes)
        module = replace(module, arguments=tuple(arguments), sizes=sizes)
    module, summed = column_sums.launch_sums(module)
    names = _name_tensors(module, seed)
    kernels = _read_kernels(module, names)
    kernels |= {name: column_sums.sum_stores(kernels[name], positions) for name, positions in summed.items()}
    return module, kernels, names


def list_imports(code: str) -> str:
    """The import lines that kernels need."""
    libdevice = "\nfrom triton.language.extra import libdevice" if "libdevice." in code else ""
    return f"import triton\nimport triton.language as tl{libdevice}"


def _rename_symbols(seed: InductorSeed) -> str:
    """Inductor's text with the shape's own names in place of `s0`; a tensor may have such a name too."""
    text = seed.text
    code = re.sub(r"^ *#.*$|\.\w+", "", _FRAME.sub("", text), flags=re.MULTILINE)
    taken = " ".join([code, *seed.parameters, *map(_plain_label, seed.arguments)])
    for name, size in seed.symbols.items():
        found = re.fullmatch(r"(?:(\d+)\*)?(s\d+)", size)
        names = [f"{name}_by_{found[1]}"] if found and found[1] else [name, f"{name}_size"]
        free = [new for new in names if not re.search(rf"\b{new}\b", taken)]
        if found and free:
            text = re.sub(rf"\b{found[2]}\b", free[0], text)
    return _name_products(text, taken)


def _name_products(text: str, taken: str) -> str:
    """The text with `ps0 = 16*rows*cols` as `rows_cols_16`; other expressions keep Inductor's name."""
    for old, product in re.findall(r"^ +(ps\d+) = ([\w*]+)$", text, re.MULTILINE):
        parts = sorted(product.split("*"), key=str.isdigit)
        name = "_".join(parts)
        if name.isidentifier() and "" not in parts and not re.search(rf"\b{name}\b", f"{text} {taken}"):
            text = re.sub(rf"\b{old}\b", name, text)
    return text


def _plain_label(label: str) -> str:
    return label.removeprefix("self.").replace(".", "_")


def _name_tensors(module: ModuleText, seed: InductorSeed) -> dict[str, str]:
    """Better names of the host's tensors: the reference's parameters, weights, results."""
    names = {arg: _plain_label(label) for arg, label in zip(module.arguments, seed.arguments)}
    made = [s.name for s in module.steps if isinstance(s, Allocation) and s.name in module.results]
    for number, name in enumerate(made):
        names[name] = "out" if len(made) == 1 else f"out{number}"
    return names


def _read_kernels(module: ModuleText, names: Mapping[str, str]) -> dict[str, KernelText]:
    launches: dict[str, list[KernelRun]] = {}
    for step in module.steps:
        if isinstance(step, KernelRun):
            launches.setdefault(step.kernel, []).append(step)
    kernels, taken = dict[str, KernelText](), set[str]()
    for old, source in module.kernels.items():
        if not source:
            kernels[old] = (column_sums if old == column_sums.KERNEL else attention).make_kernel()
            continue
        new = _shorten(old, taken)
        taken.add(new)
        kernels[old] = read_kernel(
            source, _defined_name(source, old), new, _name_parameters(source, old, launches, names)
        )
    return kernels


def _defined_name(source: str, name: str) -> str:
    """The kernel's name in its own source: Inductor's placeholder or the name of the module's variable."""
    return re.findall(r"^def (\w+)\(", source, re.MULTILINE)[-1]


def _shorten(name: str, taken: set[str]) -> str:
    """`triton_red_fused__softmax_mul_0` becomes `softmax_mul_kernel`."""
    parts = _PREFIX.sub("", name).replace("prepare_softmax_online", "softmax").split("_")
    words = list(dict.fromkeys(w for w in parts if w and not w.isdigit()))
    words = [w for w in words if w not in _MOVES] or words
    short = "_".join(words[:5]) + "_kernel"
    number = 2
    while short in taken:
        short = re.sub(r"_kernel\d*$", f"_kernel{number}", short)
        number += 1
    return short


def _name_parameters(
    source: str, kernel: str, launches: Mapping[str, Sequence[KernelRun]], names: Mapping[str, str]
) -> dict[str, str]:
    """Names of a kernel's parameters after what its only launch passes."""
    used = launches.get(kernel, ())
    if len(used) != 1:
        return {}
    header = re.search(rf"^def {_defined_name(source, kernel)}\((.*?)\):", source, re.MULTILINE | re.DOTALL)
    parameters = [p.split(":")[0].strip() for p in header.group(1).split(",")] if header else []
    renamed = {}
    for parameter, passed in zip(parameters, used[0].arguments, strict=False):
        if not passed.isidentifier():
            continue
        if parameter.startswith("ks"):
            renamed[parameter] = passed
        elif "ptr" in parameter:
            renamed[parameter] = f"{names.get(passed, passed)}_ptr"
    chosen = list(renamed.values())
    return {p: n for p, n in renamed.items() if chosen.count(n) == 1}


def list_configs(kernel: KernelText, configs: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """Inductor's configs in its order, but first one with a tile of rows as they lie in memory, else one that is
    square, or with several rows where rows are short: its own first has one row a program, whichever axis is contiguous
    and however many rows there are."""

    def squareness(config: Mapping[str, int]) -> tuple[int, int]:
        sizes = [config[b] for b in kernel.blocks if b in config]
        return min(sizes, default=1), max(sizes, default=1)

    code = kernel.functions[kernel.name]
    has_product = "tl.dot" in code  # later configs of these need more shared memory
    tiled = len(kernel.blocks) > 1 or ("R0_BLOCK" in code and "R0_BLOCK" not in kernel.blocks)
    names = [n for n in (*kernel.blocks, "num_warps", "num_stages") if n not in kernel.whole]
    ordered = list(configs)
    if kernel.blocks == ("YBLOCK", "XBLOCK") and _reads_along_rows(code):
        wide = min(ROW_TILE, max(config["XBLOCK"] for config in configs))
        ordered.insert(0, {**configs[0], "XBLOCK": wide, "YBLOCK": ROW_TILE // wide, "num_warps": 1})
    elif tiled and not has_product:
        ordered.insert(0, max(configs, key=squareness))
    if ordered[0].get("XBLOCK") == 1 and (length := ordered[0].get("R0_BLOCK", 0)) >= 8 * 128:
        ordered.insert(0, {**ordered[0], "XBLOCK": 8, "R0_BLOCK": length // 8})
    plain = [{n: config[n] for n in names if n in config} for config in ordered]
    return [config for i, config in enumerate(plain) if config not in plain[:i]]


def _reads_along_rows(code: str) -> bool:
    """True if neighbours in a row of a tile are neighbours in memory, or a few elements apart, in all that it uses."""
    steps = re.findall(r"([\w)]+) \* xindex\b", code)
    return not re.search(r"\bxindex (//|%|\*)", code) and all(s.isdigit() and int(s) <= NEAR for s in steps)


def _write_functions(
    kernels: Mapping[str, KernelText], configs: Mapping[str, Sequence[Mapping[str, int]]]
) -> Iterator[str]:
    """The kernels after the functions that they call, tuned over their configs where these are several."""
    entries = {kernel.name: (kernel, configs[old]) for old, kernel in kernels.items()}
    for name, text in {name: text for k in kernels.values() for name, text in k.functions.items()}.items():
        if name not in entries or len(entries[name][1]) == 1:
            yield text
            continue
        kernel, tried = entries[name]
        lines = ["@triton.autotune(", "    configs=["]
        for config in tried:
            options = ", ".join(f"{n}={v}" for n, v in config.items() if n not in kernel.blocks)
            blocks = ", ".join(f"{n!r}: {v}" for n, v in config.items() if n in kernel.blocks)
            lines.append(f"        triton.Config({{{blocks}}}, {options}),")
        lines += ["    ],", f"    key={[p for p in kernel.parameters if p.endswith('numel')]},"]
        if kernel.changed:
            lines.append(f"    restore_value={list(kernel.changed)},")
        yield "\n".join([*lines, ")", text])


def _write_launcher(
    module: ModuleText,
    names: Mapping[str, str],
    kernels: Mapping[str, KernelText],
    configs: Mapping[str, Sequence[Mapping[str, int]]],
    seed: InductorSeed,
) -> str:
    tensors = [names[a] for i, a in enumerate(module.arguments) if i not in seed.numbers]
    weights = [names[a] for a, label in zip(module.arguments, seed.arguments) if label.startswith("self.")]
    takes = [*seed.parameters, *weights] if seed.form == "kernelbench" else list(seed.parameters)
    lines = [f"{name} = {value}" for name, value in module.sizes]
    for step in module.steps:
        if isinstance(step, KernelRun):
            lines.append(_write_launch(step, module.grids[step.kernel], kernels[step.kernel], configs[step.kernel]))
        elif isinstance(step, Allocation):
            device = f"device={tensors[-1]}.device"
            dtype = f"{tensors[-1]}.dtype" if step.dtype == seed.dtype and step.name in module.results else step.dtype
            if step.strides is None:
                lines.append(f"{step.name} = torch.empty({step.shape}, dtype={dtype}, {device})")
            else:
                shape = f"{step.shape}, {step.strides}"
                lines.append(f"{step.name} = torch.empty_strided({shape}, dtype={dtype}, {device})")
        else:
            lines.append(step)
    results = ", ".join(module.results)
    lines.append(f"return {results}")
    body = "\n".join(lines)
    for old, new in names.items():
        body = re.sub(rf"\b{old}\b", new, body)
    text = f"def {SEED_LAUNCHER}({', '.join(takes)}):\n" + indent(body, "    ")
    if "(attend(" in text:
        text = f"{attention.LIBRARY}\n\n\n{text}"
    if seed.form != "kernelbench":
        return f'{text}\n\n\nLAUNCHER = "{SEED_LAUNCHER}"'
    labels = {names[a]: re.sub(r"\.(\d+)\b", r"[\1]", label) for a, label in zip(module.arguments, seed.arguments)}
    passed = ", ".join([*seed.parameters, *(labels[w] for w in weights)])
    forward = f"    def forward(self, {', '.join(seed.parameters)}):\n        return {SEED_LAUNCHER}({passed})"
    return f"{text}\n\n\nclass ModelNew(Model):\n{forward}"


def _write_launch(launch: KernelRun, grid: str, kernel: KernelText, configs: Sequence[Mapping[str, int]]) -> str:
    given = dict(zip(kernel.parameters, launch.arguments, strict=False))
    sizes = {n: given[n] for n in ("xnumel", "ynumel", "znumel") if n in given}
    options = {block: f"triton.next_power_of_2({given[length]})" for block, length in kernel.whole.items()}
    options |= {name: str(value) for name, value in kernel.given.items()}
    if len(configs) == 1:  # else the autotuner's
        options |= {name: str(value) for name, value in configs[0].items()}
        if kernel.given and kernel.whole:
            options["num_warps"] = f"min(32, max(4, {options['R0_BLOCK']} // {PER_WARP[1]}))"
    passed = ", ".join([*launch.arguments, *(f"{n}={v}" for n, v in options.items())])
    return f"{kernel.name}[lambda meta: {grid.format(**sizes)}]({passed})"


def write_space(
    kernels: Mapping[str, KernelText], configs: Mapping[str, Sequence[Mapping[str, int]]], dotted: bool
) -> str:
    """SPACE: the values that Inductor would try, and powers of two around them."""
    lines = []
    for old, kernel in kernels.items():
        prefix = f"{kernel.name}." if dotted else ""
        if dotted and kernel.blocks == ("XBLOCK",) and configs[old][0].items() >= {"XBLOCK": 1, "num_warps": 1}.items():
            continue  # one element, such as a counter: nothing to tune
        blocks = [n for n in kernel.blocks if n in configs[old][0]]
        space: dict[str, list[Any]] = {n: _widen(n, kernel, [c[n] for c in configs[old]]) for n in blocks}
        is_long = any(c.get("R0_BLOCK", 0) >= LONG or (kernel.whole and c["num_warps"] >= 16) for c in configs[old])
        space["num_warps"] = [*WARPS, 32] if is_long else list(WARPS)
        for length in kernel.whole.values():  # rows of other lengths need others
            space["num_warps"] += [f"min(32, max(1, next_power_of_2({length}) // {n}))" for n in PER_WARP]
        if "num_stages" in configs[old][0] and len(kernel.blocks) > 1 and not kernel.whole:
            space["num_stages"] = list(STAGES)
        lines += [f"    {prefix + n!r}: {values}," for n, values in space.items()]
    given = dict.fromkeys(name for kernel in kernels.values() for name in kernel.given)
    lines += [f"    {name!r}: {list(column_sums.SPACE[name])}," for name in given]
    return "SPACE = {\n" + "\n".join(lines) + "\n}"


def _widen(block: str, kernel: KernelText, tried: Sequence[int]) -> list[int]:
    if kernel.given and not kernel.whole:  # as many rows as there are parts
        low, high = min(tried), 2 * max(tried)
    elif "tl.dot" in kernel.functions[kernel.name]:
        low, high = (16, 256) if block != "ZBLOCK" else (1, 1)  # one matrix a program
    elif "R0_BLOCK" not in kernel.functions[kernel.name] and len(kernel.blocks) == 1:
        low, high = 128, 4096  # a flat array
    elif block.startswith("R"):
        low, high = 16, 4 * LONG if max(tried) >= LONG else 4096
    elif kernel.blocks == ("YBLOCK", "XBLOCK"):  # rows of memory and their elements
        low, high = (1, 4096) if block == "XBLOCK" else (1, 256)
    elif kernel.whole:  # more rows than that do not fit
        low, high = 1, 4 * max(tried)
    else:
        low, high = 1, 128
    return sorted({*tried, *(1 << i for i in range(20) if low <= 1 << i <= high)})


# ------------------------------------------------------------ another decision of Inductor's as one more start


def write_start(seed: InductorSeed, other: InductorSeed) -> str:
    """The kernels in which the other differs; empty where none does, or where its launcher is another one.

    Raises NotConvertible.
    """
    (module, kernels), (other_module, others) = read_seed(seed)[:2], read_seed(other)[:2]
    short = {old: kernel.name for old, kernel in (*kernels.items(), *others.items())}
    if _list_steps(module, short) != _list_steps(other_module, short):
        return ""
    own = {kernel.name: kernel for kernel in kernels.values()}
    changed = {old: k for old, k in others.items() if own[k.name].functions != k.functions}
    if not changed:
        return ""
    configs = {old: list_configs(kernel, other.configs[old]) for old, kernel in changed.items()}
    args, config, texts = dict[str, dict[str, str]](), dict[str, int](), dict[str, str]()
    for old, kernel in changed.items():
        prefix = f"{kernel.name}." if len(kernels) > 1 else ""
        config |= {prefix + name: value for name, value in configs[old][0].items()}
        texts |= kernel.functions
        for block, length in kernel.whole.items():  # under a name of its own, or a config of the loop would set it
            new = block.replace("BLOCK", "WHOLE")
            texts[kernel.name] = re.sub(rf"\b{block}\b", new, texts[kernel.name])
            args.setdefault(kernel.name, {})[new] = f"next_power_of_2({length})"
    code = "\n\n\n".join(texts.values())
    spec = [f"ARGS = {args}"] * bool(args) + [write_space(changed, configs, len(kernels) > 1), f"CONFIG = {config}"]
    return "\n\n\n".join([f"{list_imports(code)}\n\n" + "\n".join(spec), *find_helpers(code), code]) + "\n"


def _list_steps(module: ModuleText, short: dict[str, str]) -> list[object]:
    """What the host does, with the kernels under their short names."""
    grids = {short[name]: grid for name, grid in module.grids.items()}
    steps = [(short[s.kernel], s.arguments) if isinstance(s, KernelRun) else s for s in module.steps]
    return [grids, module.arguments, module.sizes, module.results, *steps]
