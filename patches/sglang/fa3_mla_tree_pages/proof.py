"""Proof of sglang.fa3-mla-tree-pages: trees of drafts over latents in pages of several tokens, verified.

Spared: chains, pages of one token, drafts of trees, whose table is one of pages, and a server that drafts nothing.
"""

from typing import Any

from attnfix.patches.lab.sglang.paged import FULL, FlashAttention, case, decode, draft, launched, prefill, verify

from .wrap import is_second_pass, slots

LENS, TREE, CHAIN = (3, 21, 40), (0, 0, 1, 1, 2, 2), (0, 1, 2, 3, 4, 5)
LATENT: dict[str, Any] = {"latent": True, "window": None}
TREES: dict[str, Any] = {**LATENT, "topk": 2, "drafts": 7, "steps": 4}


def _verifies(parents=TREE):
    return tuple(verify(LENS, parents, graph=graph, layers=(FULL,)) for graph in (False, True))


def _as_wide_as_the_part(real, cache):
    shown = real(cache)
    return shown.as_strided(shown.shape, shown.contiguous().stride())


class Proof(FlashAttention):
    #: What plans drafts in pages of several tokens: in 0.5.6, and in later releases
    needs = "update_draft_decode_set_expand_metadata_with_page_size or draft_decode_set_expand_metadata"
    absent = "trees in pages of several tokens: the backend has no code for them, and servers refuse them"
    bug = tuple(case(*_verifies(), page_size=size, **TREES) for size in (16, 4))
    spared = (
        case(*_verifies(CHAIN), page_size=16, topk=1, drafts=7, **LATENT),
        case(*_verifies(), draft(LENS), draft(LENS, graph=True), page_size=1, **TREES),
        case(draft(LENS), draft(LENS, graph=True), page_size=16, **TREES),
        *(
            case(decode(LENS, layers=(FULL,)), prefill((0, 19, 38), (3, 2, 2), layers=(FULL,)), page_size=size, **LATENT)
            for size in (1, 16)
        ),
    )
    around = {"`--speculative-eagle-topk 1`": launched(bug, CHAIN, topk=1, steps=0)}
    broken = {
        "the correction does nothing": (is_second_pass, lambda real, launch, drafts: False),
        "the pass over what is cached is shown slots, too": (is_second_pass, lambda real, launch, drafts: True),
        "only one part of the latents is shown by slots": (
            slots,
            lambda real, cache: real(cache) if cache.storage_offset() else cache,
        ),
        "a slot is as wide as the part": (slots, _as_wide_as_the_part),
    }
