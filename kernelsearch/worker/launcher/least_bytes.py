"""The fewest bytes that a kernel for a task must move: what the reference reads of its inputs, and its outputs, once.

The reference runs on tensors without data, and every operation on a tensor that was there before, an input or a weight,
marks the elements that it reads. Where one takes a part of them that depends on values there is no such number.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelsearch.core.errors import TaskError
from kernelsearch.kernel.targets import Target
from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.tasks.task import Task
from kernelsearch.verify.dispatch import DispatchMode
from kernelsearch.worker.launcher.standin import pretend_gpu
from kernelsearch.worker.launcher.tensors import flatten_result
from kernelsearch.worker.launcher.trace import build_formal

PARTIAL = {
    **dict.fromkeys(("index", "gather", "index_select", "embedding", "_embedding_bag", "take"), (0,)),
    **dict.fromkeys(("masked_select", "masked_fill", "masked_fill_", "tril", "triu"), (0,)),
    "where": (1, 2),
}
"""Operations that take a part of their arguments at these places."""
UNREAD = re.compile(r"(copy|fill|zero|normal|uniform)_|\w+_like|new_\w+")
"""Operations that read no values of their first argument."""
SOURCE = "inputs and outputs once"
MOST_ELEMENTS = 2**27
"""Elements of one tensor that are marked one by one."""


class _Reads(DispatchMode):
    """Marks what is read of each storage that no operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: set[int] = set()
        self.whole: dict[int, int] = {}  # the bytes of storages that were read from end to end
        self.marks: dict[int, tuple[torch.Tensor, int]] = {}  # elements of others that were read, and their bytes
        self.partly: dict[int, str] = {}
        self.kept: list[torch.Tensor] = []  # a storage that is gone would lend its number to another

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = function(*args, **(kwargs or {}))
        name = function._schema.name.removeprefix("aten::")
        taken, given = _list_tensors((args, kwargs)), _list_tensors(results)
        self.kept += [*taken, *given]
        before = {_number(t) for t in taken}
        writes = any(a.alias_info is not None and a.alias_info.is_write for a in function._schema.arguments)
        is_view = bool(given) and not writes and all(_number(t) in before for t in given)
        self.made |= {_number(t) for t in given} - before
        for place, value in enumerate((*args, *(kwargs or {}).values())):
            for tensor in _list_tensors(value):
                if is_view or (place == 0 and UNREAD.fullmatch(name)) or _number(tensor) in self.made:
                    continue
                if place in PARTIAL.get(name, ()):
                    self.partly[_number(tensor)] = name
                else:
                    self._mark(tensor)
        return results

    def _mark(self, tensor: torch.Tensor) -> None:
        number, width, size = _number(tensor), tensor.element_size(), tensor.untyped_storage().nbytes()
        if tensor.numel() * width == size and 0 not in tensor.stride():
            self.whole[number] = size
        if number in self.whole:
            return
        if size > MOST_ELEMENTS * width:
            raise TaskError("an input is too large to be looked at")
        if number not in self.marks:
            self.marks[number] = torch.zeros(size // width, dtype=torch.bool), width
        self.marks[number][0].as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(True)

    def find_partly_read(self) -> str:
        """The name of an operation that read a part of an input of which nothing else read the whole; else empty."""
        whole = {*self.whole, *(number for number, (marks, _) in self.marks.items() if bool(marks.all()))}
        return next((name for number, name in self.partly.items() if number not in whole), "")

    def count_bytes(self) -> int:
        parts = [width * int(marks.sum()) for number, (marks, width) in self.marks.items() if number not in self.whole]
        return sum(self.whole.values()) + sum(parts)


def find_least_bytes(task: Task, key: str, target: Target) -> tuple[int | None, str]:
    """(The bytes at a shape, "the inputs and outputs once"), or (None, why there is no such number)."""
    reads = _Reads()
    try:
        case = build_formal(task, key, target)
        device = next((v.device.type for v in case.inputs if isinstance(v, torch.Tensor)), "cpu")
        if device != "meta":
            return None, "its inputs cannot be made without data"
        with pretend_gpu(target, "meta"), torch.no_grad(), reads:
            result = case.reference(*case.inputs)
        outputs = flatten_result(result, case.names, case.inputs, task.mutates)
    except TaskError as error:
        return None, str(error)
    except USER_ERRORS:
        return None, "its reference does not run without data"
    if name := reads.find_partly_read():
        return None, f"its reference reads a part of an input that depends on values ({name})"
    changed = {_number(v) for v, name in zip(case.inputs, case.names) if name in task.mutates}
    written = [o for o in outputs if _number(o) in reads.made | changed]
    return reads.count_bytes() + sum(o.numel() * o.element_size() for o in written), SOURCE


def _list_tensors(values: Any) -> list[torch.Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, torch.Tensor)]


def _number(tensor: torch.Tensor) -> int:
    """That of the storage, which views share."""
    return tensor.untyped_storage()._cdata
