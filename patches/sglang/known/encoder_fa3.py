"""sglang.encoder-fa3, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND

_ENCODERS = "BertModel", "BertForSequenceClassification", "XLMRobertaModel", "XLMRobertaForSequenceClassification"

BUG = KnownBug(
    id="sglang.encoder-fa3",
    title="Wrong embeddings and scores of BERT-like models with --attention-backend fa3",
    symptom="Each token attends to earlier ones alone, though the model was trained to see the whole text.",
    symptoms=(BACKEND,),
    releases=(">=0.5.1,<0.5.3.post2",),
    code=("sglang.srt.layers.attention.flashattention_backend:FlashAttentionBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(Is("prefill backend", "fa3"), Is("architecture", *_ENCODERS)),
    avoid="Set `--attention-backend triton`.",
)
