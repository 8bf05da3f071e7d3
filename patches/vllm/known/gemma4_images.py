"""vllm.gemma4-images, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import IMAGES

BUG = KnownBug(
    id="vllm.gemma4-images",
    title="Gemma 4 attends causally inside images",
    symptom="Gemma 4 describes images less well than other engines do: tokens of an image do not see those behind them.",
    symptoms=(IMAGES,),
    releases=(">=0.19.0,<0.20.0",),
    code=("vllm.model_executor.models.gemma4_mm:Gemma4ForConditionalGeneration.__init__",),
    upstream=Upstream("vllm-project/vllm", issue=40106, pull=40185),
    hits=AllOf(
        Is("architecture", "Gemma4ForConditionalGeneration"),
        Unseen('`use_bidirectional_attention` of "vision" in config.json, and requests with images'),
    ),
    avoid="Nothing within the release avoids it; take release 0.20.0.",
)
