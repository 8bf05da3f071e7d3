"""Proof of sglang.gemma3-mixed-images: prompts with and without images in one prefill on Triton, whose layers attend.

Spared: prompts that all have an image, prompts without any, and decodes.
"""

from __future__ import annotations

from typing import Any

from attnfix.patches.lab.proof import Observation
from attnfix.patches.lab.sglang import paged
from attnfix.patches.lab.sglang.gemma3 import CONTEXT, MODEL, Server, prompts
from attnfix.patches.lab.sglang.paged import FULL, Triton, case, decode

from .wrap import listed

IMAGE, BEHIND = (2, 7), (14, 20)  # first and last token


def of(*prefill: Any) -> Any:
    return prompts(*prefill, layers=(FULL,))


class Proof(Triton):
    modules: tuple[str, ...] = ("sglang.srt.layers.attention.triton_backend", MODEL, CONTEXT)
    may_lack = (CONTEXT,)
    needs = f"{MODEL}:Gemma3ForConditionalGeneration.prepare_attn_masks: custom_mask"
    absent = "no backend gets a mask of Gemma 3's images"
    bug = (
        case(of((0, 0), (12, 9), (IMAGE, None))),
        case(of((0, 9, 4), (5, 14, 8), (None, BEHIND, None)), page_size=4),
        case(of((0, 0), (9, 12), (None, IMAGE)), decode((9, 12), layers=(FULL,))),
    )
    spared = (
        case(of((0, 9), (12, 14), (IMAGE, BEHIND))),
        case(of((9,), (5,), (IMAGE,))),
        case(of((0, 9), (12, 14)), decode((12, 23), layers=(FULL,))),
    )
    broken = {
        "the correction does nothing": (listed, lambda real, images: images),
        "other prompts' images are taken off": (listed, lambda real, images: real([None] * len(images))),
        "the images are those of other prompts": (listed, lambda real, images: real(images[1:] + images[:1])),
    }

    def server(self, launch: paged.Launch, seed: int, of: type[paged.Server] = Server) -> paged.Server:
        return super().server(launch, seed, of)

    def run(self, case: paged.Case, seed: int) -> Observation:
        try:
            return super().run(case, seed)
        except AttributeError as ends:
            if "mm_items" not in str(ends):
                raise
            del self._servers[case.launch]  # it lacks the keys of this step's tokens
            return Observation(float("inf"), str(ends))
