"""Installed packages: their versions, and requirements that they do not meet."""

from collections.abc import Iterator
from configparser import RawConfigParser
from importlib.metadata import PackageNotFoundError, distribution, version

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from app.config.settings import ROOT

# Packages that load models. `python -m app --version` prints the versions of those that are
# installed, even if setup.cfg does not list them.
MODEL_FRAMEWORKS = (
    "catboost",
    "flax",
    "jax",
    "joblib",
    "keras",
    "lightgbm",
    "mlflow-skinny",
    "mlflow",
    "onnxruntime",
    "onnxruntime-gpu",
    "openvino",
    "safetensors",
    "scikit-learn",
    "scipy",
    "sentence-transformers",
    "spacy",
    "statsmodels",
    "tensorflow",
    "tokenizers",
    "torch",
    "transformers",
    "xgboost",
)


def service_requirements() -> list[Requirement]:
    """Return the requirements in `install_requires` of setup.cfg that apply to this platform."""
    parser = RawConfigParser()  # no interpolation of %, as in setuptools
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    lines = parser.get("options", "install_requires", fallback="").splitlines()
    return list(_parse_requirements(lines))


def find_unmet_requirements() -> Iterator[str]:
    """Yield a warning for each unmet requirement of the service, or of a package that it needs.

    Takes 10 ms. `pip check`, which examines all installed packages, can take seconds.
    """
    seen = set()
    pending = [("setup.cfg", requirement) for requirement in service_requirements()]
    while pending:
        dependent, requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        try:
            metadata = distribution(name).metadata
        except PackageNotFoundError:
            yield _unmet_requirement(dependent, requirement, "none")
            continue

        installed = metadata["Version"]
        if not requirement.specifier.contains(installed, prereleases=True):
            yield _unmet_requirement(dependent, requirement, installed)
        if name not in seen:
            seen.add(name)
            for nested in _parse_requirements(metadata.get_all("Requires-Dist") or []):
                pending.append((f"{name} {installed}", nested))


def installed_versions() -> dict[str, str]:
    """Return the versions of the service's requirements and of model frameworks, by name."""
    versions = {}
    required = [requirement.name for requirement in service_requirements()]
    for name in sorted({*required, *MODEL_FRAMEWORKS}):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            if name in required:
                versions[name] = "not installed"
    return versions


def _parse_requirements(lines: list[str]) -> Iterator[Requirement]:
    """Yield the requirements for this platform, without those of extras."""
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:  # an empty line, or setuptools' own syntax, such as file:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def _unmet_requirement(dependent: str, requirement: Requirement, installed: str) -> str:
    expected = f"{requirement.name}{requirement.specifier}"
    return (
        f"Package {requirement.name}: unmet requirement of {dependent}. Expected {expected},"
        f" got {installed}. Install the packages of the project again: pip install -e ."
    )
