"""Parts of an HTML page of scores: escaped text, tables and bar charts, without scripts and without other files.

Every string is text and is escaped, unless `tag` made it. A chart has no text: the table around it has the numbers.
"""

import html
from collections.abc import Iterable, Mapping, Sequence

NONE = "–"  # a cell without a value
SMALL = 25.0  # the axis ends here, and not at 100, if no value of a task is above
#: colors of text and of the systems' bars. WCAG 2.1: text has a contrast of 4.5 to the ground, bars and whiskers of 3
LIGHT = {"ground": "#ffffff", "text": "#111111", "quiet": "#595959", "line": "#d9d9d9", "note": "#fff4d6"}
DARK = {"ground": "#15181c", "text": "#ffffff", "quiet": "#b3b8bf", "line": "#3d434b", "note": "#3a3115"}
BARS = ("#0072b2", "#d55e00", "#00835f", "#b0609a", "#767676", "#8a6d00")
BAR, GAP = 11, 4  # height of a bar and space above and below it, in CSS pixels

STYLE = """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem 1.25rem 3rem; background: var(--ground); color: var(--text);
  font: 1rem/1.45 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.35rem; margin: 2.5rem 0 .5rem; padding-top: .75rem; border-top: 2px solid var(--text); }
h3 { font-size: 1.1rem; margin: 1.75rem 0 .25rem; }
p { margin: .4rem 0; max-width: 48rem; }
a { color: inherit; }
.note { background: var(--note); border-left: 4px solid currentColor; padding: .6rem .9rem; }
.quiet, .total > .quiet, caption, .key { font-weight: 400; color: var(--quiet); font-size: .875rem; }
.key span { white-space: nowrap; margin-right: 1.1em; }
.key svg { vertical-align: -2px; margin-right: .4em; }
nav ul { list-style: none; padding: 0; margin: .5rem 0; display: flex; flex-wrap: wrap; gap: .1rem 1rem; }
nav a { display: inline-block; padding: .2rem 0; }
.scroll { overflow-x: auto; padding: 0 2px; }
.scroll + .scroll { margin-top: 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: .25rem 0; }
th, td { padding: .2rem .8rem .2rem 0; text-align: left; vertical-align: middle; }
thead th { font-size: .875rem; font-weight: 600; vertical-align: bottom; border-bottom: 1px solid var(--text); }
tbody tr + tr > *, tbody + tbody > tr:first-child > * { border-top: 1px solid var(--line); }
tbody th { font-weight: 600; }
.total > * { font-weight: 600; }
tbody .total > * { border-top: 1px solid var(--text); }
.number { text-align: right; }
td.number, .score, .interval, .source { white-space: nowrap; }
.swatch { margin-right: .3em; }
.metric { min-width: 11rem; }
.languages { min-width: 7.5rem; }
.system { min-width: 6em; }
.interval { color: var(--quiet); font-size: .875rem; font-weight: 400; }
.chart { width: 100%; min-width: 8.5rem; padding-right: 1.5rem; padding-left: .6rem; }
.many .chart { min-width: 12rem; }
.axis { display: flex; justify-content: space-between; font-weight: 400; color: var(--quiet); }
.axis span { width: 0; display: flex; justify-content: center; }
td > svg { display: block; overflow: visible; box-shadow: 1px 0 var(--line);
  background: linear-gradient(to right, var(--line) 1px, transparent 1px) 0 0 / 25% 100%; }
.whisker { stroke: var(--text); stroke-width: 1.5; }
.baseline { stroke: var(--text); stroke-width: 2; stroke-dasharray: 3 2; }
.paper { fill: var(--text); stroke: var(--ground); }
.tasks { columns: 31rem; column-gap: 2.5rem; }
main.many .tasks { columns: auto; }
.tasks > section { break-inside: avoid; overflow: hidden; }
.tasks > .wide { column-span: all; }
pre { white-space: pre-wrap; font-size: .875rem; margin: .5rem 0; }
.settings td, .settings th { vertical-align: top; }
@media (max-width: 40rem) {
  body { padding: .5rem 1rem 2rem; }
  table { font-size: .875rem; }
  th, td { padding-right: .5rem; }
  .chart, .many .chart { min-width: 5rem; padding-right: 1rem; }
  .system { min-width: 4.5em; }
  .metric { min-width: 14rem; }
  thead th, .interval { font-size: .8rem; }
  .score .interval { display: block; }
}
@media print { nav { display: none; } }
"""


class Html(str):
    """Markup, which is not escaped."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: str | float | None) -> Html:
    """An element; a child that is not `Html` is escaped. `class_` is the attribute class; None leaves one out."""
    given = {key.strip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    written = "".join(f' {key}="{html.escape(str(value))}"' for key, value in given.items())
    return Html(f"<{name}{written}>{joined(children)}</{name}>")


def joined(children: Iterable[str]) -> Html:
    """Children in a row; those that are not `Html` are escaped."""
    return Html("".join(child if isinstance(child, Html) else html.escape(child) for child in children))


def document(title: str, body: Iterable[Html]) -> str:
    """An HTML file that loads nothing; its policy forbids scripts, too."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"{tag('title', title)}\n<style>{colors()}{STYLE}</style>\n</head>\n<body>\n{joined(body)}\n</body>\n</html>\n"
    )


