"""Services that the tests start by gunicorn: 'tests.service.apps:waiting()'."""

from __future__ import annotations

import builtins
import itertools
import json
import logging
import os
import select
import subprocess
import threading
import time
import warnings
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from flask import Flask, request
from prometheus_client import Counter

from app import create_app, journal
from app.errors import InvalidInput
from app.types import MetadataTensor
from tests.service import models

PATIENCE = 60
NONE = np.empty(0, np.int64)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def waiting(load: Callable[[], None] = lambda: None) -> Flask:
    """predict() notes that it has begun, in a file FOLDER/NAME.begun, and returns when FOLDER/go is there."""
    inputs = [MetadataTensor("folder", "BYTES", [1]), MetadataTensor("name", "BYTES", [1])]

    def predict(_: Any, folder: np.ndarray, name: np.ndarray) -> np.ndarray:
        place = Path(folder[0].decode())
        (place / f"{name[0].decode()}.begun").touch()
        if name[0] == b"exit":
            os._exit(3)  # what gunicorn takes for a worker that cannot start
        wait_for(place / "go")
        return name

    return create_app(module=models.model(inputs, [MetadataTensor("done", "BYTES", [1])], predict, load))


def loading() -> Flask:
    """load() waits for FOLDER/loaded; else the same."""

    def load() -> None:
        place = Path(os.environ["FOLDER"])
        (place / "load.begun").touch()
        wait_for(place / "loaded")

    return waiting(load)


def resident() -> int:
    """The bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def wasteful() -> Flask:
    """load() needs 60 MiB for a while, and predict() tells how much less the process has, in MiB, since then."""
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


def spending() -> Flask:
    """predict() tells how many milliseconds its process has kept a processor busy; POST /read reads its body."""

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        return np.full_like(x, 1000 * time.process_time())

    tensors = [MetadataTensor("x", "INT64", [1])], [MetadataTensor("y", "INT64", [1])]
    app = create_app(module=models.model(*tensors, predict))
    app.post("/read")(lambda: str(len(request.get_data())))
    return app


def is_first(mark: Path) -> bool:
    """Whether no other process has been here, even at the same moment."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def uneven() -> Flask:
    """load() returns in one worker when it has begun in another, and there when FOLDER/model is there."""

    def load() -> None:
        place = Path(os.environ["FOLDER"])
        if is_first(place / "first"):
            wait_for(place / "second")
        else:
            (place / "second").touch()
            wait_for(place / "model")

    return waiting(load)


def breakable() -> Flask:
    """load() raises what FOLDER/broken says, once it is there; else the same, and nothing waits.

    "exit" ends the process, "threads" leaves one, and "first" fails in one worker and waits in others for FOLDER/model;
    SystemExit and KeyboardInterrupt are raised in place of the application.
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
    """An FP32 tensor of any length, echoed."""
    return create_app(module=models.echo("FP32", [-1]))


def counting() -> Flask:
    """The same, and a metric of the project's own: how often predict() was called."""
    calls = Counter("own_calls", "Calls of predict().")
    model = models.echo("FP32", [-1])
    echo = model.predict

    def predict(_: Any, x: np.ndarray) -> Any:
        calls.inc()
        return echo(_, x)

    model.predict = predict
    return create_app(module=model)


def echoing() -> Flask:
    """A BYTES tensor of any length, echoed."""
    return create_app(module=models.echo("BYTES", [-1]))


def without_epoll() -> Flask:
    """The same, on a system that has none."""
    assert not hasattr(select, "epoll")
    return echoing()


def measuring() -> Flask:
    """A picture in numbers, of which the mean comes out."""
    tensors = [MetadataTensor("image", "FP32", [-1, 3, 224, 224])], [MetadataTensor("mean", "FP32", [-1])]
    return create_app(module=models.model(*tensors, lambda _, image: image.mean(axis=(1, 2, 3))))


