"""File formats. This module does not import optional packages."""

from pathlib import Path

DELIMITERS = [",", ";", "|", "tab"]  # of CSV
OUTPUT_FORMATS = ["csv", "parquet", "jsonl"]
FORMATS = [*OUTPUT_FORMATS, "npy", "image"]  # image: any file for a BYTES input
SUFFIXES = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npy": "npy",
}
SUFFIXES |= dict.fromkeys(
    [".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff"], "image"
)


def format_of(path: str) -> str | None:
    """Return the format by the extension of the file's name. Ignore .gz."""
    return SUFFIXES.get(Path(path.removesuffix(".gz")).suffix.lower())
