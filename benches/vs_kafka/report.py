"""From the runs to `report.md` and its plots."""

import itertools
import os
import platform
import re
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shapes import BARE_TARGET, COMPARISONS, SINK_SHAPE, Comparison, Shape, Target

Line = dict[str, Any]

NEIGHBOURS_MAX = 0.1
"""Runs in a row that differ by more are told: the machine, or the side, was not steady."""
PERF = "producer-perf-test"
SINKS = {
    "sink": "where the scheduler puts them",
    "sink, one processor": "on one processor",
}


class Numbers:
    """The runs of one side in one shape."""

    def __init__(self, lines: list[Line], unit: str) -> None:
        self.results = [line["result"] for line in lines]
        self._cpu = "server_us_per_request" if unit == "request" else "server_ms_per_gb"
        self._rate = "requests_per_s" if unit == "request" else "mb_per_s"

    def _all(self, name: str) -> list[float]:
        return [each[name] for each in self.results if each.get(name) is not None]

    def median(self, name: str) -> float:
        """NaN where nothing was measured."""
        values = self._all(name)
        return statistics.median(values) if values else float("nan")

    @property
    def cpu(self) -> float:
        """Median CPU per unit: us a request or ms a GB."""
        return self.median(self._cpu)

    @property
    def neighbours(self) -> list[float]:
        """By how much CPU each run differs from the one before it, a share of the lesser."""
        values = self._all(self._cpu)
        pairs = itertools.pairwise(values)
        return [abs(one - other) / min(one, other) for one, other in pairs if min(one, other) > 0]

    @property
    def best_cpu(self) -> float:
        """The least."""
        return min(self._all(self._cpu), default=float("nan"))

    @property
    def rate(self) -> float:
        """Median requests/s or MB/s."""
        return self.median(self._rate)

    @property
    def best_rate(self) -> float:
        """The most."""
        return max(self._all(self._rate), default=float("nan"))


def write(
    out: Path,
    lines: list[Line],
    ours: Mapping[str, str],
    kafka: Mapping[str, str],
    started: float,
    *,
    is_awake: bool,
) -> None:
    """Writes `report.md` and the plots into `out`."""
    awake = "kept from halting by loops of idle priority" if is_awake else "free to halt"
    text = [
        "# kafkalite beside Apache Kafka 4.3.1",
        "",
        "**One node, replication factor 1.** Both brokers are up on this machine, on one disk, all",
        "the time; runs alternate, and whoever is not measured stands still (SIGSTOP). CPU is that",
        "of the broker's process; the ratio compares our median with Kafka's *best* run, since its",
        "compilers and collectors need long to settle. A ratio above 1 is in our favour.",
        "",
        f"- {time.strftime('%Y-%m-%d %H:%M', time.gmtime(started))} UTC, {machine()}",
        f"- load average now: {', '.join(f'{each:.1f}' for each in os.getloadavg())}",
        f"- processors: {awake}",
        f"- kafkalite: {_properties(ours)}; `kafkalite.acks.fsync` as each comparison says",
        f"- Kafka: {_properties(kafka)}, -Xms1G -Xmx1G, G1 as in its start scripts",
        "- topics: 3 partitions, 64 MiB segments, 64 MiB kept, so that both write into pages that",
        "  were in use before",
        "",
    ]
    for comparison in COMPARISONS:
        own = [line for line in lines if line.get("comparison") == comparison.name]
        if own:
            text += [f"## {comparison.name}", "", comparison.what + ".", ""]
            text += _table(comparison, own)
            text += _beside(comparison, own)
            text += _disagreements(comparison, own)
            text += _latencies(comparison, own)
            text += _without_broker(own)
            text += _bare(comparison, own)
            plot = out / f"{re.sub(r'[^a-z]+', '-', comparison.name.lower())}.png"
            _plot(comparison, own, plot)
            text += [f"![CPU and rates]({plot.name})", ""]
    text += _small([line for line in lines if "small" in line])
    (out / "report.md").write_text("\n".join(text) + "\n")


def _sides(lines: list[Line], shape: str, unit: str) -> tuple[Numbers, Numbers]:
    own = [line for line in lines if line["shape"] == shape]
    ours = [line for line in own if line["side"].startswith("kafkalite")]
    return (
        Numbers(ours, unit),
        Numbers([line for line in own if line["side"] == "Kafka"], unit),
    )


def _measured(comparison: Comparison, lines: list[Line]) -> list[Shape]:
    names = {line["shape"] for line in lines}
    shapes = [shape for shape in comparison.shapes if shape.name in names]
    if PERF in names:
        what = "Kafka's producer-perf-test: 200,000 records of 1 KB, acks=all"
        shapes.append(Shape(PERF, what, "produce", "GB", {}))
    return shapes


