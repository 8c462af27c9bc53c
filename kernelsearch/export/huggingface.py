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

from kernelsearch.export import render, texts
from kernelsearch.export.exported_task import ExportedTask

BACKENDS = ("cpu", "cuda")


def build_repository(
    label: texts.PackageLabel, parts: Sequence[ExportedTask], inside: Mapping[str, bytes]
) -> dict[str, bytes]:
    """The files of the kernel's repository by path, but for its licences. inside is the import package."""
    digest = hashlib.sha256(b"".join(p.encode() + b"\0" + d for p, d in sorted(inside.items()))).hexdigest()[:8]
    files = {
        "build.toml": render(
            "build.toml.jinja", label=label, version=_major(label.version), backends=BACKENDS
        ).encode(),
        "README.md": texts.write_readme(label, parts, "hf").encode(),
        "benchmarks/benchmark.py": render("hf_benchmark.py.jinja", parts=parts, class_name=texts.class_name).encode(),
        **{f"torch-ext/{label.module}/{path}": data for path, data in inside.items()},
    }
    for backend in BACKENDS:
        name = f"_{label.module}_{backend}_{digest}"
        own = {**inside, "_build.py": texts.write_build_module(name).encode()}
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
