"""The prompt page of a task without a kernel: the reference, the skeleton with its hole, the allowed lines."""

from __future__ import annotations

from collections.abc import Sequence

from kernelsearch.propose.first.body import FUNCTIONS, Body
from kernelsearch.propose.models.repair import clean
from kernelsearch.tasks.outline import Outline

SYSTEM = """\
You write the first Triton kernel of a task. You are shown a PyTorch reference and a kernel whose body is missing. You \
answer with the body and nothing else: no explanation, no code fence. The kernel must be right for every size.

An answer is BODY, a few lines indented by four spaces, each binding the next of t0, t1, ... (a float32 tile) or of \
s0, s1, ... (one number), the last line binding out, and then END. Every operation stands in parentheses. Softmax:
BODY
    s0 = tl.max(tl.where(mask, x, float("-inf")), axis=0)
    t0 = tl.exp((x - s0))
    s1 = tl.sum(tl.where(mask, t0, 0.0), axis=0)
    out = (t0 / s1)
END"""

HOLE = "    ...  # your lines"
LONGEST_SOURCE = 6000
_KINDS = {"tile": "a tile", "column": "a tile, the same for every row"}
"""Kinds of the inputs by their roles; all others are one number."""


def write_page(outline: Outline, body: Body, device: str, refused: Sequence[tuple[str, str]] = ()) -> str:
    """Writes the page. refused are earlier answers with the reasons; the model corrects the last one."""
    template = body.template
    names = [f"{name}: {_KINDS.get(role, 'one number')}" for name, role in template.roles.items()]
    wanted = "one number" if template.reduces else "a tile"
    allowed = f"At most {body.statements} lines before out. Functions: {', '.join(FUNCTIONS)}, maximum, minimum, where"
    sums = "; reductions as in the example: tl.sum, tl.max, tl.min of tl.where(mask, ..., 0.0 or infinity)"
    parts = [
        ("TASK", f"Write {template.kernel} of the task {clean(outline.name)} for {clean(device)}."),
        ("REFERENCE", outline.source[:LONGEST_SOURCE].rstrip()),
        ("KERNEL", template.kernel_file(HOLE).rstrip()),
        ("NAMES", "\n".join([*names, f"out: {wanted}"])),
        ("ALLOWED", allowed + (sums if template.kind == "rows" else "") + "."),
    ]
    for text, why in refused[-2:]:
        parts += [("YOUR ANSWER", text.strip()), ("WAS REFUSED", why)]
    parts.append(("ANSWER", "Correct it: BODY, lines, END." if refused else "BODY, lines, END."))
    return "\n\n".join(f"{heading}\n{text}" for heading, text in parts)
