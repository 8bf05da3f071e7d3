"""sglang.pd-empty-states, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

#: Their states have no temporal part; those of lightning attention have no convolution
_EMPTY = (
    "BailingMoeV2_5ForCausalLM",
    "Lfm2ForCausalLM",
    "Lfm2MoeForCausalLM",
    "Lfm2VlForConditionalGeneration",
    "InklingForConditionalGeneration",
)

BUG = KnownBug(
    id="sglang.pd-empty-states",
    title="Every request of Ling 2.5, Ring 2.5, LFM2 and Inkling fails with P/D disaggregation over Mooncake",
    symptom="Requests fail with `Failed to send kv chunk`, later ones with `remote mooncake session ... is not alive`.",
    symptoms=(DIES,),
    releases=(">=0.5.9,<0.5.19",),
    code=(
        "sglang.srt.mem_cache.memory_pool:MambaPool._iter_transfer_state_tensors",
        "sglang.srt.mem_cache.memory_pool:MambaPool.get_contiguous_buf_infos",
    ),
    upstream=Upstream("sgl-project/sglang", pull=35689),
    hits=AllOf(
        Is("architecture", *_EMPTY),
        Is("--disaggregation-mode", "prefill", "decode"),
        Is("--disaggregation-transfer-backend", OFF, "mooncake", "mooncake_tcp"),
    ),
    avoid="Serve such a model without --disaggregation-mode.",
    harm=CRASH,
)
