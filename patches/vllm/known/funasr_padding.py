"""vllm.funasr-padding, as data."""

from attnfix.compat.doctor.condition import OFF, Above, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SHARED_BATCH

BUG = KnownBug(
    id="vllm.funasr-padding",
    title="Fun-ASR transcribes worse beside longer recordings: its adaptor attends to padding",
    symptom="A recording is transcribed well alone, and with errors where longer ones are encoded in the same step.",
    symptoms=(SHARED_BATCH,),
    releases=(">=0.18.0,<=0.33.0",),
    code=(
        "vllm.model_executor.models.funasr:Transformer.forward",
        "vllm.model_executor.models.funasr:EncoderLayer.forward",
    ),
    upstream=Upstream("vllm-project/vllm", pull=55167),
    hits=AllOf(
        Is("architecture", "FunASRForConditionalGeneration"),
        AnyOf(Is("--max-num-seqs", OFF), Above("--max-num-seqs", 1)),
        Unseen("recordings of different lengths in one step"),
    ),
    avoid="Start with `--max-num-seqs 1`.",
)
