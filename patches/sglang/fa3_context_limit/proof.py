"""Proof of sglang.fa3-context-limit: verification and draft steps of requests just below the context length, in CUDA graphs.

Behind the page tables lie random words that belong to others, and FlashAttention knows no end of a row. Spared: short requests,
long ones without a graph, and a server that drafts nothing, up to the limit.
"""

from attnfix.patches.lab.sglang.paged import CONTEXT, FULL, FlashAttention, case, decode, draft, launched, prefill, verify

from .wrap import addressable

CHAIN = (0, 1, 2, 3, 4, 5)
DRAFTS = len(CHAIN) + 1
LONGEST = CONTEXT - 4  # tokens in the cache of a request that gets one more token
#: Cached tokens of each request: one near the limit in front of a short one, and one behind
LONG, SHORT = (LONGEST, 17, 9, LONGEST), (CONTEXT - DRAFTS, 0, 5, CONTEXT - DRAFTS)
LAUNCHES = {"page_size": 1}, {"page_size": 4, "kv_dtype": "fp8_e4m3"}


def _verify(lens, graph=True):
    return verify(lens, CHAIN, graph=graph, layers=(FULL,))


def _drafts(lens):
    return _verify(lens), draft(lens, graph=True)


class Proof(FlashAttention):
    bug = tuple(case(step, window=None, topk=1, drafts=DRAFTS, **launch) for launch in LAUNCHES for step in _drafts(LONG))
    spared = (
        *(
            case(*_drafts(SHORT), _verify(LONG, graph=False), window=None, topk=1, drafts=DRAFTS, **launch)
            for launch in LAUNCHES
        ),
        *(case(decode(LONG, graph=True), prefill((9, 0), (7, 5)), window=None, **launch) for launch in LAUNCHES),
    )
    around = {"`--disable-cuda-graph`": launched(bug, eager=True)}
    broken = {
        "the correction does nothing": (addressable, lambda real, backend: backend.max_context_len),
        "the last draft tokens are forgotten": (addressable, lambda real, backend: LONGEST + DRAFTS - 2),
    }