def _table(comparison: Comparison, lines: list[Line]) -> list[str]:
    side = "ours: median (best) | Kafka: median (best) | Ratio | Target"
    text = [f"| Load | CPU, {side} | Rate, {side} | RSS MB |", "|---" * 10 + "|"]
    for shape in _measured(comparison, lines):
        ours, kafka = _sides(lines, shape.name, shape.unit)
        unit, rate = ("us/req", "req/s") if shape.unit == "request" else ("ms/GB", "MB/s")
        cpu_ratio = kafka.best_cpu / ours.cpu
        rate_ratio = ours.rate / kafka.best_rate
        is_open_loop = shape.mode == "latency"
        text.append(
            f"| **{shape.name}**: {shape.what} | {ours.cpu:,.1f} ({ours.best_cpu:,.1f}) {unit} | "
            f"{kafka.cpu:,.1f} ({kafka.best_cpu:,.1f}) | {cpu_ratio:.2f} | "
            f"{_verdict(cpu_ratio, shape.target.cpu)} | "
            f"{ours.rate:,.0f} ({ours.best_rate:,.0f}) {rate} | "
            f"{kafka.rate:,.0f} ({kafka.best_rate:,.0f}) | "
            f"{'given' if is_open_loop else f'{rate_ratio:.2f}'} | "
            f"{_verdict(rate_ratio, shape.target.rate)} | "
            f"{ours.median('server_rss_mb'):.0f} / {kafka.median('server_rss_mb'):.0f} |"
        )
    return [*text, ""]


def _beside(comparison: Comparison, lines: list[Line]) -> list[str]:
    """Ours over the other program of kafkalite, in the same run: below 1 is less CPU, or slower."""
    if not any(line["side"] == "before" for line in lines):
        return []
    text = [
        "| Load | CPU over before's: medians (best) | Rate over before's: medians (best) |",
        "|---|---|---|",
    ]
    for shape in _measured(comparison, lines):
        ours, _ = _sides(lines, shape.name, shape.unit)
        own = [line for line in lines if line["shape"] == shape.name and line["side"] == "before"]
        if own:
            before = Numbers(own, shape.unit)
            text.append(
                f"| {shape.name} | {ours.cpu / before.cpu:.3f} "
                f"({ours.best_cpu / before.best_cpu:.3f}) | {ours.rate / before.rate:.3f} "
                f"({ours.best_rate / before.best_rate:.3f}) |"
            )
    return [*text, ""]


def _verdict(ratio: float, target: float | None) -> str:
    if target is None:
        return ""
    return f"{target:.2f} {'reached' if ratio >= target else '**missed**'}"


def _disagreements(comparison: Comparison, lines: list[Line]) -> list[str]:
    """The rows of whose medians less can be said."""
    text = []
    for shape in _measured(comparison, lines):
        ours, kafka = _sides(lines, shape.name, shape.unit)
        for name, numbers in (("ours", ours), ("Kafka", kafka)):
            far = [each for each in numbers.neighbours if each > NEIGHBOURS_MAX]
            if far:
                text.append(
                    f"- {shape.name}, {name}: {len(far)} of {len(numbers.neighbours)}, "
                    f"up to {max(far):.0%}"
                )
    if not text:
        return []
    head = f"Runs that differ in CPU by more than {NEIGHBOURS_MAX:.0%} from the one before them:"
    return [head, "", *text, ""]


def _latencies(comparison: Comparison, lines: list[Line]) -> list[str]:
    shapes = [each for each in _measured(comparison, lines) if each.mode == "latency"]
    if not shapes:
        return []
    times = "p50/p99/p99.9, ms"
    text = [
        f"| Latency, medians | ours {times} | Kafka {times} | p99 ratio | Target | late, p99 |",
        "|---|---|---|---|---|---|",
    ]
    for shape in shapes:
        ours, kafka = _sides(lines, shape.name, shape.unit)
        told = [
            " / ".join(f"{side.median(name):.2f}" for name in ("p50_ms", "p99_ms", "p999_ms"))
            for side in (ours, kafka)
        ]
        ratio = ours.median("p99_ms") / kafka.median("p99_ms")
        late = f"{ours.median('client_late_p99_ms'):.2f} / {kafka.median('client_late_p99_ms'):.2f}"
        text.append(
            f"| {shape.what} | {told[0]} | {told[1]} | {ratio:.2f} | "
            f"{_latency_verdict(ratio, ours.median('p99_ms'), shape.target)} | {late} |"
        )
    return [*text, ""]


