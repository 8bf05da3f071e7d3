"""Proof of sglang.triton-window-decode: decode steps of a Gemma 2 beyond its window, eager and replayed.

Spared: requests within the window, new tokens beyond it, and a model that hands its whole window on.
"""

from attnfix.patches.lab.sglang.paged import SLIDING, WINDOW, Triton, case, decode, decodes, on_fa3, prefill

from . import wrap

#: Cached tokens of each request. Steps of the first come up to the window, pass it, and are far behind it
LONG, ONE, SHORT = (WINDOW - 1, 30, WINDOW + 1, 40), (WINDOW + 2,), (1, WINDOW - 2)


def _without(*left):
    """The engine's functions of these names see the window as it is."""
    return (wrap.with_the_token, lambda real, call, backend: (
        call() if call.target.function.__name__ in left else real(call, backend)
    ))  # fmt: skip


def _for_good(real, call, backend):
    backend.sliding_window_size = wrap.window_of_decode(backend)
    return call()


class Proof(Triton):
    bug = (
        case(*decodes(LONG, layers=(SLIDING,)), page_size=4),
        case(*decodes(LONG, layers=(SLIDING,)), pool=True),
        case(*decodes(LONG, graph=True, layers=(SLIDING,))),
        case(*decodes(ONE, graph=True, layers=(SLIDING,)), pool=True, page_size=4),
    )
    spared = (
        case(*decodes(SHORT), *decodes(SHORT, graph=True), prefill((WINDOW + 3, 0), (2, WINDOW + 3))),
        case(*decodes(LONG, layers=(SLIDING,)), decode(ONE, graph=True), whole=True),
    )
    around = {"`--attention-backend fa3` on Hopper, below 0.5.7 beside `--disable-hybrid-swa-memory`": on_fa3(bug)}
    broken = {
        "the correction does nothing": (wrap.window_of_decode, lambda real, backend: backend.sliding_window_size),
        "the window is too long": (wrap.window_of_decode, lambda real, backend: real(backend) + 1),
        "the window stays longer": (wrap.with_the_token, _for_good),
        "in graphs alone": _without("init_forward_metadata"),
        "without graphs alone": _without("init_forward_metadata_out_graph", "init_forward_metadata_replay_cuda_graph"),
        "the graphs' buffer stays as it is": _without("init_cuda_graph_state"),
        "the graphs' buffer overflows": [_without("init_cuda_graph_state"), (wrap.holds, lambda real, *_: True)],
    }
