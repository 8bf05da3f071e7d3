"""sglang.mamba-freed-crash, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SPECULATION

BUG = KnownBug(
    id="sglang.mamba-freed-crash",
    title="Hybrid models with MTP die when a request of structured output ends",
    symptom="\"'NoneType' object cannot be interpreted as an integer\" ends the server: what has ended is verified again.",
    symptoms=(DIES, SPECULATION),
    releases=(">=0.5.13,<0.5.16",),
    code=("sglang.srt.managers.schedule_batch:set_mamba_track_indices_from_reqs",),
    upstream=Upstream("sgl-project/sglang", issue=28484),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("tracked Mamba states", ON),
        AnyOf(Is("spec v2", ON), AllOf(Is("speculative algorithm", "NGRAM"), Since("0.5.14"))),
        Not(Given("--disable-overlap-schedule")),
        Unseen("requests with a JSON schema, a grammar or a forced tool call"),
    ),
    avoid="Start with `--disable-radix-cache --mamba-scheduler-strategy no_buffer`, or without speculation.",
    harm=CRASH,
)
