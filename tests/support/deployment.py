"""A small deployment of a real engine release: a server and one rank per argument, named as the engine names them.

    python deployment.py ENGINE MODULES TITLE METHOD…

imports the engine's MODULES (commas between) in the server and in a child per METHOD (spawn, fork), each called TITLE with its
number. Says `ready`, and ends with its standard input.
"""

import multiprocessing
import sys
import time


def load(engine, modules):
    from attnfix.prove import stubs

    stubs.install(engine)
    for name in modules.split(","):
        __import__(name)


def rank(engine, modules, title, ready):
    import setproctitle

    setproctitle.setproctitle(title)
    load(engine, modules)
    ready.put(title)
    time.sleep(600)


def main(engine, modules, title, *methods):
    load(engine, modules)
    ready = multiprocessing.get_context("spawn").Queue()
    for number, method in enumerate(methods):
        context = multiprocessing.get_context(method)
        context.Process(target=rank, args=(engine, modules, title.format(number), ready), daemon=True).start()
    for _ in methods:
        ready.get(timeout=300)
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
