"""sglang.hicache-load-fence, as data."""

from attnfix.compat.doctor.condition import OFF, ON, Above, AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="sglang.hicache-load-fence",
    title="A prefix that HiCache brings back may be overwritten by the step before",
    symptom="Rarely, under load, an answer whose prefix comes from host memory is wrong. The cached prefix stays wrong.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.5.2,<0.5.19",),
    code=("sglang.srt.managers.cache_controller:HiCacheController.start_loading",),
    upstream=Upstream("sgl-project/sglang", pull=36738),
    hits=AllOf(
        Given("--enable-hierarchical-cache"),
        Not(Given("--disable-overlap-schedule")),
        Not(Above("--pp-size", 1)),
        AnyOf(Since("0.5.5.post1"), Above("tokens of a page", 1)),
        AnyOf(Is("speculative decoding", OFF), Is("spec v2", ON)),
    ),
    avoid="Set `--disable-overlap-schedule`, which slows decoding, or leave out `--enable-hierarchical-cache`.",
    ran=("0.5.2", "0.5.18"),
)
