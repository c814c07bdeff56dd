"""Charts as inline SVG, and pages of them: one HTML file that needs no other and no network."""

from __future__ import annotations

import base64
import html
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence

PALETTE = ("#3b78d8", "#2f9e5b", "#c2527f", "#d99a1c", "#1f9fbf", "#7c6bd6", "#a8703d", "#8a94a3", "#d8573b", "#5b8f2f")
GREY = "#8a94a3"
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "star")
DASHES = ("", "6 4", "2 3", "10 3 2 3")

_WIDTH, _HEIGHT = 400, 260
_TOP, _RIGHT, _BOTTOM = 12, 14, 42
_CHARACTER = 7  # at most, of a tick's label
_RADIUS = 4
_PATHS = {
    "circle": "M-{r} 0a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z",
    "square": "M-{r} -{r}h{d}v{d}h-{d}z",
    "triangle": "M0 -{r}L{r} {r}H-{r}z",
    "diamond": "M0 -{r}L{r} 0L0 {r}L-{r} 0z",
    "cross": "M-5 0H5M0 -5V5",
    "star": "M-5 0H5M0 -5V5M-3.5 -3.5L3.5 3.5M-3.5 3.5L3.5 -3.5",
}


def number(value: float | None, digits: int = 3) -> str:
    """"1,230" for 1234; "–" for None."""
    if value is None:
        return "–"
    rounded = float(f"{value:.{digits}g}")
    if rounded == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def short(value: float | None) -> str:
    """"308K" for 308,000."""
    if value is None:
        return "–"
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(value) >= 0.9995 * size:
            return number(value / size) + unit
    return number(value)


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def power(value: float) -> str:
    return number(value) if 1e-3 <= value < 1e5 else f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-")


@dataclass(frozen=True)
class Axis:
    """Limits and ticks follow from the data unless given; a linear axis begins at 0."""

    label: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    ticks: Sequence[tuple[float, str]] | None = None
    format: Callable[[float], str] | None = None

    def text(self, value: float) -> str:
        return (self.format or (lambda value: number(value, 4)))(value)


