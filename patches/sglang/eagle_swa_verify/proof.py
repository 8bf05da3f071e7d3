"""Proof of sglang.eagle-swa-verify: chains and trees of drafts of requests longer than the window, eager and replayed.

Spared: decode steps and prefills.
"""

from attnfix.patches.lab.sglang.paged import (
    CHAIN,
    FA3,
    TREE,
    TRITON,
    WINDOW,
    FlashInfer,
    case,
    decode,
    launched,
    prefill,
    verify,
)

from . import wrap

#: Tokens before the drafted ones. The mask of the others is mostly of the text behind the window, and they fill their graph
LONG, OTHERS, SHORT = (30, 3, 17), (WINDOW + 1, 40, 1, 9), (2, 3, 1)


class Proof(FlashInfer):
    needs = "FlashInferIndicesUpdaterPrefill.update_sliding_window: num_accept_tokens"
    absent = "verification of a model with window layers ends in a TypeError when it is planned"
    bug = tuple(
        case(*(verify(cached, parents, graph=graph) for cached in (LONG, OTHERS, SHORT)), topk=topk, **launch)
        for parents, topk, launch in (
            (CHAIN, 1, {"page_size": 4}),
            (TREE, 2, {"kv_dtype": "fp8_e4m3"}),
            (TREE, 2, {"pool": True}),
        )
        for graph in (False, True)
    )
    spared = (case(decode((30, 3, WINDOW, 12)), prefill((0, 0, 0), (WINDOW + 1, 4, 1)), topk=2),)
    #: Triton rounds weights to the cache's dtype, which costs more precision in FP8 than a proof allows
    around = {
        "`--attention-backend fa3` on Hopper": launched(bug, backend=FA3),
        "`triton` with `--speculative-eagle-topk 1`": launched(bug, CHAIN, topk=1, backend=TRITON, kv_dtype="auto"),
    }
    broken = {
        "the correction does nothing": (wrap, "FROM_THE_START", frozenset()),
        "the KV is cut as before": (wrap, "WHOLE", WINDOW),
        "the window is not planned": (wrap.windowed, lambda real, state, wrapper, plan, *_: plan),
        "trees are taken for chains": (wrap.rows_behind, lambda real, *_: 0),
        "the mask of trees stays": (wrap.within, lambda real, mask, *_: mask),
        "graphs share a mask": (wrap.keep_its_own_mask, lambda real, *_: None),
        "trees are called with the layer's window": (wrap.call_with_the_planned_window, lambda real, *_: None),
    }
