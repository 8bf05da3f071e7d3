"""The happens-before checker, without an engine: each rule of CUDA's order with its wait, and without it."""

import queue
import threading

import numpy as np
import pytest
import torch

from attnfix.patches.lab.order import Order


@pytest.fixture
def order():
    with Order() as made:
        yield made


def kinds(order):
    return [race.kind for race in order.races]


def pair(order):
    return torch.cuda.Stream(), torch.cuda.Stream()


def on(stream):
    return torch.cuda.stream(stream)


WAITS = {
    "wait_stream": lambda first, second: second.wait_stream(first),
    "record_event, wait_event": lambda first, second: second.wait_event(first.record_event()),
    "Event.record, Event.wait": lambda first, second: recorded(first).wait(second),
    "the host waits for the stream": lambda first, second: first.synchronize(),
    "the host waits for the event": lambda first, second: recorded(first).synchronize(),
    "the host waits for the device": lambda first, second: torch.cuda.synchronize(),
    "the host polls": lambda first, second: recorded(first).query(),
    "the other device module": lambda first, second: torch.cpu.synchronize(),
}


def recorded(stream):
    event = torch.cuda.Event()
    event.record(stream)
    return event


@pytest.mark.parametrize("way", WAITS)
@pytest.mark.parametrize("kind", ["read after write", "write after read", "write after write"])
def test_each_wait_orders_each_pair_and_its_absence_is_told(order, kind, way):
    done, then = {"read after write": "wr", "write after read": "rw", "write after write": "ww"}[kind]
    first, second = pair(order)
    memory = torch.empty(8, device="cuda")
    torch.cuda.synchronize()

    def act(stream, access):
        order.launch("kernel", **{"reads" if access == "r" else "writes": [memory]}, stream=stream)

    act(first, done)
    WAITS[way](first, second)
    act(second, then)
    assert order.races == []
    act(first, done)
    act(second, then)
    assert kind in kinds(order)


def test_reads_need_no_order(order):
    first, second = pair(order)
    memory = torch.zeros(8, device="cuda")
    torch.cuda.synchronize()
    order.launch("kernel", [memory], stream=first)
    order.launch("kernel", [memory], stream=second)
    assert order.races == []


def test_operations_of_one_stream_are_in_order(order):
    memory = torch.zeros(8, device="cuda")
    memory.add_(1)
    assert (memory * 2).shape == (8,) and order.races == []


def test_order_is_transitive(order):
    one, two, three = (torch.cuda.Stream() for _ in range(3))
    memory = torch.empty(8, device="cuda")
    order.launch("write", writes=[memory], stream=one)
    two.wait_stream(one)
    three.wait_stream(two)
    order.launch("read", [memory], stream=three)
    assert order.races == []


def test_order_is_not_symmetric(order):
    one, two, three = (torch.cuda.Stream() for _ in range(3))
    memory = torch.empty(8, device="cuda")
    order.launch("write", writes=[memory], stream=one)
    two.wait_stream(one)
    two.wait_stream(three)
    order.launch("read", [memory], stream=three)
    assert kinds(order) == ["read after write"]


@pytest.mark.parametrize("early", [False, True])
def test_an_event_stands_for_what_is_before_it(order, early):
    first, second = pair(order)
    memory, event = torch.empty(8, device="cuda"), torch.cuda.Event()
    if early:
        event.record(first)
    order.launch("write", writes=[memory], stream=first)
    if not early:
        event.record(first)
    second.wait_event(event)
    order.launch("read", [memory], stream=second)
    assert kinds(order) == (["read after write"] if early else [])


def test_an_event_stands_for_its_last_record_at_the_wait(order):
    first, second = pair(order)
    memory, event = torch.empty(8, device="cuda"), torch.cuda.Event()
    event.record(first)
    second.wait_event(event)
    order.launch("write", writes=[memory], stream=first)
    event.record(first)  # behind the wait
    order.launch("read", [memory], stream=second)
    assert kinds(order) == ["read after write"]


def test_a_wait_for_an_event_without_a_record_is_none(order):
    first, second = pair(order)
    memory = torch.empty(8, device="cuda")
    order.launch("write", writes=[memory], stream=first)
    second.wait_event(torch.cuda.Event())
    order.launch("read", [memory], stream=second)
    assert kinds(order) == ["read after write"]


def test_a_poll_that_says_no_orders_nothing():
    with Order(polls=False) as order:
        first, second = torch.cuda.Stream(), torch.cuda.Stream()
        memory = torch.empty(8, device="cuda")
        order.launch("write", writes=[memory], stream=first)
        event = recorded(first)
        assert not event.query()
        order.launch("read", [memory], stream=second)
        assert kinds(order) == ["read after write"]
        event.synchronize()
        assert event.query()


def test_a_stream_that_is_used_again_keeps_its_order(order):
    first, second = pair(order)
    memory = torch.empty(8, device="cuda")
    order.launch("write", writes=[memory], stream=first)
    second.wait_stream(first)
    for _ in range(3):
        order.launch("read", [memory], stream=second)
    order.launch("write", writes=[memory], stream=first)
    assert kinds(order) == ["write after read"] and order.races[0].count == 1