def colors() -> str:
    """The colors as CSS."""
    light, dark = ("".join(f"--{name}: {color}; " for name, color in theme.items()) for theme in (LIGHT, DARK))
    bars = "".join(f".s{number} {{ fill: {color}; }}\n" for number, color in enumerate(BARS))
    return f"\n:root {{ {light}}}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}\n{bars}"


def table(caption: str, head: Html, body: Iterable[Html], label: str = "") -> Html:
    """A table that scrolls sideways, also with the keyboard, if it is wider than the screen; `label` is its subject."""
    made = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    name = f"{label}: {caption}" if label else caption
    return tag("div", made, class_="scroll", role="region", tabindex=0, aria_label=name)


def column(name: str, **attributes: str | None) -> Html:
    """The heading of a column."""
    return tag("th", name, scope="col", **attributes)


def system_columns(present: Iterable[str], systems: list[str], class_: str) -> list[Html]:
    """The headings of the systems' columns, with their colors if the page has several systems."""
    heads = []
    for system in present:
        sample = tag("rect", class_=color_of(system, systems), y=1, width=10, height=10)
        swatch = [tag("svg", sample, class_="swatch", width=10, height=11, aria_hidden="true")]
        heads.append(tag("th", *swatch * (len(systems) > 1), system, scope="col", class_=f"{class_} system"))
    return heads


def color_of(system: str, systems: list[str]) -> str:
    """The class of a system's bars."""
    return f"s{systems.index(system) % len(BARS)}"


def axis(end: float) -> Html:
    """The heading of a column of bars: its scale."""
    shown = tag("span", *(tag("span", f"{end * part:g}") for part in (0, 0.5, 1)), class_="axis")
    return tag("th", shown, scope="col", class_="chart", aria_label=f"chart from 0 to {end:g}")


def lines(texts: Iterable[str]) -> list[Html]:
    """A line for each text."""
    return [tag("div", text) for text in texts]


def for_each(texts: Mapping[str, str]) -> list[Html]:
    """Returns one line if all systems have the same text, else a line for each system."""
    if len(set(texts.values())) == 1:
        return lines(set(texts.values()))
    return lines(f"{system}: {text}" for system, text in texts.items())


def number(value: float | None, sign: str = "") -> str:
    """A number with one digit after the point; with `sign` +, with its sign."""
    return NONE if value is None else f"{round(value, 1) + 0.0:{sign}.1f}".replace("-", "−")  # + 0.0: no -0.0


def axis_end(values: Iterable[float]) -> float:
    """The end of the axis for these values: 100, or less if they are small, as BLEU is."""
    return SMALL if max(values, default=100.0) <= SMALL else 100.0


def chart(
    values: Mapping[str, float | None],
    systems: list[str],
    end: float = 100.0,
    intervals: Mapping[str, Sequence[float] | None] | None = None,
    baseline: float | None = None,
    papers: Iterable[float] = (),
) -> Html:
    """A cell with a horizontal bar for each system, from 0 to `end`. It is hidden from screen readers.

    Args:
        values: {system: value}; None leaves the place of the bar empty.
        systems: all systems of the page; their order gives the colors.
        intervals: {system: bounds}, drawn as whiskers.
        baseline: where a dashed line is drawn.
        papers: where diamonds are drawn.
    """
    height = GAP + (BAR + GAP) * len(values)

    def place(value: float) -> str:
        return f"{100 * min(max(value / end, 0.0), 1.0):.2f}%"

    def line(kind: str, x1: str, x2: str, y1: float, y2: float) -> Html:
        return tag("line", class_=kind, x1=x1, x2=x2, y1=y1, y2=y2)

    drawn = []
    for position, (system, value) in enumerate(values.items()):
        top, interval = GAP + (BAR + GAP) * position, (intervals or {}).get(system)
        middle = top + BAR / 2
        if value is not None:
            drawn.append(tag("rect", class_=color_of(system, systems), y=top, width=place(value), height=BAR))
        if interval is not None:
            low, high = map(place, interval)
            drawn.append(line("whisker", low, high, middle, middle))
            drawn += [line("whisker", x, x, middle - 3, middle + 3) for x in (low, high)]
    if baseline is not None:
        drawn.append(line("baseline", place(baseline), place(baseline), 0, height))
    for value in papers:
        diamond = tag("path", d="m0-6 6 6-6 6-6-6z", class_="paper")
        drawn.append(tag("svg", diamond, x=place(value), y=height / 2, overflow="visible"))
    return tag("td", tag("svg", *drawn, width="100%", height=height, aria_hidden="true"), class_="chart")


DASHES = tag("line", class_="baseline", x1=10, x2=10, y1=0, y2=14)
MARKS = {
    "paper": (tag("path", d="m10 1 6 6-6 6-6-6z", class_="paper"), "published average"),
    "interval": (tag("path", d="m1 7h18m-18-3v6m18-6v6", class_="whisker"), "95 % interval"),
    "majority": (DASHES, "majority: always the most frequent label"),
    "chance": (DASHES, "chance: nDCG of equal scores"),
}


def key(*marks: str) -> Html:
    """The meaning of marks of the charts, names of `MARKS`."""
    samples = [
        tag("span", tag("svg", drawing, width=20, height=14, aria_hidden="true"), text)
        for drawing, text in map(MARKS.__getitem__, marks)
    ]
    return tag("p", *samples, class_="key")
