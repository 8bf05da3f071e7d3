"""vllm.pp-pinned-inputs, as data."""

from attnfix.compat.doctor.condition import OFF, Above, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL, SHARED_BATCH

BUG = KnownBug(
    id="vllm.pp-pinned-inputs",
    title="A step runs with the next step's inputs (pipeline stages without async scheduling, V1 runner)",
    symptom="NaN or garbage comes at random under load, and with sparse MLA an illegal memory access.",
    symptoms=(GARBAGE, SHARED_BATCH, PARALLEL),
    releases=(">=0.10.0,<=0.33.0",),
    code=("vllm.v1.worker.gpu_model_runner:GPUModelRunner.__init__",),
    upstream=Upstream("vllm-project/vllm", pull=47644),
    hits=AllOf(
        Is("model runner", "V1"),
        Above("pipeline parallel size", 2),
        Is("async scheduling", OFF),
        Unseen("a step prepared before the last one's copies to the GPU have run"),
    ),
    avoid="Use two pipeline stages at most, with tensor parallelism within each.",
)
