"""The machines that evaluate: this one, or the workers that Ray has on one or many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kernelsearch.cluster.crew import GO_ON, Crew
from kernelsearch.cluster.ray_actors import LOCAL, Cluster
from kernelsearch.cluster.remote_bench import RemoteBench
from kernelsearch.core.errors import ClusterError
from kernelsearch.core.slow_steps import Say
from kernelsearch.measure.timing.device import LiveDevice
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder

ALL = "all"


@dataclass(frozen=True)
class MachineOptions:
    """The options about machines: how many GPUs (`all`, a number, or empty), Ray's address, the model of GPU.

    workers is how many there are where no node has a GPU, None for as many as the processors allow.
    """

    gpus: str = ""
    ray: str = ""
    device: str = ""
    workers: int | None = None

    def __post_init__(self) -> None:
        self.count_gpus()

    @property
    def address(self) -> str:
        """Ray's address; empty where no worker but this process is wanted."""
        return self.ray or (LOCAL if self.gpus else "")

    def count_gpus(self) -> int | None:
        """0 for all of them, None where nothing was said. Raises ClusterError."""
        if not self.gpus or self.gpus == ALL:
            return 0 if self.gpus else None
        if not self.gpus.isdecimal() or not int(self.gpus):
            raise ClusterError(f"--gpus is `all` or a number above 0, not {self.gpus!r}")
        return int(self.gpus)


@dataclass
class Machines:
    """Opens benches; crew is None where this process evaluates itself."""

    options: MachineOptions
    cluster: Cluster | None = None
    crew: Crew | None = None

    def measures(self, device: LiveDevice | None) -> bool:
        """Whether candidates are timed on GPUs; device is this process's own, if it has one."""
        return any(n.gpus for n in self.cluster.nodes) if self.cluster else device is not None

    def open_bench(self, path: str, target: str, say: Say | None = None) -> Bench | RemoteBench:
        """Opens a task. Raises KernelsearchError."""
        if self.cluster is None or self.crew is None:
            return Bench.open(path, target, compiled=default_folder(), say=say)
        return RemoteBench.open(path, target, self.cluster, self.crew, self.options.device, say)


@contextmanager
def open_machines(options: MachineOptions, tasks: Sequence[str], say: Say) -> Iterator[Machines]:
    """The machines of a command on these task files, until it ends. Raises ClusterError."""
    gpus = options.count_gpus()
    if options.device and not options.address:
        raise ClusterError("--device chooses among the GPUs of --gpus or --ray: give one of these too")
    if not options.address:
        yield Machines(options)
        return
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster.connect(options.address, tasks))
        cluster.require_equal_versions()
        stations = cluster.start_actors(Path(tasks[0]).stem, gpus, options.workers)
        crew = Crew(list(stations), say)
        stack.callback(crew.close)
        cluster.watch_head(lambda why: crew.stop(f"{why}: {GO_ON}"))
        yield Machines(options, cluster, crew)
