"""vllm.pp-pinned-inputs, as data."""

from attnfix.compat.doctor.condition import OFF, Above, AllOf, Is, Unseen
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, PARALLEL, SHARED_BATCH
from attnfix.patches.vllm.shared.input_prep import RUNNER, WAITS

from . import wrap

FIX = Fix(
    id="vllm.pp-pinned-inputs",
    title="A step runs with the next step's inputs (pipeline stages without async scheduling, V1 runner)",
    symptom="NaN or garbage comes at random under load, and with sparse MLA an illegal memory access.",
    symptoms=(GARBAGE, SHARED_BATCH, PARALLEL),
    cause=(
        "With three stages or more, a step waits on a stage's GPU while the one before it runs. The next step overwrites the "
        "pinned memory that it has not been copied from yet. Only asynchronous scheduling waits for these copies."
    ),
    correction=(
        "The runner gets the event that asynchronous scheduling has: a step is prepared once the copies of the last one have "
        "run. Servers of two stages stay as they are, and so do releases before 0.11.0, which have no such event."
    ),
    upstream=Upstream("vllm-project/vllm", pull=47644),
    hardware="NVIDIA and AMD GPUs (three pipeline stages or more)",
    targets=(Target(wrap.init, needed=wrap.has_stages, paths=(f"{RUNNER}:GPUModelRunner.__init__",)),),
    witnesses=WAITS,
    cost="One event for each step. The host waits only where it would overwrite what the GPU has not read yet.",
    avoid="Start with two pipeline stages at most, with tensor parallelism within each.",
    expect="On one replica of three stages, answers under load become those of requests alone, to rounding.",
    hits=AllOf(
        Is("model runner", "V1"),
        Above("pipeline parallel size", 2),
        Is("async scheduling", OFF),
        Unseen("a step prepared before the last one's copies to the GPU have run"),
    ),
)
