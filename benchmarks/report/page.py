"""A report as one HTML page that asks nothing of any network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from hierring.benchmarks.report.document import (
    Alert,
    Block,
    Paragraph,
    Picture,
    Section,
    Table,
    title,
)
from hierring.benchmarks.report.picture import CLASSES, MOST_NODES, cluster_picture
from hierring.benchmarks.report.places import ring_rates
from hierring.benchmarks.report.plots import curves, phase_bars
from hierring.benchmarks.report.style import CSS
from hierring.benchmarks.result import Result

__all__ = ["Part", "page"]

#: A table of more rows scrolls inside its box.
_TALL = 24
#: Words longer than this may break into lines.
_LONG = 36

Part = tuple[str, Result | None, Sequence[Section]]


_MADE_BY = "Made by hierring report from what hierring bench measured."


def page(heading: str, parts: Sequence[Part], made_by: str = _MADE_BY) -> str:
    """The whole page.

    Args:
        heading: of the page.
        parts: (name, run, sections); of a part without a run, the pictures are those in its
            sections.
        made_by: a sentence for its foot.
    """
    body = "".join(_part(index, part, len(parts) > 1) for index, part in enumerate(parts))
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{escape(heading)}</title><style>{CSS}</style></head>\n"
        f"<body><header><h1>{escape(heading)}</h1></header>\n"
        f"<nav aria-label=Sections><ul>{''.join(_links(parts))}</ul></nav>\n"
        f"<main>{body}</main>\n"
        f"<footer><p>{escape(made_by)} Rates are GB/s = 1e9 bytes/s.</p></footer></body></html>\n"
    )


def _links(parts: Sequence[Part]) -> Iterator[str]:
    for index, (name, _, sections) in enumerate(parts):
        if len(parts) > 1:
            yield f'<li><a href="#part{index}">{escape(name)}</a></li>'
        else:
            for section in sections:
                yield f'<li><a href="#{index}-{section.key}">{escape(section.heading)}</a></li>'


def _part(index: int, part: Part, named: bool) -> str:
    name, result, sections = part
    head = f'<h2 class="part" id="part{index}">{escape(name)}</h2>' if named else ""
    texts = []
    for section in sections:
        pictures = _pictures(section.key, result) if result is not None else ""
        blocks = [_block(block) for block in section.blocks]
        # Pictures follow the words that lead up to the first table.
        at = next((i for i, b in enumerate(section.blocks) if isinstance(b, Table)), len(blocks))
        blocks.insert(at, pictures)
        texts.append(
            f'<section id="{index}-{section.key}"><h2>{escape(section.heading)}</h2>'
            f"{''.join(blocks)}</section>\n"
        )
    return head + "".join(texts)


def _pictures(key: str, result: Result) -> str:
    if key == "cluster":
        return _cluster(result)
    plots = {"results": curves, "phases": phase_bars}.get(key)
    drawn = plots(result) if plots else []
    if not drawn:
        return ""
    figures = "".join(
        f"<figure><figcaption>{escape(caption)}</figcaption>{svg}</figure>"
        for caption, svg in drawn
    )
    return f'<div class="plots">{figures}</div>'


def _cluster(result: Result) -> str:
    rates, how = ring_rates(result)
    count = result.topology["num_nodes"]
    caption = (
        "Each box is a node, the boxes in it its NUMA nodes, the circles ranks; leaders have a "
        "thick blue rim."
    )
    if count > 1:
        caption += f" Arrows are the ring, their colour its bandwidth in GB/s ({how})."
    if count > MOST_NODES:
        caption += f" Drawn are {MOST_NODES} of {count} nodes."
    legend = ""
    if rates and count > 1:
        share = 100 // CLASSES
        words = [
            f'<span><i style="background:var(--q{i})"></i>{share * i} to {share * (i + 1)} %</span>'
            for i in reversed(range(CLASSES))
        ]
        legend = f'<div class="legend">of the fastest link: {"".join(words)}</div>'
    return (
        f"<figure><figcaption>{escape(caption)}</figcaption>{legend}"
        f'<div class="scroll picture" tabindex="0">{cluster_picture(result)}</div></figure>'
    )


def _block(block: Block) -> str:
    if isinstance(block, Paragraph):
        return f"<p>{escape(block.text)}</p>"
    if isinstance(block, Alert):
        return f'<p class="alert {block.level}">{escape(block.text)}</p>'
    if isinstance(block, Picture):
        return (
            f"<figure><figcaption>{escape(block.caption)}</figcaption>"
            f'<div class="scroll picture" tabindex="0">{block.svg}</div></figure>'
        )
    return _table(block)


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope="col"{" class=word" if index < table.left else ""}>{escape(text)}</th>'
        for index, text in enumerate(table.columns)
    )
    rows = "".join(f"<tr>{''.join(_cells(table, row))}</tr>" for row in range(len(table.rows)))
    # Beside the table, not in it: what scrolls away with the columns can't be read on a phone.
    caption = f"<figcaption>{escape(table.caption)}</figcaption>" if table.caption else ""
    tall = " tall" if len(table.rows) > _TALL else ""
    words = ' class="words"' if table.left == len(table.columns) == 2 else ""
    return (
        f'<figure>{caption}<div class="scroll{tall}" tabindex="0"><table{words}>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></figure>"
    )


def _cells(table: Table, row: int) -> Iterator[str]:
    for column, text in enumerate(table.rows[row]):
        words = ["word"] if column < table.left else []
        if column < table.left and len(text) > _LONG:
            words.append("text")
        heat = table.heat[row][column] if table.heat else None
        style = ""
        if heat is not None and heat >= 0.05:
            words.append("hot")
            style = f' style="--much:{min(heat, 1) * 70:.0f}%"'
        names = f' class="{" ".join(words)}"' if words else ""
        yield f"<td{names}{style}>{escape(text)}</td>"


def heading_of(results: Sequence[Result]) -> str:
    """What the page is about."""
    if len(results) == 1:
        return f"hierring bench: {title(results[0])}"
    return f"hierring bench: {len(results)} runs"
