"""sglang.eagle-draft-positions, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Given, Is, Not
from attnfix.compat.doctor.sglang import LAYERED_DRAFTS
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW, SPECULATION

_SPECULATIVE = "sglang.srt.speculative"

BUG = KnownBug(
    id="sglang.eagle-draft-positions",
    title="EAGLE and MTP accept fewer drafts: draft steps are rotated one position too far",
    symptom="From the second draft on, drafts get positions that are one too high. The text is right.",
    symptoms=(SPECULATION, SLOW),
    releases=(">=0.5.1,<0.5.12",),
    code=(
        f"{_SPECULATIVE}.eagle_worker:EAGLEWorker.draft_forward",
        f"{_SPECULATIVE}.eagle_worker_v2:EagleDraftWorker.draft_forward",
    ),
    upstream=Upstream("sgl-project/sglang", pull=25015),
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Above("speculative steps", 1),
        Not(Given("--enable-multi-layer-eagle")),
        Not(AllOf(Is("speculative algorithm", "EAGLE"), Is("architecture", *LAYERED_DRAFTS))),
    ),
    avoid="Set `--speculative-num-steps 1`, whose only draft needs no such step.",
    harm=SLOWER,
)
