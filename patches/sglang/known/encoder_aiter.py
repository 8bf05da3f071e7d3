"""sglang.encoder-aiter, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.doctor.sglang import BOTH_WAYS
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND

BUG = KnownBug(
    id="sglang.encoder-aiter",
    title="Wrong embeddings and scores of BERT-like models on AMD: AITER masks later tokens",
    symptom="Each token attends to earlier ones alone, though the model was trained to see the whole text.",
    symptoms=(BACKEND,),
    releases=(">=0.5.1,<=0.5.23",),
    code=("sglang.srt.layers.attention.aiter_backend:AiterAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=20102),
    hits=AllOf(Is("prefill backend", "aiter"), Is("architecture", *BOTH_WAYS)),
    avoid="Set `--attention-backend triton`.",
)
