"""Services that tests start with gunicorn, for example 'tests.service.apps:waiting()'."""

from __future__ import annotations

import builtins
import ctypes
import logging
import os
import select
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from flask import Flask, Response, request
from prometheus_client import Counter

from app import create_app
from app.inference import model_runner
from app.observability import observer_queue
from app.protocol.metadata import MetadataTensor
from tests.kit import models

PATIENCE = 60
NONE = np.empty(0, np.int64)


def wait_for(path: Path) -> None:
    """Wait until the file exists, but at most PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def wait_while_exists(path: Path) -> None:
    while path.exists():
        time.sleep(0.01)


def waiting(
    load: Callable[[], None] = models.load_nothing, **functions: Callable[[Any], Any]
) -> Flask:
    """Return a service whose predict() creates the file FOLDER/NAME.begun, and waits.

    It waits for the file FOLDER/go.
    """
    inputs = [MetadataTensor("folder", "BYTES", [1]), MetadataTensor("name", "BYTES", [1])]

    def predict(_: Any, folder: np.ndarray, name: np.ndarray) -> np.ndarray:
        place = Path(folder[0].decode())
        (place / f"{name[0].decode()}.begun").touch()
        if name[0] == b"exit":
            os._exit(3)  # gunicorn's status for a worker that cannot start
        wait_for(place / "go")
        return name

    outputs = [MetadataTensor("done", "BYTES", [1])]
    return create_app(module=models.model(inputs, outputs, predict, load, **functions))


def holding() -> Flask:
    """Return a service whose predict() returns the sum of `x`.

    If the first element is not 0, it first creates the file FOLDER/ELEMENT.begun, and waits for the
    file FOLDER/go.
    """
    folder = Path(os.environ["FOLDER"])

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        if x[0]:
            (folder / f"{x[0]:.0f}.begun").touch()
            wait_for(folder / "go")
        return x.sum(keepdims=True)

    inputs = [models.vector("x", "FP64")]
    outputs = [models.vector("y", "FP64")]
    return create_app(module=models.model(inputs, outputs, predict))


def loading() -> Flask:
    """Return the same service with a load() that waits for FOLDER/loaded.

    Its progress is logged every 0.1 s.
    """
    model_runner.LOG_SECONDS = 0.1

    def load() -> None:
        place = Path(os.environ["FOLDER"])
        (place / "load.begun").touch()
        wait_for(place / "loaded")

    return waiting(load)


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    text = Path("/proc/self/statm").read_text()
    # The first two numbers are the pages of all memory, and of the resident memory.
    pages = int(text.split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory_peak() -> Flask:
    """Return a service whose load() uses 60 MiB for a while.

    predict() adds the number of MiB that were released since then.
    """
    peak = 0

    def load() -> None:
        nonlocal peak
        blocks = [b"x" * 2**20 for _ in range(60)]
        peak = resident()
        del blocks

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        released_bytes = peak - resident()
        return x + released_bytes // 2**20

    inputs = [models.vector("x", "INT64")]
    outputs = [models.vector("y", "INT64")]
    return create_app(module=models.model(inputs, outputs, predict, load))


def cpu_time() -> Flask:
    """Return a service whose predict() returns the CPU time of its process in ms.

    POST /read reads its body, and returns the number of bytes.
    """

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        return np.full_like(x, 1000 * time.process_time())

    def read() -> str:
        body = request.get_data()
        return str(len(body))

    inputs = [MetadataTensor("x", "INT64", [1])]
    outputs = [MetadataTensor("y", "INT64", [1])]
    app = create_app(module=models.model(inputs, outputs, predict))
    app.add_url_rule("/read", view_func=read, methods=["POST"])
    return app


def is_first(mark: Path) -> bool:
    """Return true in only one process, also if several call this with the same file at once."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def one_slow_load() -> Flask:
    """Return a service for two workers. One of them is ready when load() starts in the other.

    The other's load() waits for FOLDER/model.
    """

    def load() -> None:
        place = Path(os.environ["FOLDER"])
        if is_first(place / "first"):
            wait_for(place / "second")
        else:
            (place / "second").touch()
            wait_for(place / "model")

    return waiting(load)


def conditional_load_error() -> Flask:
    """Return a service whose load() raises an error if FOLDER/broken exists.

    The error has the text in this file. predict() does not wait. Some texts have other effects:
    "exit" ends the process, and "threads" starts a thread. "first" fails in one worker, and waits
    for FOLDER/model in others. "SystemExit" and "KeyboardInterrupt" are raised before the
    application is created.
    """
    place = Path(os.environ["FOLDER"])
    word = ""
    if (place / "broken").exists():
        word = (place / "broken").read_text()
    if word in ("SystemExit", "KeyboardInterrupt"):
        raise getattr(builtins, word)("no such thing")

    def load() -> None:
        (place / "go").touch()
        if word == "exit":
            os._exit(0)
        elif word == "threads":
            threading.Thread(target=time.sleep, args=(3600,), daemon=False).start()
        elif word == "first" and not is_first(place / "tried"):
            wait_for(place / "model")
        elif word:
            raise RuntimeError(word.format(pid=os.getpid()))

    return waiting(load)


