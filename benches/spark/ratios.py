"""From the runs to a line on the terminal, `report.md` and its plot."""

import os
import statistics
import time
from pathlib import Path
from typing import Any

from queries import CONNECTORS, DEFAULT, ENGINES, QUERIES, TOPICS, TUNED, Engine, Query
from records import Data
from report import machine

Line = dict[str, Any]

COLOURS = {
    "default": "#b8b8b8",
    "tuned": "#7a7a7a",
    "python": "#3b6ea5",
    "jvm": "#c2571a",
    "floor": "#2f7d4f",
    "python-floor": "#7fb069",
}


class Cell:
    """The runs of one query on one topic by one engine."""

    def __init__(self, lines: list[Line], query: Query, data: Data, engine: Engine) -> None:
        wanted = (query.name, data.name, engine.name)
        self._lines = [
            line
            for line in lines
            if (line.get("query"), line.get("data"), line.get("engine")) == wanted
        ]

    def __bool__(self) -> bool:
        return bool(self._lines)

    def us(self, part: str = "cpu_s") -> float:
        """Median CPU microseconds a record."""
        each: list[float] = [line[part] / line["records"] * 1e6 for line in self._lines]
        return statistics.median(each)

    def spread(self) -> tuple[float, float]:
        """Least and most."""
        values = [line["cpu_s"] / line["records"] * 1e6 for line in self._lines]
        return min(values), max(values)


def verdict(ratio: float, target: float | None) -> str:
    """The ratio, and beside it what it was to be."""
    if target is None:
        return f"{ratio:.2f}"
    return f"{ratio:.2f} (target {target:g} {'reached' if ratio >= target else 'MISSED'})"


def line(query: Query, data: Data, lines: list[Line]) -> str:
    """A query on a topic, for the terminal."""
    cells = {engine: Cell(lines, query, data, engine) for engine in ENGINES}
    text = [f"  {query.name:<8}{data.what:<20}"]
    for engine, cell in cells.items():
        if not cell:
            continue
        told = f"{engine.name} {cell.us():.3f} us"
        if engine not in CONNECTORS:
            told += "".join(
                f", {peer.name}/{engine.name} "
                f"{verdict(cells[peer].us() / cell.us(), query.target(data, engine, peer))}"
                for peer in (TUNED, DEFAULT)
                if cells[peer]
            )
        text.append(told)
    return " | ".join(text)


def write(out: Path, lines: list[Line], pairs: int, started: float) -> Path:
    """Writes `report.md` and the plot into `out`; returns the report's path."""
    text = [
        "# Spark on kafkalite beside Spark's own connector on Apache Kafka 4.3.1",
        "",
        "CPU microseconds a record: driver JVM, what it started (Python workers, `kafkalite arrow",
        "serve`) and the broker added up; medians. A ratio is the connector's over the engine's.",
        "",
        f"- {time.strftime('%Y-%m-%d %H:%M', time.gmtime(started))} UTC, {machine()}",
        f"- load average now: {', '.join(f'{each:.1f}' for each in os.getloadavg())}",
        f"- `local[2]`, driver of 2 GiB, 2 partitions, {pairs} rounds after two warm ones; "
        + ", ".join(
            f"{line['topic']} {line['records']:,} records" for line in lines if "topic" in line
        ),
    ]
    for engine in ENGINES:
        told = {**engine.options, **{f"write: {k}": v for k, v in engine.write_options.items()}}
        options = ", ".join(f"`{name}={value}`" for name, value in told.items())
        share = "" if engine.share == 1 else f"; reads the last {engine.share:.0%} of each topic"
        text.append(f"- **{engine.name}**: {engine.what}{': ' if options else ''}{options}{share}")
    text += [
        f"- **failed**: {line['failed']} of {line['data']} by {line['engine']}"
        for line in lines
        if "failed" in line
    ]
    text.append("")
    for query in QUERIES:
        text += _table(query, lines)
    if any("query" in line for line in lines):
        plot = out / "ratios.png"
        _plot(lines, plot)
        text += [f"![CPU per record]({plot.name})", ""]
    path = out / "report.md"
    path.write_text("\n".join(text))
    return path


