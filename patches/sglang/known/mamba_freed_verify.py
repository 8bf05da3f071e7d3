"""sglang.mamba-freed-verify, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="sglang.mamba-freed-verify",
    title="A request that has ended overwrites the recurrent state of another one (hybrid models, speculation)",
    symptom="Answers of hybrid models with speculation turn wrong under load, when requests end or are retracted.",
    symptoms=(SHARED_BATCH, SPECULATION, GARBAGE),
    releases=(">=0.5.16,<0.5.22",),
    code=("sglang.srt.managers.schedule_batch:set_mamba_track_indices_from_reqs",),
    upstream=Upstream("sgl-project/sglang", pull=29449),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("tracked Mamba states", ON),
        Is("speculative decoding", ON),
        Unseen("a request that ends while its verification is in flight"),
    ),
    avoid="Start with --mamba-radix-cache-strategy no_buffer, or without speculation.",
)
