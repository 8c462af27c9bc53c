"""The seed writer: it makes a task file's first kernels with torch's compiler, and runs none of them."""

from __future__ import annotations

import torch
from torch.hub import tqdm

from kernelsearch.kernel.targets import target_by_name
from kernelsearch.worker.isolation.sandbox import WorkerLimits
from kernelsearch.worker.launcher import inductor
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.roles import judge

LIMITS = WorkerLimits(descriptors=4096, file_bytes=None)
answer_failure = judge.answer_failure


def preload() -> None:
    """Sets up a nursery, which has imported torch's compiler with this module, and ran it once: some seconds."""
    torch.set_num_threads(1)
    tqdm.monitor_interval = 0  # no thread for progress bars: a process with threads must not fork
    inductor.warm_up(target_by_name("h100"))


def handle(job: jobs.SeedTask) -> tuple[str, str]:
    return inductor.write_seeded_task(job.path, job.target)
