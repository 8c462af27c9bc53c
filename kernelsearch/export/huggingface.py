"""The layout that Hugging Face `kernels` loads: a repository with the same package once per backend under `build/`.

As of `kernels` 0.17.2: a variant without compiled code is called `torch-<backend>`; it holds the package itself and a
`metadata.json` (id, name, version, license, python-depends, backend, digest). The module is imported under its id, so
only relative imports work, and operators need a namespace of their own. `kernels benchmark` runs
`benchmarks/benchmark.py`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence

from kernelsearch.export import texts
from kernelsearch.export.examine import Part

BACKENDS = ("cpu", "cuda")


def repository(
    label: texts.Label, parts: Sequence[Part], inside: Mapping[str, bytes], licence: str
) -> dict[str, bytes]:
    """All files of the kernel's repository by path. inside is the import package."""
    digest = hashlib.sha256(b"".join(p.encode() + b"\0" + d for p, d in sorted(inside.items()))).hexdigest()[:8]
    files = {
        "build.toml": _build_toml(label).encode(),
        "README.md": texts.readme(label, parts, "hf").encode(),
        "LICENSE": licence.encode(),
        "benchmarks/benchmark.py": _benchmark(parts).encode(),
        **{f"torch-ext/{label.module}/{path}": data for path, data in inside.items()},
    }
    for backend in BACKENDS:
        name = f"_{label.module}_{backend}_{digest}"
        own = {**inside, "_build.py": texts.build_module(name).encode()}
        metadata = {
            "id": name,
            "name": label.distribution,
            "version": _major(label.version),
            "license": label.licence,
            "python-depends": [],
            "backend": {"type": backend},
            "digest": _digest(own),
        }
        place = f"build/torch-{backend}"
        files.update({f"{place}/{path}": data for path, data in own.items()})
        files[f"{place}/metadata.json"] = (json.dumps(metadata, indent=2) + "\n").encode()
    return files


def _digest(files: Mapping[str, bytes]) -> dict[str, object]:
    """Every file of the variant with its SHA-256, in base64."""
    hashed = {path: base64.b64encode(hashlib.sha256(data).digest()).decode() for path, data in sorted(files.items())}
    return {"algorithm": "sha256", "files": hashed}


def _major(version: str) -> int:
    """The major version: the Hub's kernels have whole numbers as versions."""
    return max(1, int(version.split(".")[0]))


def _build_toml(label: texts.Label) -> str:
    return f"""\
[general]
edition = 5
name = "{label.distribution}"
version = {_major(label.version)}
license = "{label.licence}"
backends = [{", ".join(f'"{b}"' for b in BACKENDS)}]

[torch-noarch]
"""


def _benchmark(parts: Sequence[Part]) -> str:
    """`kernels benchmark` times `benchmark_*` and holds `self.out` against `verify_*`."""
    text = """\
\"""Times this kernel and the reference on every timed shape: `kernels benchmark .`.\"""

from kernels.benchmark import Benchmark
"""
    for part in parts:
        for number, shape in enumerate(part.examined.facts.shapes):
            text += f"""

class {texts.class_name(part.name)}{number}Benchmark(Benchmark):
    \"""{part.name}: {shape.label}.\"""

    seed = 42

    def setup(self):
        self.task = self.kernel._dispatch.TASKS["{part.name}"]
        self.inputs = self.task.inputs(self.task.cases[{number}], self.seed, self.device)

    def benchmark_{part.name}(self):
        self.out = self.task.public(*self.inputs)

    def verify_{part.name}(self):
        return self.task.reference(*self.inputs)
"""
    return text