def _latency_verdict(ratio: float, p99_ms: float, target: Target) -> str:
    if target.p99 is not None:
        return f"{target.p99:.2f} {'reached' if ratio <= target.p99 else '**missed**'}"
    if target.p99_ms is not None:
        return f"{target.p99_ms:.0f} ms {'reached' if p99_ms <= target.p99_ms else '**missed**'}"
    return ""


def _without_broker(lines: list[Line]) -> list[str]:
    """What the kernel alone takes for a request of one connection."""
    sinks = {
        name: Numbers(
            [line for line in lines if line["shape"] == SINK_SHAPE and line["side"] == name],
            "request",
        )
        for name in SINKS
    }
    if not any(numbers.results for numbers in sinks.values()):
        return []
    ours, kafka = _sides(lines, SINK_SHAPE, "request")
    text = [
        f"The system calls of {SINK_SHAPE} without a broker, which any broker makes (`load sink`:",
        "wait, receive, write, flush where both sides do, send):",
        "",
        "| Loop and client run | CPU: median (best) | Kafka's best over it | Rate | ours over it |",
        "|---|---|---|---|---|",
    ]
    for name, where in SINKS.items():
        numbers = sinks[name]
        text.append(
            f"| {where} | {numbers.cpu:,.1f} ({numbers.best_cpu:,.1f}) us/req | "
            f"{kafka.best_cpu / numbers.cpu:.2f} ({kafka.best_cpu / numbers.best_cpu:.2f}) | "
            f"{numbers.rate:,.0f} req/s | {ours.rate / numbers.rate:.2f} |"
        )
    return [*text, ""]


def _bare(comparison: Comparison, lines: list[Line]) -> list[str]:
    if not any(line["side"] == "bare" for line in lines):
        return []
    text = [
        "| Load | ours, writes/s | bare write + fdatasync, writes/s | Ratio | Target |",
        "|---|---|---|---|---|",
    ]
    for shape in _measured(comparison, lines):
        ours, _ = _sides(lines, shape.name, "request")
        bare = Numbers(
            [line for line in lines if line["shape"] == shape.name and line["side"] == "bare"],
            "request",
        )
        ratio = ours.rate / bare.rate
        text.append(
            f"| {shape.what} | {ours.rate:,.0f} | {bare.rate:,.0f} | {ratio:.2f} | "
            f"{_verdict(ratio, BARE_TARGET)} |"
        )
    return [*text, ""]


def _small(lines: list[Line]) -> list[str]:
    if not lines:
        return []
    text = [
        "## Memory and start",
        "",
        "| What | Side | Best | Median | Runs |",
        "|---|---|---|---|---|",
    ]
    for name, side in dict.fromkeys((line["small"], line["side"]) for line in lines):
        values = [line["value"] for line in lines if line["small"] == name and line["side"] == side]
        best, median = min(values), statistics.median(values)
        text.append(f"| {name} | {side} | {best:.3f} | {median:.3f} | {len(values)} |")
    return [*text, ""]


def _plot(comparison: Comparison, lines: list[Line], path: Path) -> None:
    """Our share of Kafka's CPU and our multiple of its rate, a pair of bars a load."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    shapes = [each for each in _measured(comparison, lines) if each.mode != "latency"]
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(11, 0.5 * len(shapes) + 1.8), sharey=True, layout="constrained"
    )
    names = [shape.name for shape in shapes]
    pairs = [_sides(lines, shape.name, shape.unit) for shape in shapes]
    cpu = [kafka.best_cpu / ours.cpu for ours, kafka in pairs]
    rate = [ours.rate / kafka.best_rate for ours, kafka in pairs]
    for axes, values, title in (
        (left, cpu, "times less CPU than Kafka's best run"),
        (right, rate, "times the rate of Kafka's best run"),
    ):
        bars = axes.barh(names, values, color="#3b6ea5", height=0.6)
        axes.bar_label(bars, fmt="%.2f", padding=4)
        axes.axvline(1, color="black", linewidth=1)
        axes.set_xlabel(title)
        axes.set_xlim(0, 1.15 * max([*values, 1]))
        axes.spines[["top", "right"]].set_visible(False)
    left.invert_yaxis()
    figure.suptitle(f"{comparison.name}: one node, replication factor 1; longer is better")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def machine() -> str:
    """What this runs on."""
    cpus = os.cpu_count()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    return f"{cpus} CPUs ({platform.machine()}), {memory:.0f} GiB, Linux {platform.release()}"


def _properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in properties.items()) or "defaults"
