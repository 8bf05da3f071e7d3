"""Every fix, in the order in which the corrections of one target run. To add one: write its folder, add one line here."""

from attnfix.patches.sglang import zero_kv_rows
from attnfix.patches.vllm import empty_context_chunks

FIXES = (
    zero_kv_rows.FIX,
    empty_context_chunks.FIX,
)

BY_ID = {fix.id: fix for fix in FIXES}
