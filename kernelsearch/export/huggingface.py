"""The layout that Hugging Face `kernels` loads: a repository with the same package once per backend under `build/`.

Read in `kernels` 0.17.2: a variant without compiled code is called `torch-<backend>`; it holds the package itself and a
`metadata.json` (id, name, version, license, python-depends, backend, digest); the module is imported under its id, so
that only relative imports work and operators need a namespace of their own. `kernels benchmark` runs
`benchmarks/benchmark.py`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence

from kernelsearch.export import texts
from kernelsearch.export.part import Part

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
        own = {**inside, "_build.py": _build_py(name).encode()}
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


def _build_py(namespace: str) -> str:
    return f'"""The name under which torch knows this build\'s operators."""\n\nNAMESPACE = "{namespace}"\n'


def _digest(files: Mapping[str, bytes]) -> dict[str, object]:
    """Every file of the variant with its SHA-256, in base64."""
    hashed = {path: base64.b64encode(hashlib.sha256(data).digest()).decode() for path, data in sorted(files.items())}
    return {"algorithm": "sha256", "files": hashed}


def _major(version: str) -> int:
    """Kernels of the Hub count in whole numbers."""
    return max(1, int(version.split(".")[0]))


def _build_toml(label: texts.Label) -> str:
    backends = ", ".join(f'"{b}"' for b in BACKENDS)
    return (
        "[general]\n"
        "edition = 5\n"
        f'name = "{label.distribution}"\n'
        f"version = {_major(label.version)}\n"
        f'license = "{label.licence}"\n'
        f"backends = [{backends}]\n"
        "\n[torch-noarch]\n"
    )


def _benchmark(parts: Sequence[Part]) -> str:
    """`kernels benchmark` times `benchmark_*` and holds `self.out` against `verify_*`."""
    lines = ['"""Times this kernel and the reference on every timed shape: `kernels benchmark .`."""', ""]
    lines += ["from kernels.benchmark import Benchmark", ""]
    for part in parts:
        for number, shape in enumerate(part.examined.facts.shapes):
            name = f"{texts.class_name(part.name)}{number}Benchmark"
            lines += [
                "",
                f"class {name}(Benchmark):",
                f'    """{part.name}: {shape.label}."""',
                "",
                "    seed = 42",
                "",
                "    def setup(self):",
                f'        self.task = self.kernel._dispatch.TASKS["{part.name}"]',
                f"        self.inputs = self.task.inputs(self.task.cases[{number}], self.seed, self.device)",
                "",
                f"    def benchmark_{part.name}(self):",
                "        self.out = self.task.public(*self.inputs)",
                "",
                f"    def verify_{part.name}(self):",
                "        return self.task.reference(*self.inputs)",
                "",
            ]
    return "\n".join(lines)
