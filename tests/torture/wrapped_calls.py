"""What a call of each wrapped target costs where nothing has to be corrected: run by `cost` beside a real release.

Every fix of the engine is on. The control of each proof, inputs that the bug does not touch, is run once, and the arguments of
the last call of each target are kept. With them the target's own corrections are called around a function that returns at once
what the engine returned, in turns with that function alone. One JSON line for each target goes to standard output.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import time
import tracemalloc
from inspect import Parameter, Signature, signature
from types import FunctionType
from typing import Any

CALLS, BLOCKS = 1000, 40


def main(engine: str, packages: dict[str, str]) -> None:
    from attnfix.prove import child, stubs

    stubs.install(engine)
    child._ease_engine(engine)
    proofs = {fix: importlib.import_module(f"attnfix.patches.{package}.proof") for fix, package in packages.items()}
    modules = {fix: child.imported_modules(proof) for fix, proof in proofs.items()}
    for fix, proof in proofs.items():
        for told in child._in_a_fork(_of_one_proof, fix, proof, modules[fix])["targets"]:
            print("TARGET" + json.dumps(told), flush=True)


def _of_one_proof(fix: str, proof: Any, modules: dict[str, Any]) -> dict[str, Any]:
    from attnfix.patches.scenario import NoSuchPath
    from attnfix.plugin import activation

    state = activation().states[fix]
    for one in activation().states.values():
        one.confirm = None  # what records the calls stands on the targets, as a foreign patcher would
    activation()._look_again = lambda: None  # a proof may import another target module
    if not state.armed:
        return {"targets": []}
    try:
        proof.prepare(modules)
        calls = _recorded(state, lambda: proof.control(0))
    except NoSuchPath:
        return {"targets": []}
    return {"targets": [_measured(place, *call) for place, call in calls.items()]}


def _recorded(state: Any, run: Any) -> dict[Any, tuple]:
    """place -> (wrapper, instance, args, kwargs, result) of the last call of each target of one fix during `run`."""
    from attnfix.compat.wrapping import TargetWrapper, live, swap

    calls: dict[Any, tuple] = {}

    def recording(place: Any, wrapper: Any) -> Any:
        def record(instance: Any, *args: Any, **kwargs: Any) -> Any:
            result = wrapper.function(instance, *args, **kwargs)
            calls[place] = wrapper, instance, args, kwargs, result
            return result

        return record

    wrappers = {place: wrapper for place in state.seats if (wrapper := TargetWrapper.of(live(place)))}
    for place, wrapper in wrappers.items():
        swap(place, recording(place, wrapper))
    run()
    for place, wrapper in wrappers.items():
        swap(place, wrapper.function)
    return calls


def _measured(place: Any, wrapper: Any, instance: Any, args: tuple, kwargs: dict, result: Any) -> dict[str, Any]:
    from attnfix.compat.wrapping import TargetWrapper

    plain = _returning(result, wrapper.wrapped)
    probe = TargetWrapper(plain, place, wrapper.by_name)
    pairs = wrapper.corrections
    for state, correction in pairs:
        probe.add(state, correction)
    kind = type(instance)
    kind.attnfix_plain, kind.attnfix_wrapped = plain, probe.function
    before = [(state.counters.corrections, state.counters.calls) for state, _ in pairs]
    stock, ours = _in_turns(instance, args, kwargs)
    grown = _growth(instance, args, kwargs)
    after = [(state.counters.corrections, state.counters.calls) for state, _ in pairs]
    return {
        "target": str(place),
        "fixes": [state.fix.id for state, _ in pairs],
        "unarmed": [f"{state.fix.id}: {state.reason}" for state, _ in pairs if not state.armed],
        "corrected": [state.fix.id for (state, _), a, b in zip(pairs, before, after) if b[0] > a[0]],
        "uncalled": [state.fix.id for (state, _), a, b in zip(pairs, before, after) if b[1] - a[1] < CALLS * BLOCKS],
        "stock": stock,
        "ours": ours,
        "grown": grown,
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


def _in_turns(instance: Any, args: tuple, kwargs: dict) -> tuple[list[float], list[float]]:
    """CPU time of one call in µs, a pair for each block of calls."""
    stock, ours = [], []
    gc.disable()
    for block in range(BLOCKS + 1):
        pair = [
            _block(instance, name, args, kwargs) for name in ("attnfix_plain", "attnfix_wrapped")[:: 1 if block % 2 else -1]
        ]
        if block:  # the first one warms up
            stock.append(pair[0 if block % 2 else 1])
            ours.append(pair[1 if block % 2 else 0])
    gc.enable()
    return stock, ours


def _block(instance: Any, name: str, args: tuple, kwargs: dict) -> float:
    if name == "attnfix_plain":
        began = time.thread_time()
        for _ in range(CALLS):
            instance.attnfix_plain(*args, **kwargs)
    else:
        began = time.thread_time()
        for _ in range(CALLS):
            instance.attnfix_wrapped(*args, **kwargs)
    return 1e6 * (time.thread_time() - began) / CALLS


def _growth(instance: Any, args: tuple, kwargs: dict) -> float:
    """Bytes that stay allocated per call, over many."""
    tracemalloc.start()
    for _ in range(10):
        instance.attnfix_wrapped(*args, **kwargs)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(CALLS):
        instance.attnfix_wrapped(*args, **kwargs)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / CALLS


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
