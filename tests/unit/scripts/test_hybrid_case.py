"""The cases of hybrid models: the model that they serve, and each of their checks."""

from __future__ import annotations

import pytest

from scripts.serve import tiny_qwen, vllm_hybrid
from scripts.serve.e2e import PATCHED, STOCK
from scripts.serve.vllm_hybrid import CACHE, EAGER, UNIFORM


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_qwen.make(tmp_path_factory.mktemp("qwen"))


def test_the_model_is_a_qwen3_next_and_answers_by_all_of_its_prompt(folder):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model, loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not any(loaded.values()), "names or shapes that are not the architecture's"
    draw = torch.Generator().manual_seed(0)
    prompts = torch.randint(2, tiny_qwen.VOCABULARY, (1, 64), generator=draw).repeat(2, 1)
    prompts[1, :4] += 1
    with torch.no_grad():
        one, other = model(prompts % tiny_qwen.VOCABULARY).logits[:, -1].log_softmax(-1)
    assert (one - other)[one.topk(20).indices].abs().max() > vllm_hybrid.RED


def process(**corrected):
    fixes = {fix: {"state": "effective", "calls": 9, "corrections": count} for fix, count in corrected.items()}
    return [{"process": 1, "alive": True, "fixes": fixes}]


def _turns(worst, cached=272, corrected=0):
    each = [{"turn": 0, "cached": 0}, {"turn": 1, "cached": cached}]
    return {"each": each, "worst": worst, "floor": 0.1, "processes": process(**{CACHE[0]: corrected})}


@pytest.mark.parametrize("stock, corrected", [(3.0, 2), (0.1, 0)])
def test_where_nothing_is_corrected_stock_is_right(stock, corrected):
    found = {STOCK: _turns(stock), PATCHED: _turns(0.1, corrected=corrected)}
    assert vllm_hybrid.prefix_cache_failures(found) == []


@pytest.mark.parametrize(
    "stock, patched, words",
    [
        (_turns(0.1), _turns(0.1, corrected=2), ["stock: cached"]),
        (_turns(3.0), _turns(0.5, corrected=2), ["patched: cached"]),
        (_turns(3.0), _turns(0.1), ["stock: cached"]),
        (_turns(3.0), _turns(3.0), ["patched: cached", "stock: cached"]),
        (_turns(0.1, cached=0), _turns(0.1), ["stock: no later turn"]),
        (_turns(float("nan")), _turns(0.1), ["stock: cached"]),
    ],
)
def test_each_check_of_the_prefix_cache_can_fail(stock, patched, words):
    found = vllm_hybrid.prefix_cache_failures({STOCK: stock, PATCHED: patched})
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
