"""Entry point of `python -m oip_conformance`."""

from oip_conformance.command import main

if __name__ == "__main__":
    main(prog_name="oip-conformance")
