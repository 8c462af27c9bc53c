"""The user's mistakes as exceptions, each with one sentence that says what to do.

A candidate that fails is never an error here: that is a `Verdict`.
"""


class KernelsearchError(Exception):
    """The user asked for something that cannot be done; the command line exits with 2."""


class TaskError(KernelsearchError):
    """The task file lacks something, or its parts do not fit together."""


class NoKernelError(TaskError):
    """The task file has a reference and no kernel: TorchInductor may write the first one."""


class KernelSyntaxError(KernelsearchError):
    """A kernel file is not Python, or its literals are not what the contract says."""


class EditError(KernelsearchError):
    """A file does not hold a typed edit."""


class ExpressionError(KernelsearchError):
    """An expression of the launch spec is malformed or has no value for these arguments."""


class SpaceError(KernelsearchError):
    """A space is empty or not a mapping of names to values, or none of its configs is possible."""


class StrategyError(KernelsearchError):
    """A strategy is unknown, or its file does not define what a strategy needs."""


class TargetError(KernelsearchError):
    """The named target is not in the table of machine facts."""


class StoreError(KernelsearchError):
    """The database cannot be used: newer version, read-only, damaged, or disk full."""


class RunBusy(StoreError):
    """Another process writes this run now: worth another try later."""


class WorkerError(KernelsearchError):
    """A trusted worker could not start or died: the set-up is at fault, not a candidate."""


class ClusterError(KernelsearchError):
    """Ray is not installed, no cluster is there, or its nodes do not fit together."""


class IsolationError(KernelsearchError):
    """An isolation layer is missing where all are required."""


class ModelError(KernelsearchError):
    """A model engine is unknown, malformed or not installed; faults of a running model are values, not errors."""


class StudyError(KernelsearchError):
    """A study file is not TOML, names what does not exist, or has nothing to run."""


class TrainError(KernelsearchError):
    """Nothing can be learnt from what was named: no rows, a folder of something else, or a package that is missing."""


def explain_lack_of_memory(message: str) -> str:
    """A sentence for PyTorch's error of a GPU without memory, `OutOfMemoryError: ...`; empty for other errors."""
    kind, _, told = message.partition(": ")
    if not kind.endswith("OutOfMemoryError"):
        return ""
    return f"too little GPU memory: {told.partition('. See documentation')[0][:300]}"
