"""sglang.trtllm-mla-eager-drafts, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.trtllm-mla-eager-drafts",
    title="Servers crash with EAGLE and MTP where a step runs without a CUDA graph (TRT-LLM MLA)",
    symptom="Accepted tokens are viewed as equally many per request: the view fails if requests accept different counts.",
    symptoms=(DIES,),
    releases=(">=0.5.6.post1,<0.5.8",),
    code=("sglang.srt.layers.attention.trtllm_mla_backend:TRTLLMMLABackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MLA"),
        Is("draft extend backend", "trtllm_mla"),
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
        Is("spec v2", OFF),
        AnyOf(Is("CUDA graphs", OFF), Unseen("batches above --cuda-graph-max-bs")),
    ),
    avoid="CUDA graphs for all batches: no --disable-cuda-graph, and --max-running-requests up to --cuda-graph-max-bs.",
)
