"""The part of the setup that needs code.

An installation compiles protos/ to the descriptor that grpc_service reads.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PROTO = Path("protos/open_inference_grpc.proto")
DESCRIPTOR = Path("grpc_service/open_inference_grpc.binpb")


class BuildDescriptor(build_py):
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
