"""`doctor`: what works on this machine, what is missing, and how to get it."""

from __future__ import annotations

import shutil
import textwrap
from importlib import metadata

from kernelsearch.cluster.node_probe import probe
from kernelsearch.cluster.ray_actors import Cluster, find_differences
from kernelsearch.core import extras, formats
from kernelsearch.core.errors import WorkerError
from kernelsearch.measure.timing.device import AMD_CARD, find_amd_card, find_live_device
from kernelsearch.propose.engines.registry import ENGINES, EngineKind
from kernelsearch.propose.engines.secrets import key_from
from kernelsearch.trial.bench import choose_target
from kernelsearch.verify.blind_spots import WITHOUT_A_GPU
from kernelsearch.worker.isolation import sandbox
from kernelsearch.worker.processes.pool import Workplace

WIDTH = 100
"""Of a line, in columns."""
PACKAGES = ("torch", "triton", "numpy", "optuna", "sqlite-utils", "click", "rich")


def collect_findings() -> list[dict[str, str]]:
    """One row for each part: its name, whether it works (`yes`, `no`, `part`), and what that means."""
    rows = [_package(name) for name in PACKAGES]
    device = find_live_device()
    if device is None:
        blind = "; ".join(WITHOUT_A_GPU)
        seen = AMD_CARD.format(gfx=gfx) if (gfx := find_amd_card()) else "none visible"
        estimates = f"{seen}: times are estimated for --target (default {choose_target('auto')[0].name})"
        rows.append(
            _row("GPU", "no", f"{estimates}; verdicts come from an evaluation on the CPU, which cannot see:; {blind}")
        )
    else:
        rows.append(_row("GPU", "yes", f"{device.name}, sm_{device.capability}, {device.num_sms} SMs"))
    rows.append(_compiler())
    rows += [_worker(role) for role in ("compile", "evaluate", "judge", *(["run"] if device is not None else []))]
    return rows + [_engine(name, kind) for name, kind in ENGINES.items() if kind.packages]


def collect_from_nodes(address: str) -> list[dict[str, str]]:
    """For each node of a cluster its processors and GPUs, its versions, and the rows of its own. Raises ClusterError.

    A node with other versions than this machine has no rows of its own: its workers could not be started.
    """
    with Cluster.connect(address) as cluster:
        here, found = probe(), cluster.find_versions()
        equal = [node for node, has in found if not find_differences(here, [(node, has)])]
        own = dict(cluster.ask_nodes(collect_findings))
        rows = []
        for node, has in found:
            parts = f"{formats.format_count(node.processors, 'processor')}, {formats.format_count(node.gpus, 'GPU')}"
            rows.append(_row(f"{node.address}: node", "yes", f"{parts}; Ray's number is {node.number[:8]}"))
            wrong = find_differences(here, [(node, has)])
            rows.append(_row(f"{node.address}: versions", "no" if wrong else "yes", "; ".join(wrong) or _list(has)))
            silent = [_row("workers", "no", "the node does not answer")]
            answer = own.get(node)  # a node that failed has no rows
            answers = (answer if isinstance(answer, list) else silent) if node in equal else []
            mine = (row for row in answers if row["name"] not in PACKAGES and "engine" not in row["name"])
            rows += [{**row, "name": f"{node.address}: {row['name']}"} for row in mine]
        return rows


def _list(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def format_findings(rows: list[dict[str, str]]) -> str:
    """A row's meaning has a line for each of its parts, which are wrapped."""
    width = max(len(r["name"]) for r in rows)
    lines = []
    for row in rows:
        head = f"{row['works']:4} {row['name']:{width}}  "
        for part in row["meaning"].split("; "):
            lines += textwrap.wrap(
                part, WIDTH, initial_indent=head, subsequent_indent=" " * (width + 9), break_long_words=False
            )
            head = " " * (width + 7)
    return "\n".join(lines) + "\n"


def _row(name: str, works: str, meaning: str) -> dict[str, str]:
    return {"name": name, "works": works, "meaning": meaning}


def _package(name: str) -> dict[str, str]:
    try:
        return _row(name, "yes", metadata.version(name))
    except metadata.PackageNotFoundError:
        return _row(name, "no", f"pip install {name}")


def _engine(name: str, kind: EngineKind) -> dict[str, str]:
    """Whether a kind of model engine can be opened, and whether (but not which) key is set."""
    if kind.missing:
        apart = " in an environment of its own (`kernelsearch help models`)" if name == "vllm" else ""
        return _row(f"model engine {name}", "no", f"optional: {extras.install_command(kind.extra)}{apart}")
    key = f"; OPENAI_API_KEY is {'set' if key_from('OPENAI_API_KEY') else 'not set'}" if name == "openai" else ""
    return _row(f"model engine {name}", "yes", f"{kind.form}: {kind.summary}{key}")


def _compiler() -> dict[str, str]:
    compiler = next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler:
        return _row("C compiler", "yes", f"{compiler} (Triton builds its launcher stub with it)")
    return _row("C compiler", "part", "none: Triton cannot launch kernels by itself; install gcc or clang")


def _worker(role: str) -> dict[str, str]:
    """Starts one worker of a role, which tries to break its isolation, and reports the layers that resisted."""
    name = f"{role} worker"
    with Workplace() as place:
        pool = place.pool(role, 1, fork=role != "run")
        try:
            layers, missing = pool.layers, pool.missing
        except WorkerError as error:
            return _row(name, "no", str(error))
    meaning = f"isolation on: {', '.join(layers)}"
    if missing:
        meaning += f"; OFF: {', '.join(f'{layer} ({why})' for layer, why in missing)}"
    if not sandbox.POLICIES[role].confined:
        meaning += "; files and network stay open: it runs your code, never a candidate's"
    return _row(name, "part" if missing else "yes", meaning)
