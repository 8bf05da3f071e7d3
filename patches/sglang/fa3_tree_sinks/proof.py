"""Proof of sglang.fa3-tree-sinks: trees of drafts of a model with attention sinks, drafted and verified.

Spared: trees without sinks, chains with them, a server that drafts nothing, and layers with a window, in one pass.
"""

from attnfix.patches.lab.sglang.paged import FULL, SLIDING, FlashAttention, case, decode, draft, launched, prefill, verify

from .wrap import is_first_pass

LENS, TREE, CHAIN = (3, 21, 40), (0, 0, 1, 1, 2, 2), (0, 1, 2, 3, 4, 5)
#: Pages of several tokens have code for trees from 0.5.7 on, and servers take them from 0.5.13 on
PAGES = {1: "", 16: "draft_decode_set_expand_metadata"}


def _drafted(size, where, parents=TREE, **launch):
    """Both models' attention, eager and replayed."""
    topk, steps = (2, 4) if parents is TREE else (1, 0)
    both = (step for graph in (False, True) for step in (
        verify(LENS, parents, graph=graph, layers=(FULL,)), draft(LENS, graph=graph)
    ))  # fmt: skip
    return case(*both, where=where, window=None, page_size=size, topk=topk, drafts=7, steps=steps, **launch)


class Proof(FlashAttention):
    bug = tuple(_drafted(size, where, sinks=True) for size, where in PAGES.items())
    spared = (
        *(_drafted(size, where) for size, where in PAGES.items()),
        *(_drafted(size, where, CHAIN, sinks=True) for size, where in PAGES.items()),
        *(
            case(decode(LENS), prefill((0, 19, 38), (3, 2, 2)), where=where, window=None, page_size=size, sinks=True)
            for size, where in PAGES.items()
        ),
        case(
            *(verify(LENS, TREE, graph=graph, layers=(SLIDING,)) for graph in (False, True)),
            where="FlashAttentionBackend._init_sliding_window_attn_spec_metadata", sinks=True, topk=2, drafts=7, steps=4,
        ),
    )  # fmt: skip
    around = {"`--speculative-eagle-topk 1`": launched(bug, CHAIN, topk=1, steps=0)}
    broken = {
        "the correction does nothing": (is_first_pass, lambda real, launch, drafts: False),
        "sinks are in no pass": (is_first_pass, lambda real, launch, drafts: "sinks" in launch),
        "sinks are in the first pass": (
            is_first_pass,
            lambda real, launch, drafts: "sinks" in launch and launch["page_table"] is drafts,
        ),
    }
    #: Where the first pass may have no key: else it is as right as the second
    broken_where = {"sinks are in the first pass": PAGES[16]}