def numbers() -> Flask:
    """Return a service that echoes an FP32 tensor of any length."""
    return create_app(module=models.echo("FP32", [-1]))


def counting() -> Flask:
    """Return the same service with a custom metric, the number of calls of predict()."""
    calls = Counter("own_calls", "Calls of predict().")
    model = models.echo("FP32", [-1])
    echo = model.predict

    def predict(_: Any, x: np.ndarray) -> Any:
        calls.inc()
        return echo(_, x)

    model.predict = predict
    return create_app(module=model)


def echoing() -> Flask:
    """Return a service that echoes a BYTES tensor of any length."""
    return create_app(module=models.echo("BYTES", [-1]))


def with_key_in_middleware() -> Flask:
    """Return the same service with an owner's middleware that checks the key of the tests."""
    from tests.service.access.secure_client import KEY

    def accepts(environ: dict[str, Any]) -> bool:
        return environ.get("HTTP_AUTHORIZATION") == f"Bearer {KEY}"

    app = echoing()
    inner = app.wsgi_app

    def check_key(environ: dict[str, Any], start_response: Any) -> Any:
        is_open = environ["PATH_INFO"] == "/v2/health/ready"
        if is_open or accepts(environ):
            return inner(environ, start_response)
        return Response('{"error": "no key"}', 401)(environ, start_response)

    app.wsgi_app = check_key  # type: ignore[method-assign]
    app.extensions["service"].add_head_check(accepts)
    return app


def with_failing_head_check() -> Flask:
    """Return the same service with a check of request heads that raises an exception."""
    app = echoing()
    app.extensions["service"].add_head_check(lambda environ: 1 / 0)
    return app


def without_epoll() -> Flask:
    """Return the same service, on a system without epoll."""
    assert not hasattr(select, "epoll")
    return echoing()


def measuring() -> Flask:
    """Return a service that returns the mean of each image in an FP32 tensor."""

    def predict(_: Any, image: np.ndarray) -> np.ndarray:
        return image.mean(axis=(1, 2, 3))

    inputs = [MetadataTensor("image", "FP32", [-1, 3, 224, 224])]
    outputs = [models.vector("mean", "FP32")]
    return create_app(module=models.model(inputs, outputs, predict))


def streaming() -> Flask:
    """Return a service whose GET /stream sends 20 chunks of 1 MiB.

    Each has its number, from 0, and spaces.
    """

    def stream() -> Iterator[bytes]:
        for number in range(20):
            yield str(number).encode().ljust(2**20)

    app = echoing()
    app.add_url_rule("/stream", view_func=stream)
    return app


def hold_route(model: Any = None) -> Flask:
    """Return a service whose GET /hold/<name> creates the file FOLDER/<name>, and waits.

    It waits for the file FOLDER/go.
    """

    def hold(name: str) -> str:
        place = Path(os.environ["FOLDER"])
        (place / name).touch()
        while not (place / "go").exists():
            time.sleep(0.01)
        return name

    app = create_app(module=model or models.echo("BYTES", [-1]))
    app.add_url_rule("/hold/<name>", view_func=hold)
    return app


def url_route() -> Flask:
    """Return a service with a custom route, GET /where, that returns the URL of the request."""

    def where() -> str:
        return request.base_url

    app = echoing()
    app.add_url_rule("/where", view_func=where)
    return app


# Text that would start a separate line of the log if the service did not escape it.
FORGED = '\n2026-01-01T00:00:00.000000Z INFO app: forged\x1b[31m\x85\x9b\u2028"\\ ü 🌷'


def logging_echo() -> Flask:
    """Return a BYTES echo whose first element decides what predict() does before.

    If it is "talk", predict() logs, warns, and starts a thread that fails. If it is "fail",
    predict() raises an exception.
    """
    logger = logging.getLogger("model")

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        if x[0] == b"talk":
            logger.info("about %s", FORGED, extra={"size": len(x), "text": FORGED})
            logger.info("%d", "no number")
            warnings.warn(FORGED, stacklevel=1)
            thread = threading.Thread(target=lambda: [][0])
            thread.start()
            thread.join()
        if x[0] == b"fail":
            raise ValueError(FORGED)
        return x

    inputs = [models.vector("x", "BYTES")]
    outputs = [models.vector("y", "BYTES")]
    return create_app(module=models.model(inputs, outputs, predict))


def delayed_observers() -> Flask:
    """Return the same service, whose observers of calls never run."""
    observer_queue.INTERVAL_SECONDS = 10**6
    return logging_echo()


def signature_mismatch() -> Flask:
    """Return a service whose predict() has a parameter that METADATA does not declare."""

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        return x

    return create_app(module=models.model([], [], predict))


