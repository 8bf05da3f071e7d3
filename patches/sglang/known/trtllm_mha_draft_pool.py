"""sglang.trtllm-mha-draft-pool, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW, SPECULATION

BUG = KnownBug(
    id="sglang.trtllm-mha-draft-pool",
    title="Nearly no drafts are accepted beside a model with window layers (TRT-LLM MHA)",
    symptom="EAGLE on gpt-oss accepts few drafts or none on Blackwell, from 0.5.10 on beyond the window. The text is right.",
    symptoms=(SPECULATION, SLOW),
    releases=(">=0.5.9,<0.5.13",),
    code=("sglang.srt.layers.attention.trtllm_mha_backend:TRTLLMHAAttnBackend.__init__",),
    upstream=Upstream("sgl-project/sglang", pull=25103),
    hits=AllOf(
        Is("sliding-window KV pool", ON),
        Is("draft decode backend", "trtllm_mha"),
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
    ),
    avoid="Set `--speculative-draft-attention-backend triton`, or `--disable-hybrid-swa-memory`.",
    harm=SLOWER,
)