def _table(query: Query, lines: list[Line]) -> list[str]:
    engines = [
        each for each in query.engines if any(Cell(lines, query, data, each) for data in TOPICS)
    ]
    ours = [each for each in engines if each not in CONNECTORS]
    peers = [each for each in engines if each in CONNECTORS]
    if not engines:
        return []
    ratios = [(engine, peer) for engine in ours for peer in peers[::-1]]
    heads = [
        "Records",
        *(f"{each.name}: us (least–most; driver + children + broker)" for each in engines),
        *(f"{engine.name}, of {peer.name}" for engine, peer in ratios),
    ]
    text = [
        f"## {query.name}: {query.what}",
        "",
        f"| {' | '.join(heads)} |",
        "|---" * len(heads) + "|",
    ]
    for data in query.topics:
        cells = {each: Cell(lines, query, data, each) for each in engines}
        if not any(cells.values()):
            continue
        row = [data.what]
        for cell in cells.values():
            if not cell:
                row.append("")
                continue
            low, high = cell.spread()
            parts = " + ".join(f"{cell.us(p):.2f}" for p in ("driver_s", "children_s", "broker_s"))
            row.append(f"**{cell.us():.3f}** ({low:.2f}–{high:.2f}; {parts})")
        for engine, peer in ratios:
            if not (cells[engine] and cells[peer]):
                row.append("")
                continue
            ratio = cells[peer].us() / cells[engine].us()
            told = verdict(ratio, query.target(data, engine, peer))
            row.append(told.replace("MISSED", "**missed**"))
        text.append(f"| {' | '.join(row)} |")
    return [*text, ""]


def _plot(lines: list[Line], path: Path) -> None:
    """A panel a topic, a group of bars a query, a bar an engine, the ratio beside ours."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import patches, pyplot

    topics = [each for each in TOPICS if any(line.get("data") == each.name for line in lines)]
    columns = min(2, len(topics))
    panels = [topics[at : at + columns] for at in range(0, len(topics), columns)]
    heights = [max(_height(data, lines) for data in row) for row in panels]
    figure, grid = pyplot.subplots(
        len(panels),
        columns,
        figsize=(6.5 * columns, 0.2 * sum(heights) + 0.7 * len(panels) + 0.8),
        layout="constrained",
        squeeze=False,
        gridspec_kw={"height_ratios": heights},
    )
    for axes in grid.flat[len(topics) :]:
        axes.set_visible(False)
    for axes, data in zip(grid.flat, topics, strict=False):
        _panel(axes, data, lines)
    handles = [patches.Rectangle((0, 0), 1, 1, color=COLOURS[each.name]) for each in ENGINES]
    figure.legend(handles, [each.what for each in ENGINES], loc="outside upper center", ncols=2)
    figure.supxlabel(
        "million records per CPU second of driver, workers, broker; x: times the tuned connector",
        fontsize=9,
    )
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _measured(data: Data, lines: list[Line]) -> list[tuple[Query, list[tuple[Engine, Cell]]]]:
    """The queries that were run on a topic, and who ran them."""
    found = []
    for query in QUERIES:
        cells = [(engine, Cell(lines, query, data, engine)) for engine in query.engines]
        if ran := [(engine, cell) for engine, cell in cells if cell]:
            found.append((query, ran))
    return found


def _height(data: Data, lines: list[Line]) -> float:
    return sum(len(cells) + 0.8 for _, cells in _measured(data, lines))


def _panel(axes: Any, data: Data, lines: list[Line]) -> None:
    at = most = 0.0
    ticks = []
    for query, cells in _measured(data, lines):
        begin = at
        peer = next((cell.us() for engine, cell in cells if engine is TUNED), None)
        for engine, cell in cells:
            rate = 1 / cell.us()
            most = max(most, rate)
            axes.barh([at], [rate], color=COLOURS[engine.name], height=0.9)
            ratio = ""
            if engine not in CONNECTORS and peer is not None:
                ratio = f"  ({peer / cell.us():.1f}x)"
            axes.text(rate, at, f" {rate:.2f}{ratio}", va="center", fontsize=7)
            at += 1
        ticks.append(((begin + at - 1) / 2, query.name))
        at += 0.8
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks])
    axes.set_xlim(0, most * 1.25)
    axes.invert_yaxis()
    axes.set_title(data.what, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