def test_a_launch_is_behind_what_the_host_has_done(order):
    memory = torch.empty(8, pin_memory=True)
    there = torch.empty(8, device="cuda")
    memory.fill_(1)
    there.copy_(memory, non_blocking=True)
    assert order.races == []
    memory.fill_(2)
    assert kinds(order) == ["write after read"] and "the host does not wait" in order.report()


@pytest.mark.parametrize("blocking", [False, True])
def test_a_copy_that_blocks_is_waited_for(order, blocking):
    memory, there = torch.ones(8, device="cuda"), torch.empty(8, pin_memory=True)
    there.copy_(memory, non_blocking=not blocking)
    there.sum()
    assert kinds(order) == ([] if blocking else ["read after write"])


def test_pageable_memory_is_staged_at_the_launch(order):
    memory, there = torch.zeros(8), torch.empty(8, device="cuda")
    there.copy_(memory, non_blocking=True)
    memory.fill_(2)
    assert order.races == []


def test_to_the_host_without_a_wait_is_pinned_memory_that_is_not_there_yet(order):
    memory = torch.ones(8, device="cuda")
    there = memory.to("cpu", non_blocking=True)
    assert there.is_pinned() and not there.is_cuda
    there.sum()
    assert kinds(order) == ["read after write"]
    memory.cpu().sum()
    assert len(order.races) == 1


@pytest.mark.parametrize(
    "read", [lambda it: it.cpu(), lambda it: it.sum().item(), lambda it: it.tolist(), lambda it: bool(it[0])]
)
def test_a_read_of_the_host_waits_for_the_current_stream_alone(order, read):
    first, second = pair(order)
    mine, other = torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")
    torch.cuda.synchronize()
    order.launch("write", writes=[other], stream=second)
    order.launch("write", writes=[mine], stream=first)
    with on(first):
        read(mine)
    order.launch("read", [mine], stream=second)
    assert order.races == []
    order.launch("read", [other], stream=first)
    assert kinds(order) == ["read after write"]


@pytest.mark.parametrize("rows, kind", [([0, 1], []), ([5], ["read after write"])])
def test_rows_are_told_apart(order, rows, kind):
    first, second = pair(order)
    pool = torch.zeros(8, 2, 3, device="cuda")
    torch.cuda.synchronize()
    with on(first):
        pool[torch.tensor([4, 5], device="cuda")] = torch.ones(2, 2, 3, device="cuda")
    with on(second):
        at = torch.tensor(rows, device="cuda")
    order.launch("read", [(pool, rows)], stream=second)
    assert kinds(order) == kind
    del at


@pytest.mark.parametrize("read, kind", [
    (lambda pool: pool[:, 0].sum(), []), (lambda pool: pool[:, 1].sum(), ["read after write"]),
    (lambda pool: pool.transpose(0, 1)[0].clone(), []), (lambda pool: pool.view(-1)[4:8].clone(), ["read after write"]),
    (lambda pool: pool.index_select(1, torch.tensor([0])), []), (lambda pool: pool[:2, 1], []),
])  # fmt: skip
def test_views_are_told_apart(order, read, kind):
    first, second = pair(order)
    pool = torch.zeros(4, 2, 4, device="cuda")
    torch.cuda.synchronize()
    with on(first):
        pool[:, 1].fill_(1)
    with on(second):
        read(pool)
    assert kinds(order) == kind


