"""Proof of sglang.triton-tree-window: trees of drafts verified in layers with a window, eager and replayed.

Spared: layers without a window, and chains.
"""

from attnfix.patches.lab.sglang.paged import FULL, SLIDING, WINDOW, Triton, case, launched, verify

from .wrap import by_mask, window_mask

TREE, CHAIN = (0, 0, 1, 1, 2, 3), (0, 1, 2, 3, 4, 5)
#: Cached tokens of each request: far behind the window, at its end, and within it
LONG, ONE = (25, WINDOW + 1, 3), (30,)
NARROW = 1  # a window that leaves ancestors out, too


def _over_drafts_alone(real, seen, window, most):
    mask = real(seen, window, most)
    mask[..., :most] = True
    return mask


class Proof(Triton):
    bug = (
        case(verify(LONG, TREE, layers=(SLIDING,)), pool=True, topk=2, drafts=7),
        case(verify(LONG, TREE, layers=(SLIDING,)), window=NARROW, topk=2, drafts=7),
        case(
            verify(LONG, TREE, graph=True, layers=(SLIDING,)),
            verify(ONE, TREE, graph=True, layers=(SLIDING,)),  # beside a request that is padding
            page_size=4, topk=2, drafts=7,
        ),
    )  # fmt: skip
    spared = (
        case(verify(LONG, TREE, layers=(FULL,)), topk=2, drafts=7),
        case(verify(LONG, CHAIN), verify(LONG, CHAIN, graph=True, layers=(SLIDING,)), topk=1, drafts=7),
    )
    around = {"`--speculative-eagle-topk 1`": launched(bug, CHAIN, topk=1)}
    broken = {
        "the correction does nothing": (by_mask, lambda real, args, launch, most: args),
        "there is no window": (window_mask, lambda real, seen, window, most: real(seen, 2 * most, most)),
        "the window is a token longer": (window_mask, lambda real, seen, window, most: real(seen, window + 1, most)),
        "the window spares what is cached": (window_mask, _over_drafts_alone),
    }
