"""sglang.drafter-idle-rank, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.doctor.sglang import LAYERED_DRAFTS
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL, SPECULATION

_WORKER = "sglang.srt.speculative.multi_layer_eagle_worker_v2:MultiLayerEagleDraftWorker"

BUG = KnownBug(
    id="sglang.drafter-idle-rank",
    title="Crash with DP attention, a drafter of several layers and an idle rank, in steps outside CUDA graphs",
    symptom='The scheduler dies with "max(): Expected reduction dim to be specified" when one rank has no request.',
    symptoms=(DIES, PARALLEL, SPECULATION),
    releases=(">=0.5.16,<0.5.18",),
    code=(f"{_WORKER}._draft_extend_for_decode",),
    upstream=Upstream("sgl-project/sglang", pull=33892),
    hits=AllOf(
        Given("--enable-dp-attention"),
        Is("speculative algorithm", "EAGLE", "EAGLE3"),
        AnyOf(
            Given("--enable-multi-layer-eagle"),
            AllOf(Is("speculative algorithm", "EAGLE"), Is("architecture", *LAYERED_DRAFTS)),
        ),
        Is("draft extend backend", "fa3", "fa4", "aiter"),
        AnyOf(
            Is("CUDA graphs", OFF),
            Given("$SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH"),
            Unseen("whether a rank is idle while others decode batches above the largest graph"),
        ),
    ),
    avoid="Leave out `--enable-dp-attention`, or speculative decoding.",
    harm=CRASH,
)
