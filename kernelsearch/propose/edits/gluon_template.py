"""What edits share that write a kernel anew in Gluon: where they are offered, and how a template becomes a kernel."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Template
from types import MappingProxyType

from kernelsearch.core.errors import KernelSyntaxError
from kernelsearch.core.types import LAUNCH_OPTIONS, LaunchFact, TensorFact, Value
from kernelsearch.kernel.launch import HostDescriptor, LaunchError, make_plan
from kernelsearch.kernel.source import GLUON, Kernel
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import READS
from kernelsearch.propose.analysis.view import Change, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.base import Edit

HOPPER = 9
_SIXTEEN = ("bf16", "fp16")


class GluonTemplate(Edit):
    """An edit that writes a kernel in Gluon. It is judged on a GPU only, so it is offered only where there is one."""

    def require_place(self, view: View) -> None:
        """Raises NotApplicable unless candidates run on a Hopper GPU and the kernel is one plain function."""
        kernel = view.kernel
        refuse_if(view.task.capability // 10 != HOPPER, "a kernel in Gluon is judged on a Hopper GPU only")
        if len(kernel.entries) > 1 or kernel.descriptors or kernel.scratch or kernel.init or kernel.args:
            raise NotApplicable("it is more than one plain kernel")
        refuse_if(view.function.types, "its arguments have types of their own")

    def write(
        self,
        view: View,
        template: str,
        names: Mapping[str, str],
        descriptors: Mapping[str, tuple[str | None, ...]],
        grid: str,
        tunables: Mapping[str, tuple[tuple[Value, ...], Value]],
        constraints: tuple[str, ...],
        why: str,
        args: Mapping[str, str] = MappingProxyType({}),
    ) -> Change:
        """The kernel that a template gives with these names. Raises NotApplicable where a timed shape cannot take it.

        tunables are the values of each name of its space, and the one to start from; args what the launch computes.
        """
        asserted = [tree.text_of(s) for s in view.node.body if tree.is_assertion(s)]
        asserted += [f"tl.static_assert({condition})" for condition in view.assumed]
        lines = "".join(f"    {line.replace('tl.', 'gl.')}\n" for line in dict.fromkeys(asserted))
        filled = {
            "name": view.function.name,
            "params": _write_parameters(view, [*descriptors, *tunables, *args]),
            "asserted": lines,
        }
        text = f"LANGUAGE = {GLUON!r}\n" + Template(_read(template)).substitute({**filled, **names})
        constants = tuple(text.replace("tl.", "gl.") for text in view.kernel.constants)
        try:
            plain = Kernel.parse(text)
        except KernelSyntaxError:
            raise NotApplicable("it has the name of a function of the template") from None
        kernel = plain.with_changes(
            constants=constants,
            grid={view.function.name: grid},
            args={view.function.name: dict(args)} if args else {},
            descriptors=dict(descriptors),
            launches=view.kernel.launches,
            space={name: values for name, (values, _) in tunables.items()},
            config={name: start for name, (_, start) in tunables.items()},
            constraints=constraints,
        )
        _require_fit(view, kernel)
        return Change(kernel, why)


@cache
def _read(template: str) -> str:
    return (Path(__file__).parents[1] / "templates" / template).read_text()


def _write_parameters(view: View, more: list[str]) -> str:
    """The parameters of the view's function, with those of more that are new before the ones that have defaults."""
    function = view.function
    constexprs = {*function.constexprs, *(n for n in more if n.isupper())}
    plain = [p for p in function.params if p not in function.defaults]
    plain += [n for n in more if n not in function.params and n not in LAUNCH_OPTIONS]
    written = (f"{p}: gl.constexpr" if p in constexprs else p for p in plain)
    last = (f"{p}{': gl.constexpr' if p in constexprs else ''} = {value!r}" for p, value in function.defaults.items())
    return ", ".join([*written, *last])


def find_only_loop(view: View, most: int, words: str) -> tuple[ast.For, list[ast.Call], ast.Call]:
    """The one loop of a function, its dots, so many, and its one store. Raises NotApplicable where it does more."""
    loops = [s for s in view.body if isinstance(s, (ast.For, ast.While))]
    dots, stores = tree.calls(view.node, "dot"), tree.calls(view.node, "store")
    if len(loops) != 1 or len(dots) != most or len(stores) != 1 or not isinstance(loops[0], ast.For):
        raise NotApplicable(f"it is more than one loop with {words}, and one store behind it")
    view.must_only(READS, view.body, "beside its store it", stores)
    refuse_if(not all(view.flow.at(dot) in loops[0].body for dot in dots), "its dots are not in the loop")
    return loops[0], dots, stores[0]


def list_timed_launches(view: View) -> list[LaunchFact]:
    """The launches of the view's function at the timed shapes."""
    timed, sites = {shape.key for shape in view.task.shapes}, view.kernel.sites_of(view.function.name)
    traces = (trace for key, trace in view.task.traces.items() if key in timed)
    return [launch for trace in traces for launch in trace.launches if launch.site in sites]


def _require_fit(view: View, kernel: Kernel) -> None:
    """Raises NotApplicable unless every timed launch takes all descriptors, of 16-bit floats of one type."""
    launches, name = list_timed_launches(view), view.function.name
    refuse_if(not launches, "no launch at a timed shape was seen")
    for fact in launches:
        try:
            step = make_plan(kernel, (name,), kernel.config, fact, lambda _: fact.grid or (1,), 1).steps[0]  # noqa: B023
        except LaunchError as error:
            raise NotApplicable(f"a timed shape does not fit: {error}") from None
        if not all(isinstance(step.args[n], HostDescriptor) for n in kernel.descriptors):
            raise NotApplicable("the copy engine cannot take a matrix of a timed shape")
        if not all(step.constexprs.get(n, True) for n in kernel.args.get(name, {})):
            raise NotApplicable("a timed shape is not of whole tiles")
        tensors = [fact.args.get(spec[0]) for spec in kernel.descriptors.values()]
        types = {t.dtype for t in tensors if isinstance(t, TensorFact)}
        refuse_if(len(types) != 1 or not types <= {*_SIXTEEN}, "its matrices are not all of one 16-bit float type")
