"""vllm.dp-stale-mamba-block, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GRAPHS, PARALLEL

BUG = KnownBug(
    id="vllm.dp-stale-mamba-block",
    title="Follow-up turns are garbage once a rank idled (hybrid models, data parallelism, prefix caching)",
    symptom="A prefix hit answers with token 0 or NaN: an idle step wrote a recurrent state into a block of a former request.",
    symptoms=(PARALLEL, GRAPHS),
    releases=(">=0.11.1,<0.19.0",),
    code=("vllm.v1.worker.gpu_model_runner:GPUModelRunner._dummy_run",),
    upstream=Upstream("vllm-project/vllm", pull=37728),
    hits=AllOf(
        Is("recurrent layers", ON),
        AnyOf(
            Is("cached prefixes of a hybrid model", ON),
            AllOf(Since("0.18.0"), Is("loads beside steps", ON)),  # a received state is written over
        ),
        Above("data parallel ranks", 1),
        Is("full CUDA graphs", ON),
        Unseen("ranks in lock step of which one idles"),
    ),
    avoid="Start with --compilation-config.cudagraph_mode PIECEWISE.",
)
