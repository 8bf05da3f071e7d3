"""sglang.verify-ranks, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, PARALLEL, SPECULATION

from . import wrap

_PACKAGE = "sglang.srt.speculative"
#: Each of them verifies drafts, and has had these places
_VERIFIES = (
    (f"{_PACKAGE}.eagle_utils:EagleVerifyInput.verify", f"{_PACKAGE}.eagle_info:EagleVerifyInput.verify"),
    (f"{_PACKAGE}.eagle_info_v2:EagleVerifyInputV2Mixin.sample",),
    (f"{_PACKAGE}.eagle_utils:eagle_sample",),
    *(
        tuple(f"{_PACKAGE}.{home}:NgramVerifyInput._{kind}_verify" for home in ("ngram_utils", "ngram_info"))
        for kind in ("greedy", "sampling")
    ),
)

FIX = Fix(
    id="sglang.verify-ranks",
    title="The server hangs with drafts on several GPUs: ranks accept different numbers of them",
    symptom="All requests stop in the middle of their text, and the watchdog ends the server some minutes later.",
    symptoms=(DIES, PARALLEL, SPECULATION),
    cause=(
        "Each rank verifies from its own logits. Where these differ by rounding and two tokens are as likely, ranks accept "
        "different drafts, and their next batches differ in size."
    ),
    correction=(
        "The first rank's decision goes to all: on AMD GPUs every one, elsewhere those of sampled requests, up to the release "
        "that shares them itself. Servers over several machines stay as they are."
    ),
    upstream=Upstream("sgl-project/sglang", pull=31478, issue=28815),
    hardware="AMD GPUs, and any GPU with requests that are sampled (several of one machine, EAGLE, MTP or n-gram drafts)",
    default=True,
    default_reason="upstream shares the decision so, that on sampled requests from 0.5.11 on, and on AMD from 0.5.18 on",
    ranks_alike=True,
    independent=True,  # releases have some of them
    targets=tuple(Target(wrap.verify, needed=wrap.of_several_ranks, paths=paths) for paths in _VERIFIES),
    witnesses=(f"{_PACKAGE}.eagle_utils:verify_tree_greedy_func",),
    cost="Three broadcasts of some bytes for each verification.",
    avoid="Leave --tp-size at 1, or set no --speculative-algorithm.",
    expect="On one replica, answers stay as they are, and the server no longer stops under load.",
    harm=CRASH,
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE", "FROZEN_KV_MTP", "NGRAM"),
        Is("ranks that verify for themselves", ON),
        Is("several ranks on one machine", ON),
    ),
)
