"""sglang.mamba-empty-node, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES

from . import wrap

_TREE = "sglang.srt.mem_cache.mamba_radix_cache:MambaRadixCache"
_REQUEST = "sglang.srt.managers.schedule_batch:Req"

FIX = Fix(
    id="sglang.mamba-empty-node",
    title="Crash some time after a prompt of exactly one cached page (hybrid models)",
    symptom=(
        'The scheduler of a hybrid model (Qwen3-Next, Qwen3.5, NemotronH) with pages of several tokens dies with "parent does '
        'not have child key" as it evicts. Some time before, a prompt came that is exactly one cached page. Or it wanted '
        "logprobs from within its cached first page."
    ),
    symptoms=(DIES,),
    cause=(
        "The last token of a prompt may not be matched. The radix cache finds the first page with that token all the same, "
        "sees that less than a page matches, and splits the cached node behind no token. The empty node that is left cannot "
        "be removed."
    ),
    correction="A prompt of which less than a page may be matched matches nothing, and leaves the cache as it is.",
    upstream=Upstream("sgl-project/sglang", pull=28692),
    hardware="any GPU (hybrid models with the radix cache and pages of several tokens, as trtllm_mha has)",
    default_reason="upstream has not merged its change; the radix cache of later releases matches whole pages",
    targets=(
        Target(
            wrap.match_pre_processor,
            needed=wrap.cuts_a_page,
            paths=(f"{_TREE}._match_pre_processor",),
        ),
    ),
    # Matching, splitting and removal; the trees that servers choose
    witnesses=(
        f"{_TREE}.match_prefix",
        f"{_TREE}._match_prefix_helper",
        f"{_TREE}._split_node",
        f"{_TREE}._iteratively_delete_tombstone_leaf",
        f"{_TREE}._delete_tombstone_leaf",
        "sglang.srt.mem_cache.radix_cache:RadixKey",
        "sglang.srt.mem_cache.registry:default_radix_cache_factory",
        f"{_REQUEST}.init_next_round_input",
        f"{_REQUEST}._compute_max_prefix_len",
    ),
    cost="A look at host numbers for each prompt that is matched. No prompt loses a cached token.",
    avoid=(
        "Set `--page-size 1` and, on Blackwell, `--attention-backend triton`, as trtllm_mha has larger pages: no page "
        "matches in part; trtllm_mha is lost."
    ),
    expect=(
        "On one replica, ask a prompt of several pages, then its first page alone, then others until the cache is full: stock, "
        "the scheduler dies; fixed, it serves on."
    ),
    harm=CRASH,
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("tracked Mamba states", ON),
        Above("tokens of a page", 1),
        Is("radix cache for recurrent states alone", ON),
    ),
)
