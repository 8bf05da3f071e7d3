"""vllm.flex-stale-blocks, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.flex-stale-blocks",
    title="FlexAttention loses context: blocks of a former request in the same row of the block table",
    symptom="Under load answers are wrong now and then. Directly after a start they are not.",
    symptoms=(SHARED_BATCH, GARBAGE, BACKEND),
    releases=(">=0.10.0,<0.10.2",),
    code=("vllm.v1.attention.backends.flex_attention:physical_to_logical_mapping",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("engine core", "V1"),
        Is("attention backend", "FLEX_ATTENTION"),
        Not(
            Is("architecture", "BertModel", "RobertaModel", "RobertaForMaskedLM", "XLMRobertaModel", "GteModel", "GteNewModel")
        ),
        Not(Is("architecture", "ModernBertModel", "NomicBertModel", "ModernBertForSequenceClassification")),
        Not(Is("architecture", *(f"{name}ForSequenceClassification" for name in ("Bert", "Roberta", "XLMRoberta")))),
    ),
    avoid="Select another attention backend with `VLLM_ATTENTION_BACKEND`.",
)