def load_error() -> Flask:
    """Return a service whose load() raises an exception."""

    def load() -> None:
        raise FileNotFoundError("the model file is gone")

    def predict(_: Any) -> dict[str, Any]:
        return {}

    return create_app(module=models.model([], [], predict, load))


def versioned() -> Flask:
    """Return an FP32 echo with two more outputs.

    They are the word in FOLDER/model at the time of load(), and the worker's PID. load() adds a
    line to FOLDER/loads, and waits while FOLDER/wait exists. Then the word decides: if it is
    "broken", load() raises an exception. "half" waits for FOLDER/fail and raises in one worker, and
    waits for FOLDER/pass in others.
    """

    def load() -> str:
        place = Path(os.environ["FOLDER"])
        with (place / "loads").open("a") as file:
            file.write(f"{os.getpid()}\n")
        word = (place / "model").read_text()
        wait_while_exists(place / "wait")

        if word == "broken":
            raise RuntimeError("broken")
        if word == "half":
            if is_first(place / "tried"):
                wait_for(place / "fail")
                raise RuntimeError("broken")
            wait_for(place / "pass")
        return word

    def predict(word: str, x: np.ndarray) -> dict[str, Any]:
        return {"y": x, "word": [word], "pid": np.array([os.getpid()])}

    inputs = [models.vector("x", "FP32")]
    outputs = [
        models.vector("y", "FP32"),
        MetadataTensor("word", "BYTES", [1], content_type="str"),
        MetadataTensor("pid", "INT64", [1]),
    ]
    return create_app(module=models.model(inputs, outputs, predict, load))


def short_timeouts() -> Flask:
    """Return the service of streaming() with short timeouts for slow and closing connections."""
    from app.server import connection

    connection.TRANSFER_SECONDS = 0.5
    connection.LINGER_SECONDS = 0.5
    return streaming()


def unloading() -> Flask:
    """Return the `waiting` service with an unload() that fails.

    unload() adds the PID to FOLDER/unloads before. If FOLDER/slow exists, load() waits for
    FOLDER/loaded.
    """
    place = Path(os.environ["FOLDER"])

    def load() -> None:
        (place / "load.begun").touch()
        if (place / "slow").exists():
            wait_for(place / "loaded")

    def unload(_: Any) -> None:
        with (place / "unloads").open("a") as file:
            file.write(f"{os.getpid()}\n")
        raise RuntimeError("unload() has failed")

    return waiting(load, unload=unload)


def checked() -> Flask:
    """Return the `waiting` service with an is_healthy(), which adds a line to FOLDER/checks.

    If FOLDER/problem exists, is_healthy() raises an exception with its text, or returns False if it
    is empty.
    """
    place = Path(os.environ["FOLDER"])

    def is_healthy(_: Any) -> bool:
        with (place / "checks").open("a") as file:
            file.write("\n")
        if not (place / "problem").exists():
            return True

        text = (place / "problem").read_text()
        if text:
            raise RuntimeError(text)
        return False

    return waiting(is_healthy=is_healthy)


def visible_device() -> Flask:
    """Return a service that returns the worker's PID and CUDA variables for each row.

    They are CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER at the import. load() waits while FOLDER has
    a file with the name of the device.
    """
    device = os.environ["CUDA_VISIBLE_DEVICES"]
    order = os.environ["CUDA_DEVICE_ORDER"]

    def load() -> None:
        wait_while_exists(Path(os.environ["FOLDER"]) / device)

    def predict(_: Any, x: np.ndarray) -> dict[str, Any]:
        rows = len(x)
        return {
            "pid": np.full(rows, os.getpid()),
            "device": [device] * rows,
            "order": [order] * rows,
        }

    inputs = [models.vector("x", "FP32")]
    outputs = [
        MetadataTensor("device", "BYTES", [-1], content_type="str"),
        MetadataTensor("order", "BYTES", [-1], content_type="str"),
        models.vector("pid", "INT64"),
    ]
    return create_app(module=models.model(inputs, outputs, predict, load))


# Values of `x` whose calls never return.
STUCK = 7.0
HOLDING_GIL = 8.0


def stuck() -> Flask:
    """Return hold_route() with an FP32 echo. Two values of `x` are calls that never return.

    predict() adds a line with the number of rows to FOLDER/calls. load() creates FOLDER/load.begun,
    and waits while FOLDER/wait exists.
    """
    place = Path(os.environ["FOLDER"])

    def load() -> None:
        (place / "load.begun").touch()
        wait_while_exists(place / "wait")

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        with (place / "calls").open("a") as file:
            file.write(f"{len(x)}\n")
        if STUCK in x:
            threading.Event().wait()
        if HOLDING_GIL in x:
            ctypes.PyDLL(None).sleep(3600)
        return x

    inputs = [models.vector("x", "FP32")]
    outputs = [models.vector("y", "FP32")]
    return hold_route(models.model(inputs, outputs, predict, load))
