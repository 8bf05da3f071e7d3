"""vllm.swa-early-free, as data."""

from attnfix.compat.fix import Fix, Target, Upstream

from . import wrap

_MODULE = "vllm.v1.core.kv_cache_manager"

FIX = Fix(
    id="vllm.swa-early-free",
    title="FILL IN: the bug, as its user sees it",
    symptom="FILL IN: who sees it, with which model, launch and traffic, and whether there is an error.",
    symptoms=(),  # FILL IN: words of attnfix.compat.symptoms
    cause="FILL IN: what the engine's code does wrong.",
    correction="FILL IN: what the fix changes, and what it leaves alone.",
    upstream=Upstream("vllm-project/vllm"),  # FILL IN: pull, issue or report
    hardware="FILL IN: the GPUs and the options with which the code runs",
    targets=(
        Target(
            wrap.corrected,
            needed=wrap.is_needed,
            paths=(f"{_MODULE}:KVCacheManager.allocate_slots",),
        ),
    ),
    witnesses=(),  # FILL IN: other code that decides whether the bug is there
    hits=None,  # FILL IN: a condition over facts of a deployment
    cost="FILL IN: what a call costs that is corrected, and one that is not.",
    avoid="FILL IN: the flag, backend or release that avoids the bug without attnfix, or that nothing does.",
    expect="FILL IN: what changes on one replica, and how to see it.",
)
