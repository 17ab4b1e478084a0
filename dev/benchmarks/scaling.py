"""Simulate bursty load on replicas that Kubernetes scales by CPU utilization or by requests in flight.

python -m dev.benchmarks.scaling --help    # --picture needs matplotlib

A replica processes requests like the service: it runs MAX_CONCURRENCY requests, queues
MAX_QUEUE_SIZE and rejects others. dev/benchmarks/README.md describes the results.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import numpy as np

from dev.benchmarks.autoscaler import Model, Outcome, Setup, Simulation

# Colors that color-blind readers can distinguish, and line styles.
SIGNALS = {
    "CPU": ("#0072B2", "-", 1.5),
    "in flight": ("#E69F00", "-", 2.5),
    "both": ("#000000", "--", 1.3),
}
LABELS = {
    "CPU": "scaled on CPU",
    "in flight": "on requests in flight",
    "both": "on both, the larger",
}


def outcomes(setup: Setup) -> dict[tuple[str, str], Outcome]:
    """Run the simulation for each model and signal."""
    models = {"computes": Model(setup.cpu, 0), "waits": Model(setup.wait_cpu, setup.wait)}
    return {
        (name, signal): Simulation(setup, model, signal).run()
        for name, model in models.items()
        for signal in SIGNALS
    }


def table(found: dict[tuple[str, str], Outcome]) -> str:
    head = [
        "the model",
        "scaled on",
        "offered",
        "succeeded",
        "rejected",
        "responses after more than 1 s",
        "peak replicas",
        "replica-minutes",
    ]
    lines = [head, ["---"] * len(head)]
    for (name, signal), outcome in found.items():
        shares = [
            f"{100 * each / outcome.offered:.1f} %" for each in (outcome.rejected, outcome.late())
        ]
        counts = [f"{outcome.offered:,}", f"{outcome.succeeded:,}"]
        lines.append(
            [
                name,
                signal,
                *counts,
                *shares,
                str(outcome.peak()),
                f"{outcome.replica_minutes():.0f}",
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def draw(setup: Setup, found: dict[tuple[str, str], Outcome], path: Path) -> None:
    """Draw one column of panels per model: replicas and load above rejections."""
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(
        2, 2, figsize=(10, 5.5), sharex=True, sharey="row", layout="constrained"
    )
    times, rates = np.array(setup.profile(), float).T
    for column, name in enumerate(dict.fromkeys(name for name, _ in found)):
        upper, lower = grid[:, column]
        capacity = capacity_of(setup, name)
        upper.fill_between(
            times / 60, rates / capacity, color="0.87", label="replicas that the load needs"
        )
        for signal, (color, style, width) in SIGNALS.items():
            line = {"color": color, "linestyle": style, "linewidth": width}
            second, replicas, _, rejected = np.array(found[name, signal].seconds, float).T
            upper.step(second / 60, replicas, where="post", label=LABELS[signal], **line)
            lower.plot(second[10:] / 60, (rejected[10:] - rejected[:-10]) / 10, **line)
        upper.set_title(f"A model that {name}", fontsize=11)
        lower.set_xlabel("minutes")
        for axes in (upper, lower):
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_ylim(bottom=0)
            axes.margins(x=0)
    grid[0, 0].set_ylabel("replicas")
    grid[1, 0].set_ylabel("rejected per second")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside upper center", ncols=4)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def capacity_of(setup: Setup, name: str) -> float:
    """Return the capacity of a replica in requests per second."""
    return (
        setup.cores / setup.cpu
        if name == "computes"
        else setup.concurrency / (setup.wait + setup.wait_cpu)
    )


def options(command: Any) -> Any:
    """Add one option per field of Setup."""
    for each in reversed(fields(Setup)):
        name = "--" + each.name.replace("_", "-")
        kind = click.IntRange if isinstance(each.default, int) else click.FloatRange
        how = {"type": kind(each.metadata["least"]), "default": each.default, "show_default": True}
        command = click.option(name, help=each.metadata["doc"], **how)(command)
    return command


@click.command()
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    help="Image file for the chart, such as scaling.png.",
)
@options
def main(picture: Path | None, **figures: Any) -> None:
    """Simulate bursty load on replicas that are scaled by CPU utilization or requests in flight. Print the results."""
    setup = Setup(**figures)
    if setup.low > setup.high:
        raise click.ClickException(f"--low {setup.low} is more than --high {setup.high}")
    found = outcomes(setup)
    click.echo(table(found))
    if picture:
        draw(setup, found, picture)


if __name__ == "__main__":
    main()
