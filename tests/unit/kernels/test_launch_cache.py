"""Which calls may repeat a checked launch: by CPU tensors and a stand-in for the launch."""

from __future__ import annotations

import threading

import pytest
import torch

from attnfix.kernels import launch_cache

TENSORS = torch.zeros(4, 2, 8), torch.zeros(2, 4)


@pytest.fixture
def cache() -> launch_cache.Cache:
    cache = launch_cache.Cache()
    cache.add("launch", TENSORS, (None, "e"), (1, 2))
    return cache


def test_equal_tensors_and_options_fit(cache: launch_cache.Cache) -> None:
    found = cache.find((torch.ones(4, 2, 8), torch.ones(2, 4)), (None, "e"))
    assert found.launch == "launch" and found.addresses == {(1, 2)}


@pytest.mark.parametrize(
    "tensors",
    [
        (torch.zeros(5, 2, 8), TENSORS[1]),
        (torch.zeros(4, 8, 2).transpose(1, 2), TENSORS[1]),
        (TENSORS[0].double(), TENSORS[1]),
        (TENSORS[0].to("meta"), TENSORS[1]),
        (TENSORS[1], TENSORS[0]),
        TENSORS[:1],
        (*TENSORS, TENSORS[0]),
        (TENSORS[0], None),
        (TENSORS[0], [[0.0]]),
    ],
    ids=["shape", "strides", "dtype", "device", "order", "fewer", "more", "None", "list"],
)
def test_anything_else_does_not(cache: launch_cache.Cache, tensors: tuple) -> None:
    assert cache.find(tensors, (None, "e")) is None


def test_other_options_do_not_fit(cache: launch_cache.Cache) -> None:
    assert cache.find(TENSORS, (3, "e")) is None and cache.find(TENSORS, (None, 2)) is None


def test_the_same_launch_is_kept_once_with_all_its_addresses(cache: launch_cache.Cache) -> None:
    cache.add("other", TENSORS, (None, "e"), (3, 4))
    found = cache.find(TENSORS, (None, "e"))
    assert found.launch == "launch" and found.addresses == {(1, 2), (3, 4)}


def test_the_latest_used_are_kept(cache: launch_cache.Cache) -> None:
    for count in range(launch_cache._KEPT - 1):
        cache.add(count, TENSORS, (count, "e"), (1, 2))
    cache.find(TENSORS, (None, "e"))
    cache.add("new", TENSORS, (99, "e"), (1, 2))
    assert cache.find(TENSORS, (None, "e")) and cache.find(TENSORS, (99, "e"))
    assert cache.find(TENSORS, (0, "e")) is None


def test_addresses_are_bounded(cache: launch_cache.Cache) -> None:
    for at in range(launch_cache._ADDRESSES + 5):
        cache.add("launch", TENSORS, (None, "e"), (at, at))
    assert len(cache.find(TENSORS, (None, "e")).addresses) <= launch_cache._ADDRESSES


def test_a_thread_has_its_own(cache: launch_cache.Cache) -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(cache.find(TENSORS, (None, "e"))))
    thread.start()
    thread.join()
    assert found == [None]
    cache.forget()
    assert cache.find(TENSORS, (None, "e")) is None


def test_without_torchs_comparison_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C._dynamo.guards, "TensorGuards")
    cache = launch_cache.Cache()
    cache.add("launch", TENSORS, (None, "e"), (1, 2))
    assert cache.find(TENSORS, (None, "e")) is None
