"""Proof of vllm.dummy-draft-kv: whether keys that a drafter has in the cache stay, while its rank has nothing to do.

Spared: a dummy run before the first request; and one draft, which the batch's own slots are for: a dummy batch has none.
"""

from attnfix.patches.lab.proof import NoSuchPath, code_of
from attnfix.patches.lab.vllm.model_runner_v2 import AUTO, BUFFERS, ROWS, TABLES, DraftingRank, RunnerV2, idles
from attnfix.patches.lab.vllm.scheduling import case

from . import wrap


class Proof(RunnerV2):
    kind = DraftingRank
    modules = (TABLES, AUTO, BUFFERS)
    may_lack = modules
    measure = "share of prefixes whose keys of the drafter were overwritten"
    needs = "BlockTables.__init__: slot_mapping_enabled"
    absent = "the engine has no way to give a batch no slots, so that nothing could be corrected safely"
    bug = (
        case(idles(True, False, again=True), drafts=3, page_size=16, max_requests=ROWS),
        case(idles(True, True, True, graph=True), drafts=3, page_size=16, max_requests=ROWS),
        case(idles(True, prompt=90), drafts=2, page_size=32, max_requests=ROWS),
        case(idles(True, multi=True), drafts=3, page_size=16, max_requests=ROWS),
    )
    spared = (
        case(idles(False, idle=False, early=True, again=True), drafts=3, page_size=16, max_requests=ROWS),
        case(idles(True, False), drafts=1, page_size=16, max_requests=ROWS),
    )
    broken = {
        "what was changed stays": (wrap, "put_back", lambda enabled, former: None),
        "nothing is changed": (wrap, "switch_off", lambda enabled: None),
    }

    def prepare(self):
        super().prepare()
        if "dummy_run" not in code_of(self.engine[AUTO].AutoRegressiveSpeculator.propose).co_varnames:
            raise NoSuchPath("a dummy run drafts nothing in Model Runner V2")
