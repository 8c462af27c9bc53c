"""Why something cannot be exported, as one sentence for the user."""

from kernelsearch.core.errors import KernelsearchError


class ExportError(KernelsearchError):
    """There is nothing to export, or what there is cannot be shipped; the sentence says why and what to do."""
