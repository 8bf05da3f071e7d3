"""sglang.adaptive-graph-hook, as data."""

from attnfix.compat.doctor.condition import OFF, ON, Above, AllOf, Given, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS, SPECULATION

_RUNNER = "sglang.srt.model_executor.runner.decode_cuda_graph_runner:DecodeCudaGraphRunner"

BUG = KnownBug(
    id="sglang.adaptive-graph-hook",
    title="Crash at the first verification with adaptive speculation (DeepSeek-V4, CUDA graphs)",
    symptom="The server dies with an illegal memory access as soon as adaptive speculation changes its number of steps.",
    symptoms=(DIES, SPECULATION, GRAPHS),
    releases=(">=0.5.14,<0.5.19",),
    code=(f"{_RUNNER}._capture_one_stream", f"{_RUNNER}.capture_one_batch_size", f"{_RUNNER}.capture_one_shape"),
    upstream=Upstream("sgl-project/sglang", pull=35275, issue=30549),
    hits=AllOf(
        Given("--speculative-adaptive"),
        Is("architecture", "DeepseekV4ForCausalLM"),
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
        *(Is(flag, OFF) for flag in ("--enable-dp-attention", "--enable-two-batch-overlap", "--enable-pdmux")),
        Not(Above("--speculative-eagle-topk", 1)),
        Is("CUDA graphs", ON),
    ),
    avoid="Leave out `--speculative-adaptive`.",
    harm=CRASH,
)