@dataclass
class Series:
    """Points that share a colour and an entry in the legend."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]  # None: a gap
    colour: str = PALETTE[0]
    line: bool = True
    dash: str = ""
    step: bool = False  # the line keeps a point's height up to the next point
    fill: bool = False  # down to `base`
    base: Sequence[float] | None = None  # of a stacked area; otherwise 0
    shape: str = ""
    whiskers: Sequence[tuple[float, float]] | None = None
    bars: Sequence[tuple[float, float]] | None = None  # from and to in x, in place of points
    tips: Sequence[str] | None = None  # texts at points; by default x and y
    silent: bool = False  # without texts at points


def stacked(names: Sequence[str], x: Sequence[float], ys: Sequence[Sequence[float | None]],
            colours: Sequence[str]) -> list[Series]:
    """Areas on top of each other."""
    base = [0.0] * len(x)
    series = []
    for name, y, colour in zip(names, ys, colours):
        top = [under + (value or 0) for under, value in zip(base, y)]
        tips = [f"{name}: {number(value)} at {number(at, 6)}" for at, value in zip(x, y)]
        series.append(Series(name, x, top, colour, fill=True, base=base, tips=tips))
        base = top
    return series


class _Scale:
    """Values of an axis as pixels."""

    def __init__(self, axis: Axis, values: Sequence[float], begin: float, end: float):
        self.axis, self.begin, self.end = axis, begin, end
        values = [value for value in values if value > 0] if axis.log else list(values)
        least, most = min(values, default=1), max(values, default=1)
        if axis.log:
            room = (most / least) ** 0.04 if most > least else 2
            low, high = least / room, most * room
        else:
            low = min(0, least)
            step = _step((most - low) or 1)
            high = step * math.ceil((most - low) / step - 1e-9) + low if most > low else low + step
        self.low = axis.low if axis.low is not None else low
        self.high = axis.high if axis.high is not None else high

    def __call__(self, value: float) -> float:
        of = math.log10 if self.axis.log else float
        share = (of(value) - of(self.low)) / (of(self.high) - of(self.low))
        return self.begin + share * (self.end - self.begin)

    def holds(self, value: float | None) -> bool:
        """Whether there is a place for the value: a logarithm has none for 0."""
        return value is not None and math.isfinite(value) and (not self.axis.log or value > 0)

    def ticks(self) -> list[tuple[float, str]]:
        axis = self.axis
        if axis.ticks is not None:
            return list(axis.ticks)
        if not axis.log:
            step = _step(self.high - self.low)
            first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
            values = [i * step for i in range(first, last + 1)]
            return [(value, axis.text(round(value, 12))) for value in values]
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        decades = math.log10(self.high / self.low)
        factors = (1,) if decades > 2.3 else (1, 2, 5)
        every = max(1, round(decades / 6))
        values = [factor * 10.0**decade for decade in range(first, last + 1, every) for factor in factors]
        return [(value, (axis.format or power)(value)) for value in values
                if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]


def _step(span: float) -> float:
    """The distance of about five ticks: 1, 2 or 5 times a power of ten."""
    rough = span / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    return next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough * 0.999)


def _tag(name: str, content: str = "", **attributes: Any) -> str:
    text = "".join(f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
                   for key, value in attributes.items() if value is not None and value != "")
    return f"<{name}{text}>{content}</{name}>"


def _mark(shape: str, x: float, y: float, radius: float = _RADIUS, tip: str = "") -> str:
    return _tag("path", d=_PATHS[shape].format(r=radius, d=2 * radius), transform=f"translate({x:.1f} {y:.1f})",
                class_="mark open" if shape in ("cross", "star") else "mark", data_tip=tip)


def _points(points: Iterable[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


@dataclass
class Chart:
    title: str
    caption: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    none: str = ""  # words in place of a chart
    legend: bool = False
    spread: str = ""  # "series": side by side everywhere; "equal": points that would hide each other

    def figure(self) -> str:
        content = _tag("p", html.escape(self.none), class_="none") if self.none else self.svg()
        names = legend(self.series) if self.legend and not self.none else ""
        caption = _tag("figcaption", html.escape(self.caption)) if self.caption else ""
        return _tag("figure", _tag("h3", html.escape(self.title)) + names + content + caption)

    def svg(self) -> str:
        y_values = [value for one in self.series for value in one.y if value is not None]
        y_values += [end for one in self.series for pair in one.whiskers or () for end in pair]
        y = _Scale(self.y, y_values, _HEIGHT - _BOTTOM, _TOP)
        y_ticks = y.ticks()
        left = 26 + _CHARACTER * max((len(text) for _, text in y_ticks), default=0)
        x_values = [value for one in self.series for value in one.x]
        x_values += [end for one in self.series for pair in one.bars or () for end in pair]
        x = _Scale(self.x, x_values, left, _WIDTH - _RIGHT)
        parts = [self._grid(x, y, y_ticks)]
        places = self._places(x, y)
        parts += [self._drawn(one, of, x, y) for one, of in zip(self.series, places)]
        return _tag("svg", "".join(parts), class_="chart", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img",
                    aria_label=". ".join(filter(None, (self.title, self.caption))))

    def _grid(self, x: _Scale, y: _Scale, y_ticks: Sequence[tuple[float, str]]) -> str:
        parts = []
        for value, text in y_ticks:
            at = y(value)
            parts.append(_tag("path", d=f"M{x.begin:.1f} {at:.1f}H{x.end:.1f}", class_="grid"))
            parts.append(_tag("text", html.escape(text), x=f"{x.begin - 5:.1f}", y=f"{at + 4:.1f}", text_anchor="end"))
        free = 0.0
        for value, text in x.ticks():
            at, half = x(value), _CHARACTER * len(text) / 2
            parts.append(_tag("path", d=f"M{at:.1f} {y.begin:.1f}V{y.end:.1f}", class_="grid"))
            if at - half >= free:
                parts.append(_tag("text", html.escape(text), x=f"{min(at, _WIDTH - half):.1f}",
                                  y=_HEIGHT - _BOTTOM + 16, text_anchor="middle"))
                free = at + half + 6
        parts.append(_tag("text", html.escape(self.x.label), x=f"{(x.begin + x.end) / 2:.1f}", y=_HEIGHT - 7,
                          text_anchor="middle"))
        parts.append(_tag("text", html.escape(self.y.label), text_anchor="middle",
                          transform=f"translate(13 {(y.begin + y.end) / 2:.1f}) rotate(-90)"))
        return "".join(parts)

    def _places(self, x: _Scale, y: _Scale) -> list[list[tuple[float, float] | None]]:
        """Of each series, its points in pixels."""
        places = [[(x(at), y(value)) if x.holds(at) and y.holds(value) else None for at, value in zip(one.x, one.y)]
                  for one in self.series]
        groups: list[list[tuple[int, int]]] = []
        marked = [i for i, one in enumerate(self.series) if one.shape]
        if self.spread == "series":
            columns = sorted({place[0] for i in marked for place in places[i] if place})
            gaps = [after - before for before, after in zip(columns, columns[1:])]
            room = min(0.6 * min(gaps, default=math.inf), 0.2 * (x.end - x.begin))
            step = min(5, room / max(1, len(marked) - 1))
            for nth, i in enumerate(marked):
                offset = (nth - (len(marked) - 1) / 2) * step
                places[i] = [place and (place[0] + offset, place[1]) for place in places[i]]
        elif self.spread == "equal":
            by_place: dict[tuple[int, int], list[tuple[int, int]]] = {}
            for i in marked:
                for k, place in enumerate(places[i]):
                    if place:
                        by_place.setdefault((round(place[0] / 3), round(place[1] / 3)), []).append((i, k))
            groups = list(by_place.values())
        for group in groups:
            step = min(5, 0.1 * (x.end - x.begin) / max(1, len(group) - 1))
            for nth, (i, k) in enumerate(group):
                at, value = places[i][k] or (0, 0)
                places[i][k] = at + (nth - (len(group) - 1) / 2) * step, value
        return places

    def _drawn(self, one: Series, places: list[tuple[float, float] | None], x: _Scale, y: _Scale) -> str:
        def tip_of(i: int) -> str:
            if one.silent:
                return ""
            if one.tips is not None:
                return one.tips[i]
            return f"{one.name}: {self.y.text(one.y[i])} at {self.x.text(one.x[i])}"

        parts = []
        if one.bars is not None:
            for i, ((begin, end), value) in enumerate(zip(one.bars, one.y)):
                if not y.holds(value):
                    continue
                left, right, top = x(begin), x(end), y(value)
                gap = min(1.0, 0.05 * (right - left))
                parts.append(_tag("rect", x=f"{left + gap:.1f}", y=f"{top:.1f}", width=f"{right - left - 2 * gap:.1f}",
                                  height=f"{max(0.0, y.begin - top):.1f}", class_="bar", data_tip=tip_of(i)))
        else:
            runs = _runs(places)
            if one.fill:
                for run in runs:
                    floor = [(places[i][0], y(one.base[i]) if one.base is not None else y.begin) for i in run]
                    edge = _points([places[i] for i in run] + floor[::-1])
                    parts.append(_tag("path", d=f"M{edge}z", class_="area"))
            for i, pair in enumerate(one.whiskers or ()):
                if places[i] and all(map(y.holds, pair)):
                    low, high = map(y, pair)
                    parts.append(_tag("path", d=f"M{places[i][0]:.1f} {low:.1f}V{high:.1f}", class_="whisker"))
            if one.line:
                for run in runs:
                    points = [places[i] for i in run]
                    if one.step:
                        corners = [(after[0], before[1]) for before, after in zip(points, points[1:])]
                        points = [p for pair in zip(points, corners + points[-1:]) for p in pair]
                    parts.append(_tag("path", d=f"M{_points(points)}", class_="line", stroke_dasharray=one.dash))
            for i, place in enumerate(places):
                if not place:
                    continue
                if one.shape:
                    parts.append(_mark(one.shape, *place, tip=tip_of(i)))
                elif not one.silent:
                    parts.append(_tag("circle", cx=f"{place[0]:.1f}", cy=f"{place[1]:.1f}", r=3, class_="hit",
                                      data_tip=tip_of(i)))
        return _tag("g", "".join(parts), color=one.colour, data_series=one.name,
                    class_="stacked" if one.base is not None else "")


def _runs(places: Sequence[tuple[float, float] | None]) -> list[list[int]]:
    """Indices of points that follow each other without a gap."""
    runs: list[list[int]] = [[]]
    for i, place in enumerate(places):
        if place:
            runs[-1].append(i)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def legend(series: Sequence[Series]) -> str:
    """Names with a sample of each series; a name hides and shows its own."""
    entries = []
    for one in {one.name: one for one in series}.values():
        if one.bars is not None or one.base is not None:
            sample = _tag("rect", x=7, y=1, width=14, height=12, class_="bar")
        else:
            sample = _tag("path", d="M0 7H28", class_="line", stroke_dasharray=one.dash) if one.line else ""
            sample += _mark(one.shape, 14, 7) if one.shape else ""
        drawn = _tag("svg", sample, class_="chart", viewBox="0 0 28 14", color=one.colour, aria_hidden="true")
        entries.append(_tag("button", drawn + html.escape(one.name), type="button", aria_pressed="true"))
    return _tag("div", "".join(entries), class_="legend")


def bar_list(title: str, caption: str, bars: Sequence[tuple[str, float, str]], unit: str, none: str = "") -> str:
    """A figure of horizontal bars (name, value, colour), each below its name."""
    most = max((value for _, value, _ in bars), default=0) or 1
    height = _HEIGHT / max(1, len(bars))
    parts = []
    for i, (name, value, colour) in enumerate(bars):
        top = i * height
        bar = _tag("rect", y=f"{top + 18:.1f}", width=f"{max(1.0, _WIDTH * value / most):.1f}",
                   height=f"{height - 22:.1f}", rx=2, class_="bar")
        text = _tag("text", html.escape(f"{name}: {number(value)} {unit}"), y=f"{top + 13:.1f}")
        parts.append(_tag("g", text + bar, color=colour))
    svg = _tag("svg", "".join(parts), class_="chart", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=title)
    content = _tag("p", html.escape(none), class_="none") if none else svg
    return _tag("figure", _tag("h3", html.escape(title)) + content + _tag("figcaption", html.escape(caption)))


def figures(charts: Iterable[Chart | str]) -> str:
    """Charts side by side where there is room."""
    return _tag("div", "".join(c if isinstance(c, str) else c.figure() for c in charts), class_="figures")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[str] = ()) -> str:
    """Columns of numbers, but for the first and those that `words` names."""
    def row(tag: str, cells: Sequence[str]) -> str:
        return _tag("tr", "".join(_tag(tag, html.escape(cell), class_="words" if name in words else "")
                                  for name, cell in zip(header, cells)))

    return _tag("div", _tag("table", row("th", header) + "".join(row("td", cells) for cells in rows)), class_="table")


def paragraph(text: str, class_: str = "") -> str:
    return _tag("p", html.escape(text), class_=class_) if text else ""


def page(title: str, parts: Iterable[str], footer: str, data: Any, name: str) -> str:
    """A page that may load nothing. `data` can be saved from it as a file of this name."""
    folder = Path(__file__).parent
    text = base64.b64encode(json.dumps(data, ensure_ascii=False).encode()).decode()
    save = _tag("a", "Save the figures as JSON", href=f"data:application/json;base64,{text}", download=name)
    return "\n".join([
        '<!DOCTYPE html>', '<html lang="en">', '<head>', '<meta charset="utf-8">',
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; style-src \'unsafe-inline\'; '
        'script-src \'unsafe-inline\'">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        _tag("title", html.escape(title)), _tag("style", (folder / "page.css").read_text()), "</head>",
        "<body>", "<main>", _tag("h1", html.escape(title)), *filter(None, parts),
        _tag("footer", paragraph(footer) + _tag("p", save)), "</main>",
        '<div id="tip" role="status" hidden></div>', _tag("script", (folder / "page.js").read_text()), "</body>",
        "</html>", ""])
