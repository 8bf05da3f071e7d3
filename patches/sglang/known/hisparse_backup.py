"""sglang.hisparse-backup, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, LONG_PROMPT, SHARED_BATCH

BUG = KnownBug(
    id="sglang.hisparse-backup",
    title="DeepSeek V4 with HiSparse loses compressed KV when 64 requests back up a token at once",
    symptom="Whole pages are copied to the host for one token each. Pages of some requests are overwritten, others are lost.",
    symptoms=(SHARED_BATCH, LONG_PROMPT, GARBAGE),
    releases=(">=0.5.13,<0.5.23",),
    code=("sglang.srt.managers.hisparse_coordinator:HiSparseCoordinator._eager_backup_previous_token",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", "DeepseekV4ForCausalLM"),
        Given("--enable-hisparse"),
        Unseen("steps in which 64 requests, or a multiple, complete a group of four tokens"),
    ),
    avoid="Set `--max-running-requests` below 64 for each data-parallel rank.",
)
