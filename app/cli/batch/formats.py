"""File formats. This module does not import optional packages."""

from pathlib import Path

# Delimiters of CSV.
DELIMITERS = [",", ";", "|", "tab"]
OUTPUT_FORMATS = ["csv", "parquet", "jsonl"]
# image is any file for a BYTES input.
FORMATS = [*OUTPUT_FORMATS, "npy", "image"]
SUFFIXES = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npy": "npy",
}
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff")


def format_of(path: str) -> str | None:
    """Return the format by the extension of the file's name. Ignore .gz."""
    suffix = Path(path.removesuffix(".gz")).suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        return "image"
    return SUFFIXES.get(suffix)
