"""Run client scripts against servers: python run.py SCRIPTS [HTTP_ADDRESS GRPC_ADDRESS MODEL_NAME]...

SCRIPTS are names of modules in this directory, separated by commas. They share a process, because the import of a
client's package takes up to two seconds. Each has a function main(http, grpc, model), which raises an exception if a
check fails. iris.py and echo.py define the data for each model.
"""

import sys
from importlib import import_module


def main(scripts: str, *targets: str) -> None:
    for name in scripts.split(","):
        script = import_module(name)
        for start in range(0, len(targets), 3):
            script.main(*targets[start : start + 3])
    print("ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
