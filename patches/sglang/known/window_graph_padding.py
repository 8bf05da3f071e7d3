"""sglang.window-graph-padding, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, GRAPHS, SHARED_BATCH

_BUFFERS = "sglang.srt.model_executor.cuda_graph_runner:DecodeInputBuffers"

BUG = KnownBug(
    id="sglang.window-graph-padding",
    title="Sliding-window models lose accuracy under concurrency: padded graph rows overwrite KV of requests",
    symptom="Window layers read KV that padding wrote, when the number of requests lies between the captured batch sizes.",
    symptoms=(SHARED_BATCH, GRAPHS, GARBAGE),
    releases=(">=0.5.11,<0.5.12",),
    code=(f"{_BUFFERS}.populate_from_forward_batch",),
    upstream=Upstream("sgl-project/sglang", pull=24743),
    hits=AllOf(
        Is("sliding-window KV pool", ON),
        Is("CUDA graphs", ON),
        Not(Is("decode backend", "aiter")),
        Not(AllOf(Is("decode backend", "trtllm_mha"), Is("--kv-cache-dtype", "fp8_e4m3"))),
        Not(Given("--disable-cuda-graph-padding")),
    ),
    avoid="Set `--disable-hybrid-swa-memory`, which takes more memory, or `--disable-cuda-graph-padding`.",
)
