"""Proof of sglang.verify-ranks: two ranks verify the same drafts, and their logits differ as rounding makes them differ.

Real: what verifies, up to the slots of rejected drafts. Stood in for: the kernels that walk the tree of drafts, renormalise and
sample, and the group of ranks, of which the second gets what the first sent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, observe, replaced
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    construction,
)
from attnfix.patches.lab.sglang.engine import on_cpu

from . import wrap

_PACKAGE = "sglang.srt.speculative"
_UTILS, _INFO, _V2 = f"{_PACKAGE}.eagle_utils", f"{_PACKAGE}.eagle_info", f"{_PACKAGE}.eagle_info_v2"
_NGRAM, _FORMER = f"{_PACKAGE}.ngram_info", f"{_PACKAGE}.ngram_utils"
_DISTRIBUTED, _GROUPS = "sglang.srt.distributed", "sglang.srt.distributed.parallel_state"
_VERIFY = f"{_INFO}:EagleVerifyInput.verify or {_UTILS}:EagleVerifyInput.verify"
_SAMPLE = f"{_V2}:EagleVerifyInputV2Mixin.sample or {_UTILS}:eagle_sample"
_BY_NGRAM = f"{_NGRAM}:NgramVerifyInput._sampling_verify or {_FORMER}:NgramVerifyInput._sampling_verify"
_TREE = "tree_speculative_sampling_target_only"
#: What n-gram drafts' verification calls how many drafts are accepted, and where: the names changed
_NAMES = ("num_correct_drafts", "num_accepted_drafts", "accept_length"), ("accept_indices", "accepted_indices", "accept_index")
REQUESTS, DRAFTS, VOCABULARY = 6, 4, 32


class Case(NamedTuple):
    """`who` verifies; `sampled`: at a temperature; `ranks`, on AMD's GPUs or others."""

    who: str
    where: str
    amd: bool = True
    sampled: bool = False
    ranks: int = 2


class _Ranks:
    """The group as its rank `number` has it."""

    def __init__(self, case: Case):
        self.world_size, self.number, self.sent, self.taken = case.ranks, 0, [], 0

    def broadcast(self, part: Any, src: int = 0) -> Any:
        if self.number == src:
            self.sent.append(part.clone())
        else:
            part.copy_(self.sent[self.taken])
            self.taken += 1
        return part


class _Slots(Exception):
    """The verification is done, and gives back the slots of rejected drafts."""


class _Pool:
    def free(self, slots: Any) -> None:
        raise _Slots


class _Sampling(SimpleNamespace):
    def __len__(self) -> int:
        return len(self.top_ks)


