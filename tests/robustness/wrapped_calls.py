"""What a call of each wrapped target costs where nothing has to be corrected: run by `cost` beside a real release.

Every fix of the engine is on. The control of each proof, inputs that the bug does not touch, is run once. Calls of a target
that nobody corrects are measured where they happen, the batch as it is then: with its arguments the target's own corrections
are called around a function that returns at once what the engine returned, in turns with that function alone and with a bare
`wrapt.FunctionWrapper` around it. What a batch is looked at for once, and then remembered, has been seen by then. One JSON line
for each call goes to standard output.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import count
from types import FunctionType
from typing import Any

import wrapt

CALLS, BLOCKS = 500, 12
#: A control may have hundreds of calls: of each target the first are measured, and then one of so many
FIRST, ONE_OF = 10, 40


def main(engine: str, packages: dict[str, str]) -> None:
    from attnfix.prove import side, stubs

    stubs.install(engine)
    side._ease_engine(engine)
    kinds = {fix: importlib.import_module(f"attnfix.patches.{package}.proof").Proof for fix, package in packages.items()}
    proofs = {fix: kind() for fix, kind in kinds.items()}
    for fix, proof in proofs.items():
        for told in side._in_a_fork(_of_one_proof, fix, proof)["targets"]:
            print("TARGET" + json.dumps(told), flush=True)


def _of_one_proof(fix: str, proof: Any) -> dict[str, Any]:
    from attnfix.bootstrap.process import activation
    from attnfix.patches.lab.proof import NoSuchPath
    from attnfix.prove import side

    state = activation().states[fix]
    for one in activation().states.values():
        one.recheck_on_first_call = None  # what records the calls stands on the targets, as a foreign patcher would
    activation()._verify_in_place = lambda: None  # a proof may import another target module
    if not state.armed:
        return {"targets": []}
    try:
        proof.prepare()
        return {"targets": _measured_calls(state, lambda: side._observed(proof.control, 0))}
    except NoSuchPath:
        return {"targets": []}


def _measured_calls(state: Any, run: Any) -> list[dict[str, Any]]:
    """Calls of the targets of one fix during `run`, but those that a correction was needed for."""
    from attnfix.compat.arming.wrapper import WrappedTarget, live, swap

    measured: list[dict[str, Any]] = []
    calls: defaultdict[Any, count] = defaultdict(count)

    def recording(place: Any, wrapper: Any) -> Any:
        @wraps(wrapper.wrapped)  # a proof may ask for its signature
        def record(instance: Any, *args: Any, **kwargs: Any) -> Any:
            before = _corrections(wrapper)
            result = wrapper.function(instance, *args, **kwargs)
            number = next(calls[place])
            if _corrections(wrapper) == before and (number < FIRST or number % ONE_OF == 0):
                with _without_modes():
                    measured.append(_measured(place, wrapper, instance, args, kwargs, result))
            return result

        return record

    wrappers = {place: wrapper for place in state.patch_points if (wrapper := WrappedTarget.of(live(place)))}
    for place, wrapper in wrappers.items():
        swap(place, recording(place, wrapper))
    run()
    for place, wrapper in wrappers.items():
        swap(place, wrapper.function)
    return measured


@contextmanager
def _without_modes() -> Iterator[None]:
    """Without the modes that an emulator runs the engine under: each look at a tensor costs a microsecond more there."""
    import torch
    from torch.overrides import _pop_mode_temporarily

    with ExitStack() as stack:
        while torch._C._len_torch_function_stack():
            stack.enter_context(_pop_mode_temporarily())
        yield


def _corrections(wrapper: Any) -> list[int]:
    return [link.state.counters.corrections for link in wrapper.links]


def _measured(place: Any, wrapper: Any, instance: Any, args: tuple, kwargs: dict, result: Any) -> dict[str, Any]:
    from attnfix.compat.arming.wrapper import WrappedTarget

    plain = _returning(result, wrapper.wrapped)
    probe = WrappedTarget(plain, place)
    states = [link.state for link in reversed(wrapper.links)]
    for link in reversed(wrapper.links):
        probe.add(link.state, link.correct, link.needed)
    kind = type(instance)
    kind.attnfix_plain, kind.attnfix_wrapped = plain, probe.function
    kind.attnfix_bare = wrapt.FunctionWrapper(plain, _passing)
    before = [(state.counters.corrections, state.counters.calls) for state in states]
    blocks = _in_turns(instance, args, kwargs)
    grown = _growth(instance, args, kwargs)
    after = [(state.counters.corrections, state.counters.calls) for state in states]
    return {
        "target": str(place),
        "fixes": [state.fix.id for state in states],
        "unarmed": [f"{state.fix.id}: {state.reason}" for state in states if not state.armed],
        "corrected": [state.fix.id for state, a, b in zip(states, before, after) if b[0] > a[0]],
        "looks": all(link.needed is not None for link in probe.links),
        "uncalled": [state.fix.id for state, a, b in zip(states, before, after) if b[1] - a[1] < CALLS * BLOCKS],
        "grown": grown,
        **blocks,
    }


def _returning(result: Any, function: FunctionType) -> FunctionType:
    """A function with the engine's parameters that returns `result`; corrections that look at names or globals of the engine's
    code find them there."""
    made: dict[str, Any] = {}
    parameters = [one.replace(annotation=Parameter.empty) for one in signature(function).parameters.values()]
    plain_ones = Signature([one.replace(default=Parameter.empty) for one in parameters])
    exec(f"def around(attnfix_result):\n def plain{plain_ones}:\n  return attnfix_result\n return plain", made)
    plain = made["around"](result)
    code = plain.__code__.replace(co_names=function.__code__.co_names)
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, plain.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _in_turns(instance: Any, args: tuple, kwargs: dict) -> dict[str, list[float]]:
    """CPU time of one call in µs: stock, behind a bare wrapper, ours, and one that does nothing: how fast the core is."""
    blocks: dict[str, list[float]] = {"stock": [], "bare": [], "ours": [], "nothing": []}
    gc.disable()
    for block in range(BLOCKS + 1):
        for name in list(blocks)[:: 1 if block % 2 else -1]:
            took = _block(name, instance, args, kwargs)
            if block:  # the first one warms up
                blocks[name].append(took)
    gc.enable()
    return blocks


def _block(name: str, instance: Any, args: tuple, kwargs: dict) -> float:
    began = time.thread_time()
    if name == "stock":
        for _ in range(CALLS):
            instance.attnfix_plain(*args, **kwargs)
    elif name == "bare":
        for _ in range(CALLS):
            instance.attnfix_bare(*args, **kwargs)
    elif name == "ours":
        for _ in range(CALLS):
            instance.attnfix_wrapped(*args, **kwargs)
    else:
        for _ in range(CALLS):
            _nothing()
    return 1e6 * (time.thread_time() - began) / CALLS


def _nothing() -> None:
    pass


def _passing(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    return wrapped(*args, **kwargs)


def _growth(instance: Any, args: tuple, kwargs: dict) -> float:
    """Bytes that stay allocated per call: the least of a few times many, since the interpreter keeps some for itself."""
    gc.freeze()  # what is there already is not looked through: that takes half a second
    tracemalloc.start()
    grown = []
    for _ in range(4):
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(CALLS):
            instance.attnfix_wrapped(*args, **kwargs)
        gc.collect()
        grown.append(tracemalloc.get_traced_memory()[0] - before)
    tracemalloc.stop()
    gc.unfreeze()
    return min(grown) / CALLS


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
