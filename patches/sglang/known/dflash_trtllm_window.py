"""sglang.dflash-trtllm-window, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

_BACKEND = "sglang.srt.layers.attention.trtllm_mha_backend:TRTLLMHAAttnBackend"

BUG = KnownBug(
    id="sglang.dflash-trtllm-window",
    title="Drafts of DFLASH on TRT-LLM MHA miss up to a block of the oldest keys of their window",
    symptom="Slightly fewer drafts are accepted beyond the window: all drafts of a block get the window of the last one.",
    symptoms=(SPECULATION,),
    releases=(">=0.5.18,<=0.5.23",),
    code=(f"{_BACKEND}.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=35209),
    harm=SLOWER,
    hits=AllOf(
        Is("speculative algorithm", "DFLASH"),
        AnyOf(
            Is("--speculative-draft-attention-backend", "trtllm_mha"),
            AllOf(Is("--speculative-draft-attention-backend", OFF), Is("prefill backend", "trtllm_mha")),
        ),
        Unseen("whether all layers of the drafter have a window and is_causal is false"),
    ),
    avoid="Set --speculative-draft-attention-backend to triton or flashinfer.",
)