class _Request:
    """A request that never ends."""

    grammar, require_reasoning, spec_verify_ct = None, False, 0

    def __init__(self) -> None:
        self.output_ids: list[int] = []

    def finished(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return 0 if name.startswith(("kv_", "spec_")) else lambda *_: None


def _walk(chosen: Any, predicts: Any, accept_index: Any, accept_token_num: Any, candidates: Any) -> None:
    """What the kernels do with a chain of drafts of which the target chooses these tokens: int64 [requests, drafts]."""
    predicts[: chosen.numel()] = chosen.flatten().int()
    for row, tokens in enumerate(candidates.tolist()):
        taken = 0
        while taken + 1 < len(tokens) and chosen[row, taken] == tokens[taken + 1]:
            taken += 1
        accept_token_num[row] = taken
        accept_index[row] = -1
        for step in range(taken + 1):
            accept_index[row, step] = row * len(tokens) + step


def _greedy(*, predicts: Any, accept_index: Any, accept_token_num: Any, candidates: Any, target_predict: Any, **_: Any) -> None:
    _walk(target_predict, predicts, accept_index, accept_token_num, candidates)


def _sampled(*, predicts: Any, accept_index: Any, accept_token_num: Any, candidates: Any, target_probs: Any, **_: Any) -> None:
    """Sampling with one coin for all: of two tokens that are nearly as likely, rounding chooses."""
    _walk(target_probs.argmax(-1), predicts, accept_index, accept_token_num, candidates)


class Proof(Cases):
    modules = (_UTILS, _INFO, _V2, _NGRAM, _FORMER, _GROUPS)
    may_lack = (_UTILS, _INFO, _V2, _NGRAM, _FORMER)
    needs = f"no {_UTILS}:eagle_sample: _can_use_sparse_uno_tree_target_sampling"
    absent = "verification is written anew, and the first rank decides for all"
    measure = "share of requests of which the ranks accept different tokens"
    bug = (
        Case("verify", _VERIFY), Case("sample", _SAMPLE), Case("verify", _VERIFY, sampled=True),
        Case("verify", f"{_VERIFY} and no {_INFO}:EagleVerifyInput.verify: broadcast", amd=False, sampled=True),
        Case("sample", f"{_V2}:EagleVerifyInputV2Mixin.sample and no {_V2}:EagleVerifyInputV2Mixin.sample: broadcast",
             amd=False, sampled=True),
        Case("_sampling_verify", _BY_NGRAM, amd=False, sampled=True), Case("_greedy_verify", _BY_NGRAM),
    )  # fmt: skip
    spared = (
        Case("verify", _VERIFY, ranks=1), Case("sample", _SAMPLE, ranks=1), Case("_greedy_verify", _BY_NGRAM, ranks=1),
        Case("verify", _VERIFY, ranks=1, amd=False), Case("sample", _SAMPLE, ranks=1, amd=False),
    )  # fmt: skip
    broken = {
        "the correction does nothing": (wrap.decide, lambda real, ranks, decision: None),
        "the number of accepted drafts stays each rank's own": (wrap.decide, lambda real, ranks, all: real(ranks, all[:2])),
        "places alone are shared": (wrap.decide, lambda real, ranks, all: real(ranks, all[1:])),
    }
    broken_where = {"the number of accepted drafts stays each rank's own": f"{_SAMPLE} or {_BY_NGRAM}"}

    def prepare(self) -> None:
        super().prepare()
        kernels = {"verify_tree_greedy": _greedy, _TREE: _sampled}
        renormalise = {name: lambda probabilities, _: probabilities for name in ("top_k_renorm_prob", "top_p_renorm_prob")}
        for home in filter(None, (sys.modules.get("sgl_kernel"), *map(self.engine.get, self.modules[:-1]))):
            vars(home).update(kernels | renormalise)
        self.launched = construction.server_args()
        construction.publish(self.launched)

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        draw = torch.Generator().manual_seed(seed)
        tokens = torch.randint(VOCABULARY // 2, (REQUESTS, DRAFTS), generator=draw)
        logits = torch.randn(REQUESTS, DRAFTS, VOCABULARY, generator=draw)
        next_ones = torch.cat([tokens[:, 1:], tokens[:, :1]], 1)
        logits.scatter_(2, next_ones[..., None], 9.0)
        near = torch.randint(DRAFTS - 1, (REQUESTS,), generator=draw)  # a token as likely as the next draft
        rows = torch.arange(REQUESTS)
        logits[rows, near, VOCABULARY - 1] = 9.0 - 1e-5
        differing = logits.clone()
        differing[rows, near, VOCABULARY - 1] += 2e-5
        ranks, seen = _Ranks(case), []
        with self._machine(case, ranks):
            for ranks.number in range(case.ranks):
                given = (logits, differing)[ranks.number].view(-1, VOCABULARY).clone()
                seen.append(_Worker(self.engine, case, self.launched).step(tokens, given))
        alone = [seen[0]] * 2 if case.ranks == 1 else seen
        unequal = sum(one != other for one, other in zip(*alone)) / REQUESTS
        return observe(torch.tensor([1 + unequal]).double(), torch.ones(1).double())

    @contextmanager
    def _machine(self, case: Case, ranks: _Ranks) -> Iterator[None]:
        """GPUs of this maker, and their group."""
        import torch

        with ExitStack() as stack:
            stack.enter_context(on_cpu())
            setting = lambda owner, name, value: stack.enter_context(replaced(owner, name, value))  # noqa: E731
            setting(torch.version, "hip", "6.4" if case.amd else None)
            for home in filter(None, (sys.modules.get(_DISTRIBUTED), *map(self.engine.get, self.modules))):
                if hasattr(home, "get_tp_group"):
                    setting(home, "get_tp_group", lambda: ranks)
            for home in filter(None, map(self.engine.get, self.modules[:-1])):
                if case.amd and _TREE in vars(home):  # NVIDIA's alone
                    stack.callback(vars(home).update, {_TREE: vars(home).pop(_TREE)})
                flags = {"_is_hip": case.amd, "_is_cuda": not case.amd, "_is_cpu": False}
                for name, value in {**flags, "TREE_SPEC_KERNEL_AVAILABLE": not case.amd}.items():
                    if hasattr(home, name):
                        setting(home, name, value)
            yield


class _Worker:
    """What a rank's worker has of its launch, and the call of its verification."""

    def __init__(self, engine: dict[str, Any], case: Case, launched: Any):
        self.engine, self.case = engine, case
        self.server_args = launched
        for home in engine.values():
            if home and hasattr(home, "global_server_args_dict"):
                home.global_server_args_dict.update(vars(self.server_args))

    def step(self, tokens: Any, logits: Any) -> list[Any]:
        """What each request accepts."""
        import torch

        case, engine = self.case, self.engine
        count, drafts = tokens.shape
        chain = torch.arange(drafts).expand(count, -1)
        links = {
            "index": chain + drafts * torch.arange(count)[:, None],
            "next_token": torch.where(chain + 1 < drafts, chain + 1, -1), "next_sibling": torch.full_like(chain, -1),
        }  # fmt: skip
        drawn = _Sampling(
            is_all_greedy=not case.sampled, has_custom_logit_processor=False, logit_bias=None,
            penalizer_orchestrator=SimpleNamespace(is_required=False), acc_additive_penalties=None, acc_scaling_penalties=None,
            temperatures=torch.ones(count, 1), top_ks=torch.full((count,), VOCABULARY), top_ps=torch.ones(count),
            need_top_p_sampling=False, need_top_k_sampling=False,
        )  # fmt: skip
        requests = [_Request() for _ in range(count)]
        batch = SimpleNamespace(
            forward_mode=SimpleNamespace(is_idle=lambda: False), sampling_info=drawn, device="cpu", reqs=requests,
            seq_lens=torch.full((count,), 8), input_ids=tokens.flatten(), batch_size=lambda: count,
            out_cache_loc=torch.arange(tokens.numel()), model_config=SimpleNamespace(think_end_id=None, vocab_size=VOCABULARY),
        )  # fmt: skip
        told = {f"{word}_{name}": links[name] for name in links for word in ("retrive", "retrieve")}
        told |= {
            "draft_token": tokens.flatten(),
            "draft_token_num": drafts,
            "spec_steps": drafts - 1,
            "topk": 1,
            "device": "cpu",
        }
        output = SimpleNamespace(next_token_logits=logits)
        if "_verify" in case.who:
            kind = (engine.get(_NGRAM) or engine[_FORMER]).NgramVerifyInput
            verified = _made(kind, told)
            getattr(verified, case.who)(batch, output, *([drawn] if case.sampled else ()))
            lengths, places = (next(vars(verified)[name] for name in names if name in vars(verified)) for names in _NAMES)
            return _rows(verified.predict, lengths, places)
        if case.who == "verify":
            home = engine.get(_INFO) or engine[_UTILS]
            try:
                _made(home.EagleVerifyInput, told).verify(batch, output, _Pool(), 1)
            except _Slots:
                return [tuple(request.output_ids) for request in requests]
        if sample := getattr(engine.get(_UTILS), "eagle_sample", None):
            drafted = SimpleNamespace(**told, max_tree_depth=drafts, tree_topk=1)
            return _rows(*_ordered(sample(drafted, batch, output)))
        return _rows(*_ordered(_made(engine[_V2].EagleVerifyInputV2Mixin, told).sample(batch, output)))


def _made(kind: type, told: dict[str, Any]) -> Any:
    made = object.__new__(kind)
    made.__dict__.update(told)
    return made


def _ordered(decision: Any) -> tuple[Any, Any, Any]:
    predicts, lengths, places = decision
    return predicts, lengths - 1, places


def _rows(predicts: Any, lengths: Any, places: Any) -> list[Any]:
    """Per request: how many drafts it accepts, and the tokens at its places."""
    return [(length, *predicts[row[row >= 0].long()].tolist()) for length, row in zip(lengths.tolist(), places)]
