"""sglang.eagle-draft-positions, as data."""

from attnfix.compat.doctor.condition import OFF, Above, AllOf, Is
from attnfix.compat.fix import SLOWER, Fix, Target, Upstream
from attnfix.compat.symptoms import SLOW, SPECULATION

from . import wrap

_SPECULATIVE = "sglang.srt.speculative"
_V1 = f"{_SPECULATIVE}.eagle_worker:EAGLEWorker"
#: In 0.5.3.post2 and .post3 the second worker drafts itself
_WORKERS = _V1, *(f"{_SPECULATIVE}.eagle_worker_v2:{worker}" for worker in ("EagleDraftWorker", "EAGLEWorkerV2"))

FIX = Fix(
    id="sglang.eagle-draft-positions",
    title="EAGLE and MTP accept fewer drafts: draft steps are rotated one position too far",
    symptom="From the second draft on, drafts get positions that are one too high. The text is right.",
    symptoms=(SPECULATION, SLOW),
    harm=SLOWER,
    cause=(
        "A draft step adds 1 to the positions before it runs the draft model. They were those of the next tokens already: "
        "drafts are rotated for one place, and their KV are written to the place before it."
    ),
    correction="Positions begin one lower. Rows of padding, which begin at 0, are rotated for 0 then, as upstream's are.",
    upstream=Upstream("sgl-project/sglang", pull=25015),
    hardware="any GPU",
    targets=tuple(
        Target(wrap.draft_forward, needed=wrap.drafts_several, paths=(f"{worker}.draft_forward",)) for worker in _WORKERS
    ),
    # Makers of the positions
    witnesses=(
        f"{_V1}._draft_preprocess_decode",
        f"{_SPECULATIVE}.eagle_info_v2:EagleDraftInputV2Mixin.prepare_for_v2_draft",
    ),
    default=True,
    default_reason="upstream corrected the same in 0.5.12, and verification decides the text",
    independent=True,  # a server drafts with one of the workers
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Above("speculative steps", 1),
        Is("several draft layers", OFF),
    ),
    cost="One addition over a few numbers in each round of drafts, within its CUDA graph.",
    avoid="Set `--speculative-num-steps 1`, whose only draft needs no such step.",
    expect=(
        "On one replica with 2 draft steps or more, more drafts are accepted: compare `accept len` of its log lines for the "
        "same prompts. A correction in a CUDA graph is counted once, when the graph is captured."
    ),
)
