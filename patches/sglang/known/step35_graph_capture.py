"""sglang.step35-graph-capture, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS, SPECULATION

_RUNNER = "sglang.srt.speculative.multi_layer_eagle_draft_extend_cuda_graph_runner"

BUG = KnownBug(
    id="sglang.step35-graph-capture",
    title="Step-3.5 does not start with its draft layers and CUDA graphs",
    symptom="The capture of the draft graphs ends with an AttributeError on `hidden_states`.",
    symptoms=(DIES, GRAPHS, SPECULATION),
    releases=(">=0.5.10,<0.5.11",),
    code=(f"{_RUNNER}:MultiLayerEagleDraftExtendCudaGraphRunner.capture_one_batch_size",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", "Step3p5ForCausalLM"),
        Is("speculative algorithm", "EAGLE"),
        Is("CUDA graphs", ON),
    ),
    avoid="Start without `--speculative-algorithm`.",
    harm=CRASH,
)
