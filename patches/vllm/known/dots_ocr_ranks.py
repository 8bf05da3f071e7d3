"""vllm.dots-ocr-ranks, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, IMAGES

BUG = KnownBug(
    id="vllm.dots-ocr-ranks",
    title="dots.ocr misreads every page on several ranks: keys and values of the encoder are mixed up",
    symptom="With `--tensor-parallel-size` above 1, the text of a page is invented. One rank alone reads it right.",
    symptoms=(IMAGES, GARBAGE),
    releases=(">=0.13.0,<=0.33.0",),
    code=("vllm.model_executor.models.dots_ocr:DotsVisionAttention.forward",),
    upstream=Upstream("vllm-project/vllm", report="vllm-dots-ocr-ranks"),
    hits=AllOf(
        Is("architecture", "DotsOCRForCausalLM"),
        Above("--tensor-parallel-size", 1),
        Not(Is("--mm-encoder-tp-mode", "data")),
    ),
    avoid="Set `--mm-encoder-tp-mode data`.",
)