def test_the_rest_of_a_row_by_address(order):
    first, second = pair(order)
    pool = torch.zeros(4, 8, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    order.launch("write", writes=[(pool.data_ptr() + 8, 8)], stream=first)
    order.launch("read", [(pool, [0, 2, 3])], stream=second)
    assert order.races == []
    order.launch("read", [(pool, [1])], stream=second)
    assert kinds(order) == ["read after write"]


def test_a_copy_may_read_ahead_of_its_stream(order):
    compute, copies = pair(order)
    source, target = torch.zeros(8, device="cuda"), torch.zeros(8, pin_memory=True)
    torch.cuda.synchronize()
    order.launch("write", writes=[source], stream=compute)
    copies.wait_stream(compute)
    order.copy("copy", [source], [target], copies)
    assert order.races == []
    order.copy("copy", [source], [target], copies, any_order=True)
    assert kinds(order) == ["read after write"]


def test_pages_of_a_new_owner_are_read_behind_its_write(order):
    pool = torch.zeros(8, 4, device="cuda")
    order.handed_over((pool, [2, 3]))
    order.launch("read", [(pool, [1])])
    order.launch("write", writes=[(pool, [2])])
    order.launch("read", [(pool, [2])])
    assert order.races == []
    order.launch("read", [(pool, [3])])
    assert kinds(order) == ["read of nothing"]


@pytest.mark.parametrize("way", ["none", "record_stream", "wait", "same stream"])
def test_memory_that_is_free_while_another_stream_uses_it(order, way):
    other = torch.cuda.Stream()
    memory = torch.zeros(8, device="cuda")
    torch.cuda.synchronize()
    order.launch("read", [memory], stream=None if way == "same stream" else other)
    if way == "record_stream":
        memory.record_stream(other)
    if way == "wait":
        torch.cuda.current_stream().wait_stream(other)
    del memory
    assert kinds(order) == (["use after free"] if way == "none" else [])


def run(order, *functions):
    threads = [threading.Thread(target=one) for one in functions]
    for one in threads:
        one.start()
    return threads


def test_a_thread_is_behind_its_start_and_before_its_join(order):
    memory = torch.zeros(4)
    (thread,) = run(order, lambda: memory.add_(1))
    thread.join()
    memory.add_(1)
    assert order.races == []


def test_a_thread_that_nobody_joins(order):
    memory = torch.zeros(4)
    left = threading.local  # nothing that orders
    done = []
    run(order, lambda: (memory.add_(1), done.append(left)))
    while not done:
        pass
    memory.add_(1)
    assert "write after write" in kinds(order) and "lock, queue or event" in order.report()


PASSED = {
    "queue": (queue.Queue, lambda it: it.put(1), lambda it: it.get()),
    "simple queue": (lambda: queue.SimpleQueue(), lambda it: it.put(1), lambda it: it.get()),
    "event": (threading.Event, lambda it: it.set(), lambda it: it.wait()),
    "semaphore": (lambda: threading.Semaphore(0), lambda it: it.release(), lambda it: it.acquire()),
}


@pytest.mark.parametrize("way", PASSED)
def test_what_passes_between_threads_orders_them(order, way):
    make, put, get = PASSED[way]
    thing, memory = make(), torch.zeros(4)
    (thread,) = run(order, lambda: (memory.add_(1), put(thing)))
    get(thing)
    memory.add_(1)
    assert order.races == []
    thread.join()


@pytest.mark.parametrize("locked", [False, True])
def test_a_lock_orders_those_who_hold_it(order, locked):
    lock, memory, done = threading.Lock(), torch.zeros(4), []

    def add():
        if locked:
            with lock:
                memory.add_(1)
        else:
            memory.add_(1)
        done.append(1)

    run(order, add)
    while not done:
        pass
    add()
    assert bool(order.races) != locked


def test_launches_of_another_thread_are_recorded_on_its_stream(order):
    memory, other = torch.zeros(4, device="cuda"), torch.cuda.Stream()

    def work():
        with torch.cuda.stream(other):
            memory.add_(1)

    run(order, work)[0].join()
    memory.add_(1)
    assert "write after write" in kinds(order)


@pytest.mark.parametrize("write", [
    lambda array: array.__setitem__(slice(0, 2), 5), lambda array: array[:3].fill(1),
    lambda array: np.copyto(array[1:2], np.ones(1)), lambda array: np.add(array, 1, out=array),
])  # fmt: skip
def test_numpy_over_pinned_memory_is_the_host(order, write):
    memory, there = torch.zeros(8, pin_memory=True), torch.empty(8, device="cuda")
    array = memory.numpy()
    there.copy_(memory, non_blocking=True)
    write(array)
    assert set(kinds(order)) == {"write after read"}


def test_a_report_names_lines_streams_memory_and_the_wait(order):
    load, forward = order.stream("load"), order.stream("forward")
    memory = torch.zeros(4, device="cuda")
    order.name(memory, "K of layer 0")
    torch.cuda.synchronize()
    order.launch("copy", writes=[memory], stream=load)
    recorded(load)
    order.launch("attention", [memory], stream=forward)
    told = order.report()
    for word in (
        "K of layer 0",
        "copy on load",
        "attention on forward",
        "test_order.py:",
        "forward does not wait for the event",
    ):
        assert word in told


def test_a_stand_in_computes_in_silence(order):
    first, second = pair(order)
    memory = torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    with on(first):
        memory.add_(1)
    with on(second), order.silent():
        memory.add_(1)
    assert order.races == []


def test_tensors_say_where_they_are(order):
    memory = torch.zeros(4, device="cuda:0")
    assert memory.is_cuda and memory.device.type == "cuda" and memory[1:].is_cuda and (memory + 1).is_cuda
    assert torch.zeros_like(memory).is_cuda and not memory.cpu().is_cuda and torch.tensor([1], device="cuda").is_cuda
    assert torch.zeros(4).to("cuda").is_cuda and torch.zeros(4).to(memory).is_cuda and torch.zeros(4).cuda().is_cuda
    assert torch.zeros(4).pin_memory().is_pinned() and not torch.zeros(4).is_pinned()


def test_all_is_put_back():
    before = torch.cuda.Stream, threading.Lock, queue.Queue.put, threading.Thread.start
    with Order():
        assert torch.cuda.Stream is not before[0]
    assert (torch.cuda.Stream, threading.Lock, queue.Queue.put, threading.Thread.start) == before
    assert not hasattr(torch.cpu, "Event") or torch.cpu.Event.__module__.startswith("torch")
