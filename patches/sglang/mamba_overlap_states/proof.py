"""Proof of sglang.mamba-overlap-states: prompts begin with what a server of a hybrid model has computed before.

Spared: launches without overlap or without kept states. Real and played parts: `lab.sglang.hybrid_queue`. The played GPU has
run a step before the host processes the result of the last one.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation
from attnfix.patches.lab.sglang import construction, hybrid_queue, tracked_states

from . import wrap

_TREE, _SCHEDULE = "sglang.srt.mem_cache.mamba_radix_cache", "sglang.srt.managers.schedule_batch"
_POOLS, _ARGS = "sglang.srt.mem_cache.memory_pool", "sglang.srt.server_args"
_PROCESSOR = "sglang.srt.managers.scheduler_output_processor_mixin"
_JET = "sglang.srt.configs.jet_nemotron"
_JET_NEMOTRON = {
    **construction.LLAMA, "architectures": ["JetNemotronForCausalLM"], "model_type": "jet_nemotron", "num_hidden_layers": 2,
    "layer_types": ["jet", "attn"], "max_position_embeddings": 512, "initializer_range": 0.02, "rope_scaling": None,
    "efficient_attention_config": {"jet": {
        "mode": "chunk", "expand_v": 1.0, "num_heads": 2, "head_dim": 16, "norm_eps": "1e-5", "conv_size": 4,
        "dconv_generator_reduction": 8, "dconv_implementation": "triton",
    }},
}  # fmt: skip


class Case(NamedTuple):
    """`talk`: of each request, how many tokens of what was said it begins with, how many are new, and how many are answered;
    of a server with these `flags` and this model."""

    talk: tuple[tuple[int, int, int], ...]
    where: str = ""
    flags: tuple[str, ...] = ()
    config: dict[str, Any] = tracked_states.QWEN3_NEXT


_PROMPTS, _WHOLE = ((0, 12, 6), (12, 7, 5), (12, 4, 4)), ((0, 12, 6), (17, 7, 5), (28, 4, 4))
#: Releases that overlap the steps of Qwen3-Next
_OVERLAPS = f"no {_ARGS}:ServerArgs._handle_model_specific_adjustments: disable_overlap_schedule"
_NO_OVERLAP, _NO_CACHE = ("--disable-overlap-schedule",), ("--disable-radix-cache",)


class Proof(Cases):
    modules = ("sglang.srt.layers.quantization", _ARGS, _SCHEDULE, _POOLS, _TREE, _PROCESSOR, _JET)
    may_lack = (_TREE, _PROCESSOR, _JET)
    kernel = "none"
    needs = f"no {_POOLS}:HybridReqToTokenPool.__init__: enable_mamba_extra_buffer"
    absent = "states are kept in buffers of their own, or steps do not overlap"
    measure = "share of requests that begin with another state than theirs"
    bug = (
        Case(_PROMPTS, _OVERLAPS), Case(_WHOLE, f"no {_SCHEDULE}:Req.pop_committed_kv_cache"),
        Case(_PROMPTS, f"{_JET}:JetNemotronConfig", config=_JET_NEMOTRON),
    )  # fmt: skip
    spared = (Case(_PROMPTS, flags=_NO_OVERLAP), Case(_WHOLE, flags=_NO_OVERLAP), Case(_PROMPTS, flags=_NO_CACHE))
    broken = {"the correction does nothing": (wrap.one_at_a_time, lambda real, args: None)}

    def prepare(self) -> None:
        super().prepare()
        if _TREE not in self.engine:
            raise NoSuchPath("no radix cache keeps states")

    def run(self, case: Case, seed: int) -> Observation:
        draw = random.Random(seed)
        server = hybrid_queue.Server(400, 24, None, case.flags, case.config)
        said: list[int] = []
        for kept, new, answer in case.talk:
            prompt = [*said[:kept], *(draw.randrange(1, 64) for _ in range(new))]
            said = [*prompt, *(draw.randrange(1, 64) for _ in range(answer))]
            server.arrive(prompt, said[len(prompt) :])
            while server.step():
                pass
        outcome = [(one.rid, len(one.prefix_indices)) for one in server.finished], sorted(server.wrong)
        return Observation(len(server.wrong) / len(server.texts), hashlib.sha256(repr(outcome).encode()).hexdigest())
