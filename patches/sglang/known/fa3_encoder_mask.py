"""sglang.fa3-encoder-mask, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.doctor.sglang import ENCODERS
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND

_BACKEND = "sglang.srt.layers.attention.flashattention_backend:FlashAttentionBackend"

BUG = KnownBug(
    id="sglang.fa3-encoder-mask",
    title="Embeddings and scores of BERT-like models are wrong on fa3: tokens see only those before them",
    symptom="Similarities and ranks differ from those of other backends, as if the encoder were a decoder.",
    symptoms=(BACKEND,),
    releases=(">=0.5.1,<0.5.3.post2",),
    code=(f"{_BACKEND}.forward_extend",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("prefill backend", "fa3"),
        Is("architecture", *ENCODERS),
    ),
    avoid="Set `--attention-backend triton`.",
)