def streaming() -> Flask:
    """GET /stream answers in twenty pieces of a MiB, the first of "0", the last of "19", and spaces."""
    app = echoing()
    app.add_url_rule("/stream", view_func=lambda: (b"%-1048576d" % index for index in range(20)))
    return app


def holding() -> Flask:
    """GET /hold/<name> says in FOLDER that it is there, and answers once "go" is."""

    def hold(name: str) -> str:
        place = Path(os.environ["FOLDER"])
        (place / name).touch()
        while not (place / "go").exists():
            time.sleep(0.01)
        return name

    app = echoing()
    app.add_url_rule("/hold/<name>", view_func=hold)
    return app


def telling() -> Flask:
    """A route of the project's own, which tells where it was called."""
    app = echoing()
    app.add_url_rule("/where", view_func=lambda: request.base_url)
    return app


# What would be a line of its own, were it not for the form of the log.
FORGED = '\n2026-01-01T00:00:00.000000Z INFO app: forged\x1b[31m\x85\x9b\u2028"\\ ü 🌷'


def talking() -> Flask:
    """A BYTES tensor of any length, echoed; one that begins with "talk" is talked about, one with "fail" fails."""

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        if x[0] == b"talk":
            logging.getLogger("model").info("about %s", FORGED, extra={"size": len(x), "text": FORGED})
            logging.getLogger("model").info("%d", "no number")
            warnings.warn(FORGED, stacklevel=1)
            thread = threading.Thread(target=lambda: [][0])
            thread.start()
            thread.join()
        if x[0] == b"fail":
            raise ValueError(FORGED)
        return x

    return create_app(
        module=models.model([MetadataTensor("x", "BYTES", [-1])], [MetadataTensor("y", "BYTES", [-1])], predict)
    )


def silent() -> Flask:
    """The same, its journal waiting for ever."""
    journal.INTERVAL_SECONDS = 10**6
    return talking()


def disagreeing() -> Flask:
    """predict() takes what METADATA does not declare."""
    return create_app(module=models.model([], [], lambda _, x: x))


def unloadable() -> Flask:
    """load() raises."""

    def load() -> None:
        raise FileNotFoundError("the model file is gone")

    return create_app(module=models.model([], [], lambda _: {}, load))


def versioned() -> Flask:
    """An FP32 tensor echoed, what FOLDER/model said when it was loaded, and the process that answers.

    load() adds a line to FOLDER/loads, waits while there is FOLDER/wait, raises where the word is "broken", leaves
    a thread where it is "threaded", and where it is "parent" reads how a process of its own ends. If it is "half",
    load() waits for FOLDER/fail and raises in one worker, and waits for FOLDER/pass in others. The model holds 64 MiB.
    """
    outputs = [MetadataTensor("y", "FP32", [-1]), MetadataTensor("word", "BYTES", [1], content_type="str")]
    outputs.append(MetadataTensor("pid", "INT64", [1]))

    def load() -> dict[str, Any]:
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
        if word == "threaded":
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        if word == "parent":
            child = subprocess.Popen(["sh", "-c", "exit 7"])
            time.sleep(1.5)  # more than a turn of the master, which may not read it
            assert child.wait() == 7
        return {"word": word, "weights": np.ones(2**23)}

    def predict(model: dict[str, Any], x: np.ndarray) -> dict[str, Any]:
        assert model["weights"].sum() == 2**23
        return {"y": x, "word": [model["word"]], "pid": np.array([os.getpid()])}

    return create_app(module=models.model([MetadataTensor("x", "FP32", [-1])], outputs, predict, load))


def hasty() -> Flask:
    """A BYTES echo, and streams, whose clients get half a second for what else they have half a minute for."""
    from app.server import connection

    connection.TRANSFER_SECONDS = connection.LINGER_SECONDS = 0.5
    return streaming()


