"""sglang.trtllm-mla-draft-rows, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

_BACKEND = "sglang.srt.layers.attention.trtllm_mla_backend:TRTLLMMLABackend"

BUG = KnownBug(
    id="sglang.trtllm-mla-draft-rows",
    title="EAGLE and MTP accept fewer drafts: accepted tokens do not see the newest ones (TRT-LLM MLA)",
    symptom="The draft layer reads a padded row of accepted tokens as if it ended at the last one.",
    symptoms=(SPECULATION,),
    releases=(">=0.5.4,<0.5.4.post2",),
    code=(f"{_BACKEND}.forward_extend",),
    upstream=Upstream("sgl-project/sglang"),
    harm=SLOWER,
    hits=AllOf(
        Is("attention", "MLA"),
        Is("draft extend backend", "trtllm_mla"),
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
    ),
    avoid="Nothing within the release avoids it; take release 0.5.4.post2.",
)
