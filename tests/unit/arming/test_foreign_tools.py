"""What other tools do with a function that attnfix has wrapped: Dynamo traces it, cloudpickle takes it apart."""

from __future__ import annotations

import cloudpickle
import pytest

from attnfix.compat.arming.activation import Activation


@pytest.fixture
def dynamo():
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch
    torch._dynamo.reset()


@pytest.mark.parametrize("loads", [("attention", "planning"), ("attention",)], ids=["armed", "pending"])
def test_a_compiled_caller_falls_apart_around_it_and_is_corrected(engine, dynamo, loads):
    """Stock, Dynamo would trace through it. That a break raises where the caller wants one graph is said by Dynamo, with our
    reason; neither engine does so around a target (tests/integration/test_compiled_regions.py)."""
    activation = Activation([engine.fix])
    engine.load(activation, *loads)
    from sglang.attention import Backend

    backend = Backend()
    x = dynamo.ones(3)
    expected = backend.forward(x) + 1
    found = dynamo.compile(lambda x: backend.forward(x) + 1, backend="eager")(x)
    assert found.equal(expected)
    (reason,) = dynamo._dynamo.utils.counters["graph_break"]
    assert "attnfix" in reason
    with pytest.raises(dynamo._dynamo.exc.Unsupported, match="attnfix"):
        dynamo.compile(lambda x: backend.forward(x) + 1, backend="eager", fullgraph=True)(x)


@pytest.mark.parametrize("what", ["function", "method", "class", "bound"])
def test_cloudpickle_by_value(engine, what):
    activation = Activation([engine.fix])
    planning = engine.load(activation, "attention", "planning")
    from sglang import attention

    picked = {
        "function": lambda: planning.plan, "method": lambda: attention.Backend.forward, "class": lambda: attention.Backend,
        "bound": lambda: attention.Backend().forward,
    }[what]()  # fmt: skip
    call = {
        "function": lambda it: it(1), "method": lambda it: it(None, 1), "class": lambda it: it().forward(1),
        "bound": lambda it: it(1),
    }[what]  # fmt: skip
    for module in (attention, planning):
        cloudpickle.register_pickle_by_value(module)
    try:
        again = cloudpickle.loads(cloudpickle.dumps(picked))
    finally:
        for module in (attention, planning):
            cloudpickle.unregister_pickle_by_value(module)
    # Corrected as it was here or, where nobody arms it, the engine's own
    assert call(again) in (call(picked), {"function": 2}.get(what, 2))