def rows() -> Flask:
    """Rows of one value of each kind, echoed, `pair` being [number, -number]; `whole` may be absent.

    Rows whose text has "fault" are refused until there is FOLDER/mended, and batches of more than one row take 0 to
    20 ms, by their first number.
    """
    kinds = {"number": ("FP64", None), "text": ("BYTES", "str"), "when": ("BYTES", "datetime"), "flag": ("BOOL", None)}
    inputs = [MetadataTensor(name, datatype, [-1], kind) for name, (datatype, kind) in kinds.items()]
    inputs.append(MetadataTensor("whole", "INT64", [-1]))

    def predict(
        _: Any, number: np.ndarray, text: list[str], when: list[datetime], flag: np.ndarray, whole: np.ndarray = NONE
    ) -> dict[str, Any]:
        if any("fault" in (each or "") for each in text) and not (Path(os.environ["FOLDER"]) / "mended").exists():
            raise InvalidInput("a row is not to my liking")
        if len(number) > 1 and np.isfinite(number[0]):
            time.sleep(number[0] % 3 / 100)
        whole = whole if len(whole) else np.zeros(len(number), np.int64)
        pair = np.stack([number, -number], axis=1).astype(np.float32)
        return {"number": number, "text": text, "when": when, "flag": flag, "whole": whole, "pair": pair}

    outputs = [*inputs, MetadataTensor("pair", "FP32", [-1, 2])]
    return create_app(module=models.model(inputs, outputs, predict))


def images() -> Flask:
    """How many bytes each image has, and its first four; images travel in base64."""

    def predict(_: Any, image: list[bytes]) -> dict[str, Any]:
        return {"size": np.array([len(each) for each in image]), "begins": [repr(each[:4]) for each in image]}

    outputs = [MetadataTensor("size", "INT64", [-1]), MetadataTensor("begins", "BYTES", [-1], "str")]
    return create_app(module=models.model([MetadataTensor("image", "BYTES", [-1], "base64")], outputs, predict))


def four() -> Flask:
    """Four numbers a row to two."""

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        return x @ np.arange(8, dtype=np.float32).reshape(4, 2)

    return create_app(
        module=models.model([MetadataTensor("x", "FP32", [-1, 4])], [MetadataTensor("y", "FP32", [-1, 2])], predict)
    )


def once() -> Flask:
    """An FP32 echo that answers its first call, and fails from then on."""
    calls = itertools.count()

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        if next(calls):
            raise RuntimeError("no second time")
        return x

    return create_app(
        module=models.model([MetadataTensor("x", "FP32", [-1])], [MetadataTensor("y", "FP32", [-1])], predict)
    )


def values() -> Flask:
    """A text as each kind of output that text may be: `text` itself, missing where it is "gap"; `json`, the JSON that
    it is, or itself; `when`, a moment, with an offset where it says so; `number`, infinite where it says "inf"; and
    `bytes`, no text where it says "png".
    """

    def predict(_: Any, text: list[str]) -> dict[str, Any]:
        return {
            "text": [None if each == "gap" else each for each in text],
            "json": [as_json(each) for each in text],
            "when": ["2024-01-01T00:00:00" + "+01:00" * ("offset" in each) for each in text],
            "number": np.array([np.inf if "inf" in each else 0.0 for each in text]),
            "bytes": [b"\x89PNG" if each == "png" else b"" for each in text],
        }

    kinds = {"text": "str", "json": "pd_json", "when": "datetime"}
    outputs = [MetadataTensor(name, "BYTES", [-1], kind) for name, kind in kinds.items()]
    outputs += [MetadataTensor("number", "FP64", [-1]), MetadataTensor("bytes", "BYTES", [-1])]
    return create_app(module=models.model([MetadataTensor("text", "BYTES", [-1], "str")], outputs, predict))


def as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def scaled() -> Flask:
    """An FP32 tensor of at most two numbers, times a scalar."""

    def predict(_: Any, x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        if len(x) > 2:
            raise InvalidInput("more than two are not to my liking")
        return x * scale

    inputs = [MetadataTensor("x", "FP32", [-1]), MetadataTensor("scale", "FP32", [])]
    return create_app(module=models.model(inputs, [MetadataTensor("y", "FP32", [-1])], predict))
