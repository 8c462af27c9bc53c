"""Writes confirmed kernels as things that others install: a pip package, a Hugging Face kernel, a table of configs.

`choose` reads the record, `examine` and `ship` read the task file, `launches` turns a launch spec into Python,
`package` puts the files together, and `huggingface` arranges them for the Hub. `templates` holds the code that runs on
the machine of the package's user: it needs torch and triton, and nothing of this project.
"""

from kernelsearch.core.errors import KernelsearchError


class ExportError(KernelsearchError):
    """There is nothing to export, or a part of it cannot be shipped; the sentence says why and what to do."""


def cannot_ship(file: str, why: str) -> ExportError:
    """The error for a task file (its name) of which a package cannot be made."""
    return ExportError(f"{file} cannot be shipped: {why}")
