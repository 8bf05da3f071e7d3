"""sglang.encoder-trtllm-mha, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.doctor.sglang import BOTH_WAYS
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND

BUG = KnownBug(
    id="sglang.encoder-trtllm-mha",
    title="Wrong embeddings and scores of BERT-like models on B200: TRT-LLM masks later tokens",
    symptom="Each token attends to earlier ones alone. From 0.5.7 on TRT-LLM is the default on B200.",
    symptoms=(BACKEND,),
    releases=(">=0.5.1,<0.5.22",),
    code=("sglang.srt.layers.attention.trtllm_mha_backend:TRTLLMHAAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(Is("prefill backend", "trtllm_mha"), Is("architecture", *BOTH_WAYS)),
    avoid="Set `--attention-backend triton`.",
)
