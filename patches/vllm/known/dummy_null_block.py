"""vllm.dummy-null-block, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

BUG = KnownBug(
    id="vllm.dummy-null-block",
    title="Answers turn to NaN once a rank idles beside a working one (data parallelism)",
    symptom="After a rank was idle, answers are NaN or garbage: its idle steps write KV into the null block or an old one.",
    symptoms=(PARALLEL, GARBAGE),
    releases=(">=0.11.0,<0.20.0",),
    code=("vllm.v1.worker.gpu_model_runner:GPUModelRunner._dummy_run",),
    upstream=Upstream("vllm-project/vllm", pull=39444),
    hits=AllOf(
        Above("data parallel ranks", 1),
        Is("model runner", "V1"),
        AnyOf(
            Is("full CUDA graphs", ON),
            AllOf(Since("0.15.0"), Is("attention", "MHA")),
            AllOf(Since("0.17.0"), Not(Since("0.18.0"))),
        ),
        Unseen("ranks in lock step of which one idles, as with MoE models"),
    ),
    avoid="Set `--compilation-config.cudagraph_mode PIECEWISE`. From 0.15.0 on that helps MLA alone, not in 0.17: take 0.20.0.",
)
