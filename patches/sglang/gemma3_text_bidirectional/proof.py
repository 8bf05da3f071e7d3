"""Proof of sglang.gemma3-text-bidirectional: layers of Gemma 3 attend to prompts of text on Triton, without graphs and chunks.

Spared: prompts with images, EmbeddingGemma, decodes, and servers with chunks.
"""

from __future__ import annotations

from attnfix.patches.lab.sglang import paged
from attnfix.patches.lab.sglang.gemma3 import BOTH_WAYS, CONTEXT, LAYERS, MODEL, Server, prompts
from attnfix.patches.lab.sglang.paged import FULL, Triton, case, decode, prefill

from .wrap import causal

EAGER = "--disable-cuda-graph", "--chunked-prefill-size", "-1"
TEXT, LONGER = ((0, 0), (12, 9)), ((9, 0), (5, 30))


class Proof(Triton):
    modules: tuple[str, ...] = ("sglang.srt.layers.attention.triton_backend", MODEL, LAYERS, CONTEXT)
    may_lack = (CONTEXT, MODEL, LAYERS)
    needs = "TritonAttnBackend.forward_extend: allow_bidirectional_attention_in_extend"
    absent = "Triton reads all prompts of Gemma 3 causally"
    bug = (
        case(prefill(*TEXT), prefill(*LONGER), flags=EAGER),
        case(prefill(*TEXT), decode((12, 9), layers=(FULL,)), page_size=4, flags=EAGER),
        case(prefill(*TEXT), flags=(*EAGER, "--enable-deterministic-inference")),
    )
    spared = (
        case(prefill(*TEXT), prefill(*LONGER), flags=EAGER[:1]),
        case(prefill(*TEXT), prefill(*LONGER), flags=EAGER[1:]),
        case(prompts((0, 9), (12, 14), ((2, 7), (14, 20)), layers=(FULL,)), flags=EAGER),
        case(prefill((0, 0), (12, 9), layers=(FULL,)), flags=EAGER, modes=(BOTH_WAYS,)),
        case(prefill((0,), (1,)), decode((1,)), flags=EAGER[:1]),
    )
    broken = {
        "the correction does nothing": (causal, lambda real, attn_type: attn_type),
        "the layer is an encoder's": (causal, lambda real, attn_type: type(attn_type).ENCODER_ONLY),
    }

    def server(self, launch: paged.Launch, seed: int, of: type[paged.Server] = Server) -> paged.Server:
        return super().server(launch, seed, of)
