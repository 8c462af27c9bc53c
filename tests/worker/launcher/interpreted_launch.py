"""Intercepts a launch under TRITON_INTERPRET: a process of its own, as one cannot be both interpreter and compiler."""

import sys

import torch
from triton.runtime.interpreter import InterpretedFunction

from kernelsearch.kernel.targets import target_by_name
from kernelsearch.worker.launcher import opening, trace
from kernelsearch.worker.launcher.intercept import intercept_launches

h100 = target_by_name("h100")
task = opening.open_task(sys.argv[1], h100)
assert isinstance(task.module.sum_kernel, InterpretedFunction)
(launch,) = trace.run_launcher(task, "timed:0", h100).launches
assert launch.bind_parameters({"BLOCK": 256})["EVEN"] is False and launch.resolve_grid({"BLOCK": 256}) == (2,)
case = task.build("test:0")
with intercept_launches(lambda launch: None):
    assert case.launch(*case.inputs).shape == (3, 7)
launch.fn[(1,)](*[torch.zeros(9), torch.zeros(9), 9, 16, "fast", False])  # put back: really interpreted
