"""The cases of hybrid models: the model that they serve, and each of their checks."""

from __future__ import annotations

import pytest

from scripts.serve import conversations, tiny_nemotron, tiny_qwen, vllm_hybrid
from scripts.serve.conversations import Talk
from scripts.serve.e2e import PATCHED, STOCK
from scripts.serve.e2e_vllm import FORMER, FORMER_PATCHED
from scripts.serve.vllm_hybrid import CACHE, CHECKPOINT, EAGER, PADDED, REPLAYED, UNIFORM


@pytest.mark.parametrize("tiny", [tiny_qwen, tiny_nemotron], ids=["Qwen3-Next", "NemotronH"])
def test_the_model_is_what_it_says_and_answers_by_all_of_its_prompt(tiny, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model, loaded = transformers.AutoModelForCausalLM.from_pretrained(
        tiny.make(tmp_path), dtype=torch.float32, output_loading_info=True
    )
    assert not any(loaded.values()), "names or shapes that are not the architecture's"
    draw = torch.Generator().manual_seed(0)
    prompts = torch.randint(2, tiny.VOCABULARY, (1, 64), generator=draw).repeat(2, 1)
    prompts[1, :4] += 1
    with torch.no_grad():
        one, other = model(prompts % tiny.VOCABULARY).logits[:, -1].log_softmax(-1)
    assert (one - other)[one.topk(20).indices].abs().max() > vllm_hybrid.RED


def process(**corrected):
    fixes = {fix: {"state": "effective", "calls": 9, "corrections": count} for fix, count in corrected.items()}
    return [{"process": 1, "alive": True, "fixes": fixes}]


class Cached:
    """Stands for a server: what it answers depends on how much of a prompt it has seen, where `wrong` says so."""

    def __init__(self, wrong=lambda cached: 0.0):
        self.wrong, self.seen = wrong, []

    def forget(self):
        self.seen = []

    def answer(self, prompts, new):
        return [self._one(prompt, count) for prompt, count in zip(prompts, new, strict=True)]

    def _one(self, prompt, new):
        cached = max((len(old) for old in self.seen if prompt[: len(old)] == old), default=0)
        self.seen.append(prompt)
        logprobs = {str(token): -1.0 - token - self.wrong(cached) * (token == 3) for token in range(25)}
        return {"tokens": [5] * new, "logprobs": logprobs, "cached": cached}


TALK = Talk(first=(10, 20), answer=(3, 3), more=2, turns=3, vocabulary=100)


def test_a_talk_compares_each_turn_with_the_same_prompt_cold():
    server = Cached()
    found = TALK(server.answer, server.forget)
    assert [one["tokens"] for one in found["each"]] == [10, 20, 15, 25, 20, 30], "an answer and more tokens at each turn"
    assert (found["hits"], found["red"], found["worst"], found["floor"]) == (4, 0, 0.0, 0.0)


def test_a_talk_counts_the_turns_that_were_answered_wrongly():
    server = Cached(wrong=lambda cached: 2.0 if cached >= 15 else 0.2 if cached else 0.0)
    found = TALK(server.answer, server.forget)
    assert (found["hits"], found["red"], found["floor"]) == (4, 3, 0.0) and found["worst"] == pytest.approx(2.0)


def _turns(worst, hits=3, corrected=0):
    red = int(not worst <= conversations.RED)
    return {"hits": hits, "red": red, "worst": worst, "floor": 0.1, "processes": process(**{CACHE[0]: corrected})}


@pytest.mark.parametrize("stock, corrected", [(3.0, 2), (0.1, 0)])
def test_where_nothing_is_corrected_stock_is_right(stock, corrected):
    found = {STOCK: _turns(stock), PATCHED: _turns(0.1, corrected=corrected)}
    assert conversations.failures(found, CACHE) == []
    assert len(conversations.table(found)) > 2


@pytest.mark.parametrize(
    "stock, patched, words",
    [
        (_turns(0.1), _turns(0.1, corrected=2), ["stock: cached"]),
        (_turns(3.0), _turns(0.7, corrected=2), ["patched: cached"]),
        (_turns(3.0), _turns(0.1), ["stock: cached"]),
        (_turns(3.0), _turns(3.0), ["patched: cached", "stock: cached"]),
        (_turns(0.1, hits=0), _turns(0.1), ["stock: no turn"]),
        (_turns(float("nan")), _turns(0.1), ["stock: cached"]),
    ],
)
def test_each_check_of_conversations_can_fail(stock, patched, words):
    found = conversations.failures({STOCK: stock, PATCHED: patched}, CACHE)
    assert len(found) == len(words) and all(map(str.startswith, found, words)), found


def _steps(short, last, control=0.1, corrected=2):
    figures = {"short": short, "last chunk": last, "control": control}
    compared = {what: {"difference": figure} for what, figure in figures.items()}
    return {"compared": compared, "processes": process(**{UNIFORM: corrected})}


@pytest.mark.parametrize(
    "stock, patched, words",
    [
        (_steps(3, 3), _steps(0.1, 0.1), []),
        (_steps(0.1, 3), _steps(0.1, 0.1), ["stock, short"]),
        (_steps(3, 3), _steps(0.1, 0.4), ["patched, last chunk"]),
        (_steps(3, 3), _steps(0.1, 0.1, control=1.0), ["patched, control"]),
        (_steps(3, 3, control=float("nan")), _steps(0.1, 0.1), ["stock, control"]),
        (_steps(3, 3), _steps(0.1, 0.1, corrected=0), ["patched: vllm.gdn-uniform-decode corrected nothing"]),
    ],
)
def test_each_check_of_short_steps_can_fail(stock, patched, words):
    found = vllm_hybrid.uniform_decode_failures({EAGER: {}, STOCK: stock, PATCHED: patched})
    assert len(found) == len(words) and all(map(str.startswith, found, words)), found


def _chunks(behind, cached=None, control=0.1, hits=(2176,), corrected=2, block="544"):
    figures = {"behind a chunk": behind, "behind a chunk, cached": behind if cached is None else cached, "control": control}
    return {
        "compared": {what: {"difference": figure} for what, figure in figures.items()},
        "cached": {"behind a chunk": [0], "behind a chunk, cached": list(hits)},
        "block size": [block],
        "processes": process(**{CHECKPOINT: corrected}),
    }


@pytest.mark.parametrize(
    "stock, patched, words",
    [
        (_chunks(3), _chunks(0.1), []),
        (_chunks(0.1, cached=3), _chunks(0.1), ["stock, behind a chunk: as"]),
        (_chunks(3, control=0.7), _chunks(0.1), ["stock, control"]),
        (_chunks(3), _chunks(0.1, cached=0.7), ["patched, behind a chunk, cached"]),
        (_chunks(3), _chunks(0.1, control=float("nan")), ["patched, control"]),
        (_chunks(3), _chunks(0.1, hits=(0, 0)), ["patched, behind a chunk, cached: nothing was found"]),
        (_chunks(3, block="560"), _chunks(0.1), ["stock: blocks of ['560'] tokens"]),
        (_chunks(3), _chunks(0.1, corrected=0), ["patched: vllm.mamba-stale-checkpoint corrected nothing"]),
    ],
)
def test_each_check_of_prompts_in_chunks_can_fail(stock, patched, words):
    found = vllm_hybrid.mamba_checkpoint_failures({STOCK: stock, PATCHED: patched})
    assert len(found) == len(words) and all(map(str.startswith, found, words)), found


def test_prompts_in_chunks_are_asked_twice_and_say_what_was_cached(tmp_path):
    class Server:
        log = tmp_path / "log"

        def ask(self, do, prompts):
            seen.append(len(prompts[0]))
            return {"answers": [{"tokens": [1], "logprobs": {"1": 0.0}, "cached": len(seen) % 2}]}

    seen = []
    Server.log.write_text("INFO Setting attention block size to 544 tokens to ensure")
    found = vllm_hybrid._two_blocks(Server())
    assert seen[:4] == [4 * 544 + 3] * 4 and found["block size"] == ["544"]
    assert found["cached"]["behind two"] == [1] * 12 and found["cached"]["behind two, cached"] == [0] * 12
    assert max(seen) < vllm_hybrid.WHOLE_STEP


def test_a_step_takes_two_blocks_of_states_and_not_the_tokens_behind_them():
    behind = [more for what, (_, more) in vllm_hybrid._PROMPTS.items() if what.startswith("behind")]
    assert 2 * vllm_hybrid.BLOCK <= vllm_hybrid.STEP < 2 * vllm_hybrid.BLOCK + min(behind)


def _short(first, second, control=0.1, corrected=2, comparable=24):
    figures = {"one token, first": first, "one token, second": second, "control, two tokens, first": control}
    counts = {"one token, second": comparable}
    return {
        "compared": {what: {"difference": figure} for what, figure in figures.items()},
        "of": {what: {"compared": counts.get(what, 24), "wrong": 23 * (figure > 1)} for what, figure in figures.items()},
        "processes": process(**{PADDED: corrected}),
    }


@pytest.mark.parametrize(
    "side, bad, words",
    [
        (STOCK, _short(3, 3, comparable=1), []),
        (STOCK, _short(0.1, 0.1), ["stock: prompts of one token are answered as alone"]),
        (FORMER, _short(0.1, 3, control=1.0), ["stock, former runner, control, two tokens, first: differs"]),
        (PATCHED, _short(0.4, 0.1), ["patched, one token, first: differs"]),
        (FORMER_PATCHED, _short(0.1, float("nan")), ["patched, former runner, one token, second: differs"]),
        (REPLAYED, _short(0.1, 0.1, comparable=3), ["patched, graphs, one token, second: 3 of 24"]),
        (REPLAYED, _short(0.1, 0.1, corrected=0), ["patched, graphs: vllm.padded-one-token-prompt corrected nothing"]),
    ],
)
def test_each_check_of_prompts_of_one_token_can_fail(side, bad, words):
    right = dict.fromkeys((STOCK, FORMER), _short(0.1, 3))
    right |= dict.fromkeys((PATCHED, FORMER_PATCHED, REPLAYED), _short(0.1, 0.1))
    found = vllm_hybrid.one_token_failures(right | {side: bad})
    assert len(found) == len(words) and all(map(str.startswith, found, words)), found


def test_prompts_of_one_token_come_in_one_at_a_time_beside_requests_that_decode():
    class Server:
        def ask(self, do, prompts, new_tokens, together, at):
            seen.append(([len(prompt) for prompt in prompts], new_tokens))
            return {"answers": [{"tokens": [at], "of": prompt} for prompt in prompts]}

    seen = []
    answers = vllm_hybrid._alone_and_beside(Server())["answers"]
    assert list(answers) == [f"{what}, {at}" for what in ("one token", "control, two tokens") for at in ("first", "second")]
    assert all(alone == beside and len(alone) == 24 for alone, beside in answers.values())
    beside = [(lengths, new) for lengths, new in seen if len(lengths) > 1]
    assert beside[0] == ([40] * 3 + [1] * 24, [260] * 3 + [4] * 24) and beside[2][0] == [40] * 3 + [2] * 24
