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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flask import Flask, request
from prometheus_client import Counter

from app import create_app
from app.inference import model_runner
from app.observability import observer_queue
from app.protocol.metadata import MetadataTensor
from tests.kit import models

PATIENCE = 60
NONE = np.empty(0, np.int64)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def waiting(load: Callable[[], None] = lambda: None, **functions: Callable[[Any], Any]) -> Flask:
    """Return a service whose predict() creates the file FOLDER/NAME.begun, and then waits for FOLDER/go."""
    inputs = [MetadataTensor("folder", "BYTES", [1]), MetadataTensor("name", "BYTES", [1])]

    def predict(_: Any, folder: np.ndarray, name: np.ndarray) -> np.ndarray:
        place = Path(folder[0].decode())
        (place / f"{name[0].decode()}.begun").touch()
        if name[0] == b"exit":
            os._exit(3)  # gunicorn's status for a worker that cannot start
        wait_for(place / "go")
        return name

    return create_app(
        module=models.model(
            inputs, [MetadataTensor("done", "BYTES", [1])], predict, load, **functions
        )
    )


def loading() -> Flask:
    """Return the same service with a load() that waits for FOLDER/loaded. Its progress is logged every 0.1 s."""
    model_runner.LOG_SECONDS = 0.1

    def load() -> None:
        place = Path(os.environ["FOLDER"])
        (place / "load.begun").touch()
        wait_for(place / "loaded")

    return waiting(load)


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory_peak() -> Flask:
    """Return a service whose load() uses 60 MiB for a while. predict() adds the MiB that were released since then."""
    most = 0

    def load() -> None:
        nonlocal most
        blocks = [b"x" * 2**20 for _ in range(60)]
        most = resident()
        del blocks

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        return x + (most - resident()) // 2**20

    tensors = [MetadataTensor("x", "INT64", [-1])], [MetadataTensor("y", "INT64", [-1])]
    return create_app(module=models.model(*tensors, predict, load))


def cpu_time() -> Flask:
    """Return a service whose predict() returns the CPU time of its process in ms. POST /read reads its body."""

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        return np.full_like(x, 1000 * time.process_time())

    tensors = [MetadataTensor("x", "INT64", [1])], [MetadataTensor("y", "INT64", [1])]
    app = create_app(module=models.model(*tensors, predict))
    app.post("/read")(lambda: str(len(request.get_data())))
    return app


