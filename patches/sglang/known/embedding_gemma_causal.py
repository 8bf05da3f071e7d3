"""sglang.embedding-gemma-causal, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND

_CAUSAL = AnyOf(
    Is("prefill backend", "flashinfer", "trtllm_mha", "aiter", "torch_native", "flex_attention", "intel_amx", "ascend"),
    AllOf(Is("prefill backend", "intel_xpu"), Not(Since("0.5.20"))),
)

BUG = KnownBug(
    id="sglang.embedding-gemma-causal",
    title="Wrong embeddings from EmbeddingGemma on FlashInfer and others: tokens attend only to those before",
    symptom="Retrieval with EmbeddingGemma is poor, and embeddings differ from those of Sentence Transformers.",
    symptoms=(BACKEND,),
    releases=(">=0.5.17,<=0.5.23",),
    code=("sglang.srt.layers.attention.flashinfer_backend:FlashInferAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=32383),
    hits=AllOf(
        Is("architecture", "Gemma3TextModel"),
        AnyOf(
            _CAUSAL,
            Not(
                AnyOf(
                    *map(Given, ("--attention-backend", "--prefill-attention-backend")), Is("compute capability", 90, 100, 103)
                )
            ),
        ),
    ),
    avoid="Set `--attention-backend fa3` on Ampere, Ada and Hopper; elsewhere triton, for texts within the window.",
)
