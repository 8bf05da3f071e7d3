"""sglang.draft-probs-graph-pool, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Given, Is, Not
from attnfix.compat.doctor.sglang import LAYERED_DRAFTS
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, GRAPHS, SPECULATION

BUG = KnownBug(
    id="sglang.draft-probs-graph-pool",
    title="Wrong speculative text, or a crash, with rejection sampling: the target overwrites the drafts' odds",
    symptom="Text with --speculative-use-rejection-sampling and CUDA graphs is wrong, or sampling fails on bad numbers.",
    symptoms=(SPECULATION, GRAPHS, GARBAGE),
    releases=(">=0.5.15,<0.5.21",),
    code=("sglang.srt.speculative.eagle_worker_v2:EagleDraftWorker.draft",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("GPU", "NVIDIA"),
        Given("--speculative-use-rejection-sampling"),
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
        Above("speculative steps", 1),
        Is("CUDA graphs", ON),
        Not(Given("--enable-multi-layer-eagle")),
        Not(AllOf(Is("speculative algorithm", "EAGLE"), Is("architecture", *LAYERED_DRAFTS))),
    ),
    avoid="Leave --speculative-use-rejection-sampling out.",
)