def is_first(mark: Path) -> bool:
    """Return true in only one process, also if several call this with the same file at once."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def one_slow_load() -> Flask:
    """Return a service of two workers. One is ready when load() starts in the other, which waits for FOLDER/model."""

    def load() -> None:
        place = Path(os.environ["FOLDER"])
        if is_first(place / "first"):
            wait_for(place / "second")
        else:
            (place / "second").touch()
            wait_for(place / "model")

    return waiting(load)


def conditional_load_error() -> Flask:
    """Return a service whose load() raises an error with the text in FOLDER/broken, if this file exists.

    predict() does not wait. Some texts have other effects: "exit" ends the process, and "threads" starts a thread.
    "first" fails in one worker, and waits for FOLDER/model in others. "SystemExit" and "KeyboardInterrupt" are raised
    before the application is created.
    """
    place = Path(os.environ["FOLDER"])
    word = (place / "broken").read_text() if (place / "broken").exists() else ""
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


def without_epoll() -> Flask:
    """Return the same service, on a system without epoll."""
    assert not hasattr(select, "epoll")
    return echoing()


def measuring() -> Flask:
    """Return a service that returns the mean of each image in an FP32 tensor."""
    tensors = (
        [MetadataTensor("image", "FP32", [-1, 3, 224, 224])],
        [MetadataTensor("mean", "FP32", [-1])],
    )
    return create_app(module=models.model(*tensors, lambda _, image: image.mean(axis=(1, 2, 3))))


def streaming() -> Flask:
    """Return a service whose GET /stream sends 20 chunks of 1 MiB: a number from 0 to 19, and spaces."""
    app = echoing()
    app.add_url_rule("/stream", view_func=lambda: (b"%-1048576d" % index for index in range(20)))
    return app


def hold_route(model: Any = None) -> Flask:
    """Return a service whose GET /hold/<name> creates the file FOLDER/<name>, and waits for FOLDER/go."""

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
    app = echoing()
    app.add_url_rule("/where", view_func=lambda: request.base_url)
    return app


# Text that would start a separate line of the log if the service did not escape it.
FORGED = '\n2026-01-01T00:00:00.000000Z INFO app: forged\x1b[31m\x85\x9b\u2028"\\ ü 🌷'


def logging_echo() -> Flask:
    """Return a BYTES echo that logs if the first element is "talk", and raises an exception if it is "fail"."""

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        if x[0] == b"talk":
            logging.getLogger("model").info(
                "about %s", FORGED, extra={"size": len(x), "text": FORGED}
            )
            logging.getLogger("model").info("%d", "no number")
            warnings.warn(FORGED, stacklevel=1)
            thread = threading.Thread(target=lambda: [][0])
            thread.start()
            thread.join()
        if x[0] == b"fail":
            raise ValueError(FORGED)
        return x

    return create_app(
        module=models.model(
            [MetadataTensor("x", "BYTES", [-1])], [MetadataTensor("y", "BYTES", [-1])], predict
        )
    )


def delayed_observers() -> Flask:
    """Return the same service, whose observers of calls never run."""
    observer_queue.INTERVAL_SECONDS = 10**6
    return logging_echo()


def signature_mismatch() -> Flask:
    """Return a service whose predict() has a parameter that METADATA does not declare."""
    return create_app(module=models.model([], [], lambda _, x: x))


def load_error() -> Flask:
    """Return a service whose load() raises an exception."""

    def load() -> None:
        raise FileNotFoundError("the model file is gone")

    return create_app(module=models.model([], [], lambda _: {}, load))


def versioned() -> Flask:
    """Return an FP32 echo with two more outputs: the word in FOLDER/model at the time of load(), and the worker's PID.

    load() adds a line to FOLDER/loads, and waits while FOLDER/wait exists. Then the word decides: if it is "broken",
    load() raises an exception. "half" waits for FOLDER/fail and raises in one worker, and waits for FOLDER/pass in
    others.
    """
    outputs = [
        MetadataTensor("y", "FP32", [-1]),
        MetadataTensor("word", "BYTES", [1], content_type="str"),
    ]
    outputs.append(MetadataTensor("pid", "INT64", [1]))

    def load() -> str:
        place = Path(os.environ["FOLDER"])
        with (place / "loads").open("a") as file:
            file.write(f"{os.getpid()}\n")
        word = (place / "model").read_text()
        while (place / "wait").exists():
            time.sleep(0.01)
        is_broken = word == "broken" or (word == "half" and is_first(place / "tried"))
        if word == "half":
            wait_for(place / ("fail" if is_broken else "pass"))
        if is_broken:
            raise RuntimeError("broken")
        return word

    def predict(word: str, x: np.ndarray) -> dict[str, Any]:
        return {"y": x, "word": [word], "pid": np.array([os.getpid()])}

    return create_app(
        module=models.model([MetadataTensor("x", "FP32", [-1])], outputs, predict, load)
    )


def short_timeouts() -> Flask:
    """Return the service of streaming() with timeouts of half a second for slow and closing connections."""
    from app.server import connection

    connection.TRANSFER_SECONDS = connection.LINGER_SECONDS = 0.5
    return streaming()


def unloading() -> Flask:
    """Return the `waiting` service with an unload(), which adds the PID to FOLDER/unloads and raises an exception.

    If FOLDER/slow exists, load() waits for FOLDER/loaded.
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

    If FOLDER/problem exists, is_healthy() raises an exception with its text, or returns False if it is empty.
    """
    place = Path(os.environ["FOLDER"])

    def is_healthy(_: Any) -> bool:
        with (place / "checks").open("a") as file:
            file.write("\n")
        text = (place / "problem").read_text() if (place / "problem").exists() else None
        if text:
            raise RuntimeError(text)
        return text is None

    return waiting(is_healthy=is_healthy)


def visible_device() -> Flask:
    """Return a service that returns the worker's PID, and CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER at the import.

    load() waits while FOLDER has a file with the name of the device.
    """
    device, order = (os.environ[f"CUDA_{name}"] for name in ("VISIBLE_DEVICES", "DEVICE_ORDER"))

    def load() -> None:
        while (Path(os.environ["FOLDER"]) / device).exists():
            time.sleep(0.01)

    def predict(_: Any, x: np.ndarray) -> dict[str, Any]:
        return {
            "pid": np.full(len(x), os.getpid()),
            "device": [device] * len(x),
            "order": [order] * len(x),
        }

    outputs = [
        MetadataTensor(name, "BYTES", [-1], content_type="str") for name in ("device", "order")
    ]
    outputs.append(MetadataTensor("pid", "INT64", [-1]))
    return create_app(
        module=models.model([MetadataTensor("x", "FP32", [-1])], outputs, predict, load)
    )


# Values of `x` whose calls never return.
STUCK = 7.0
HOLDING_GIL = 8.0


def stuck() -> Flask:
    """Return hold_route() with an FP32 echo. Two values of `x` are calls that never return.

    predict() adds a line with the number of rows to FOLDER/calls. load() creates FOLDER/load.begun, and waits while
    FOLDER/wait exists.
    """
    place = Path(os.environ["FOLDER"])

    def load() -> None:
        (place / "load.begun").touch()
        while (place / "wait").exists():
            time.sleep(0.01)

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        with (place / "calls").open("a") as file:
            file.write(f"{len(x)}\n")
        if STUCK in x:
            threading.Event().wait()
        if HOLDING_GIL in x:
            ctypes.PyDLL(None).sleep(3600)
        return x

    tensors = [MetadataTensor("x", "FP32", [-1])], [MetadataTensor("y", "FP32", [-1])]
    return hold_route(models.model(*tensors, predict, load))
