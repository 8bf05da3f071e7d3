"""sglang.encoder-xpu, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.doctor.sglang import BOTH_WAYS
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND

BUG = KnownBug(
    id="sglang.encoder-xpu",
    title="Wrong embeddings and scores of BERT-like models on Intel GPUs (intel_xpu)",
    symptom="Each token attends to earlier ones alone, though the model was trained to see the whole text.",
    symptoms=(BACKEND,),
    releases=(">=0.5.4,<0.5.20",),
    code=("sglang.srt.layers.attention.xpu_backend:XPUAttentionBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=35213),
    hits=AllOf(Is("prefill backend", "intel_xpu"), Is("architecture", *BOTH_WAYS)),
    avoid="Set `--attention-backend triton`.",
)
