"""Try to fool the gate: edited copies of a real release must be recognised in full or left alone."""

from __future__ import annotations

import shutil
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder

import pytest

from attnfix.compat.gate import judge, ledger, source_files
from attnfix.compat.gate.digest import DIGEST_FORMAT
from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import BY_ID
from attnfix.prove import edited_release
from scripts.ledger.index_text import Edited
from tests.robustness import small_engine

FIX = BY_ID["sglang.zero-kv-rows"]
BACKEND = "sglang.srt.layers.attention.trtllm_mla_backend"
MIXIN = "sglang.srt.model_executor.forward_batch_deepseek_mha_mixin"
CALLER = "sglang.srt.models.deepseek_common.attention_forward_methods.forward_mha"

# (module, old, new): edits that change what the code does, or might
CHANGES = {
    "rename": (BACKEND, "chunk_idx = forward_batch.prefix_chunk_idx", "index = forward_batch.prefix_chunk_idx"),
    "constant": (BACKEND, "o_sf_scale=-1.0", "o_sf_scale=1.0"),
    "argument": (BACKEND, "save_kv_cache: bool = True,\n        q_rope", "save_kv_cache: bool = False,\n        q_rope"),
    "decorator": (BACKEND, "    def forward_extend(", "    @torch.no_grad()\n    def forward_extend("),
    "class renamed": (BACKEND, "class TRTLLMMLABackend(", "class TRTLLMMLABackend2("),
    "bound again": (BACKEND, "class TRTLLMMLAMultiStep", "TRTLLMMLABackend = None\n\n\nclass TRTLLMMLAMultiStep"),
    "plan changed": (MIXIN, ".clamp(min=0)", ".clamp(min=1)"),
    "metadata changed": (BACKEND, "fallback_to_flashinfer_impl: bool = False", "fallback_to_flashinfer_impl: bool = True"),
    "fixed in the caller": (CALLER, "tmp_output = torch.empty_like", "fixup(lse)\n            tmp_output = torch.empty_like"),
    "reordered": (
        MIXIN,
        "self.prefix_chunk_starts = prefix_chunk_starts_cuda\n        self.prefix_chunk_seq_lens = prefix_chunk_seq_lens_cuda",
        "self.prefix_chunk_seq_lens = prefix_chunk_seq_lens_cuda\n        self.prefix_chunk_starts = prefix_chunk_starts_cuda",
    ),
    "broken": (BACKEND, "    def forward_extend(", "    def forward_extend(("),
    "too deep": (BACKEND, "o_sf_scale=-1.0", f"o_sf_scale={'+'.join('1' * 2000)}"),
    "too deep for the parser": (BACKEND, "o_sf_scale=-1.0", f"o_sf_scale={'-' * 20_000}1.0"),
}
# edits that change nothing, or nothing that the fix depends on
NO_CHANGES = {
    "comment": (BACKEND, "    def forward_extend(", "    # patched here\n    def forward_extend("),
    "docstring": (BACKEND, '"""Metadata for TRTLLM MLA prefill operations."""', '"""Other words."""'),
    "format": (BACKEND, "o_sf_scale=-1.0,", "o_sf_scale = -1.0 ,"),
    "other code": (BACKEND, "class TRTLLMMLAMultiStepDraftBackend", "EXTRA = 1\n\n\nclass TRTLLMMLAMultiStepDraftBackend"),
}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The witness files of 0.5.10.post1 in a folder of their own."""
    source = fetch.fetch("sglang", "0.5.10.post1") / "sglang"
    root = tmp_path_factory.mktemp("edited") / "sglang"
    for place in FIX.code_paths:
        path = source_files.path_of(source, place.module)
        if path is not None:
            copy = root / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
    return root


@pytest.fixture
def edited(release, tmp_path):
    def edit(module, old, new):
        root = tmp_path / "sglang"
        shutil.copytree(release, root)
        path = source_files.path_of(root, module)
        text = path.read_text()
        assert old in text, f"{module} no longer has {old!r}: the edit tests nothing"
        path.write_text(text.replace(old, new))
        return root

    return edit


def test_the_release_itself_is_recognised_by_its_files(release):
    verdict = judge.judge(FIX, release)
    assert verdict.affected and verdict.reason.startswith("files of")


@pytest.mark.parametrize("name", CHANGES)
def test_changed_code_is_unknown_and_the_change_is_named(edited, name):
    verdict = judge.judge(FIX, edited(*CHANGES[name]))
    assert verdict.kind == ledger.UNKNOWN
    module, _, _ = CHANGES[name]
    names = {place.qualname.rpartition(".")[2] or place.qualname for place in FIX.code_paths if place.module == module}
    assert name in ("broken", "too deep", "too deep for the parser") or any(n in verdict.reason for n in names), verdict.reason


@pytest.mark.parametrize("name", NO_CHANGES)
def test_unchanged_code_is_still_recognised(edited, name):
    verdict = judge.judge(FIX, edited(*NO_CHANGES[name]))
    assert verdict.affected and verdict.reason == "code of 0.5.10"


def test_digests_and_file_hashes_agree(release):
    assert judge.judge(FIX, release, use_file_hashes=False).kind == judge.judge(FIX, release).kind


def test_a_missing_witness_is_unknown(release, tmp_path):
    root = tmp_path / "sglang"
    shutil.copytree(release, root)
    source_files.path_of(root, CALLER).unlink()
    assert judge.judge(FIX, root).kind == ledger.UNKNOWN


@pytest.mark.parametrize("damage", ["missing", "not json", "other format", "other witnesses"])
def test_a_ledger_that_cannot_be_used_leaves_everything_alone(release, tmp_path, monkeypatch, damage):
    path = tmp_path / "index.json"
    text = ledger.path_of(FIX).read_text()
    edits = {
        "not json": (f'"fix {FIX.id}": {{', f'"fix {FIX.id}": ['),
        "other format": (f'"digest_format": {DIGEST_FORMAT}', '"digest_format": 0'),
        "other witnesses": (f'"code_paths": ["{FIX.code_paths[0]}', '"code_paths": ["x:y'),
    }
    if damage != "missing":
        path.write_text(text.replace(*edits[damage], 1))
    monkeypatch.setattr(ledger, "path_of", lambda fix: path)
    ledger.load.cache_clear()
    try:
        verdict = judge.judge(FIX, release)
        assert verdict.kind == ledger.UNKNOWN and FIX.id in verdict.reason
    finally:
        ledger.load.cache_clear()


SUFFIX = EXTENSION_SUFFIXES[0]
# What lies beside `module.py`, and what Python then imports as `module`: a source, or something that has none
BESIDE = {
    "nothing": ((), "module.py"),
    "a package": (("module/__init__.py",), "module/__init__.py"),
    "a compiled module": ((f"module{SUFFIX}",), None),
    "a compiled package": ((f"module/__init__{SUFFIX}", "module/__init__.py"), None),
    "a package without a source": (("module/__init__.pyc",), None),
    "bytecode": (("module.pyc",), "module.py"),
    "a folder": (("module/other.py",), "module.py"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_the_file_of_a_module_is_the_one_that_python_would_import(tmp_path, name):
    beside, expected = BESIDE[name]
    for file in ("module.py", *beside):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    found = source_files.path_of(tmp_path, "engine.module")
    assert found == (expected and tmp_path / expected)
    origin = PathFinder.find_spec("module", [str(tmp_path)]).origin
    assert expected is None or origin == str(found)


def test_edited_code_is_affected_and_named_by_its_edit(engine, monkeypatch):
    fix = engine.one_target()
    stock = source_files.Sources(engine.root)
    files = judge.digests(fix, edited_release.read(stock, lambda read: {"sglang.attention": read("sglang.attention") + "\n"}))
    small_engine.know(fix, [], [Edited("1.0: as upstream wrote it", files, "name")])
    verdict = judge.judge(fix, engine.root)
    assert (verdict.kind, verdict.reason, verdict.release) == ("affected", "code of 1.0: as upstream wrote it", None)
