"""sglang.lora-captured-segments, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GRAPHS, SHARED_BATCH

BUG = KnownBug(
    id="sglang.lora-captured-segments",
    title="Requests of a LoRA adapter are answered by the base model beside those of another adapter",
    symptom="Decode steps in CUDA graphs apply the first adapter of a batch alone. Alone, each request is right.",
    symptoms=(SHARED_BATCH, GRAPHS),
    releases=(">=0.5.5.post3,<0.5.14",),
    code=("sglang.srt.lora.backend.chunked_backend:ChunkedSgmvLoRABackend.prepare_lora_batch",),
    upstream=Upstream("sgl-project/sglang", pull=28371),
    hits=AllOf(
        AnyOf(Given("--enable-lora"), Given("--lora-paths")),
        Not(Is("--lora-backend", "triton", "torch_native", "ascend")),
        Is("CUDA graphs", ON),
        Unseen("requests of several adapters, or without one, that decode together"),
    ),
    avoid="Set `--lora-backend triton`.",
)
