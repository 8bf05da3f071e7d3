"""vllm.encoder-graph-nan, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GRAPHS, IMAGES

BUG = KnownBug(
    id="vllm.encoder-graph-nan",
    title="Images turn into NaN where the vision encoder runs in CUDA graphs (FlashAttention)",
    symptom="Answers about some images are wrong or garbage, by their size. Without graphs of the encoder all are right.",
    symptoms=(IMAGES, GRAPHS),
    releases=(">=0.23.0,<0.31.0",),
    code=("vllm.v1.attention.ops.vit_attn_wrappers:flash_attn_maxseqlen_wrapper",),
    upstream=Upstream("vllm-project/vllm", pull=56922, issue=57136),
    hits=AllOf(
        Is("GPU", "NVIDIA"),
        Given("--compilation-config.cudagraph_mm_encoder"),
        Not(Is("--mm-encoder-attn-backend", "TORCH_SDPA", "TRITON_ATTN", "FLASHINFER")),
        Unseen("NaN left by one graph in the padding of another, with FlashAttention in the encoder"),
    ),
    avoid="Start without `--compilation-config.cudagraph_mm_encoder`, which is off by default.",
)
