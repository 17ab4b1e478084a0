"""Entry point: python -m conformance --http http://127.0.0.1:8080 --grpc 127.0.0.1:8081 --model conformance"""

from __future__ import annotations

import os
import sys

try:
    from conformance.command import main
except ModuleNotFoundError as error:
    sys.stderr.write(
        f"{error}; what the suite needs is set up by .venv/bin/pip install -e '.[dev]'\n"
    )
    sys.exit(2)

if __name__ == "__main__":
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    main(prog_name="python -m conformance")
