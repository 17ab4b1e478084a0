"""The part of the setup that needs code.

An installation compiles the proto to the descriptor that the suite reads.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# A link to the proto of the service. Both sides of a test must use the same messages.
PROTO = Path("oip_conformance/open_inference_grpc.proto")
DESCRIPTOR = PROTO.with_suffix(".binpb")


class BuildDescriptor(build_py):
    """The build step for packages, which compiles the proto first."""

    def run(self) -> None:
        from grpc_tools import protoc

        arguments = [
            f"--proto_path={PROTO.parent}",
            f"--descriptor_set_out={DESCRIPTOR}",
            str(PROTO),
        ]
        if protoc.main(["protoc", *arguments]):
            raise SystemExit(f"{PROTO} does not compile")
        super().run()


setup(cmdclass={"build_py": BuildDescriptor})
