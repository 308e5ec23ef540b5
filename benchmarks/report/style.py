"""The page's looks. Colours are variables, so that one picture reads well on light and on dark."""

from __future__ import annotations

__all__ = ["CSS", "SERIES", "VARIABLES"]

#: How many contenders have a colour of their own.
SERIES = 8

#: Alone they colour a picture that is a file of its own.
VARIABLES = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1b1f24; --soft: #57606a; --line: #d5dae0;
  --accent: #0b5cad; --bad: #b3261e; --bad-back: #fdeceb; --warn: #7a5200; --warn-back: #fff4dc;
  --heat: #e8590c; --numa: #eef2f7; --rank: #ffffff;
  --c0: #0b62c4; --c1: #c2410c; --c2: #0a7d55; --c3: #a3308f; --c4: #876300; --c5: #0e7490;
  --c6: #6d4bd1; --c7: #6b7280;
  --q0: #b3261e; --q1: #d9730d; --q2: #a08900; --q3: #2b8a3e; --q4: #0b62c4; --qn: #8b949e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f1216; --card: #171b21; --ink: #e8ebef; --soft: #a3adb8; --line: #333b45;
    --accent: #6cb0ff; --bad: #ff8a80; --bad-back: #3a1b1a; --warn: #ffcf70; --warn-back: #332a14;
    --heat: #d9540b; --numa: #202731; --rank: #171b21;
    --c0: #5aa9ff; --c1: #ff9a5c; --c2: #3fd39b; --c3: #ef8bdc; --c4: #e3c04f; --c5: #4fd1e0;
    --c6: #b49cff; --c7: #a9b1bb;
    --q0: #ff6b61; --q1: #ff9a3d; --q2: #e0c542; --q3: #56d071; --q4: #5aa9ff; --qn: #78828d;
  }
}
"""

CSS = (
    VARIABLES
    + """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; overflow-wrap: break-word;
}
header, main, nav, footer { max-width: 72rem; margin: 0 auto; padding: 0 1rem; }
header { padding-top: 1.5rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 0 0 .75rem; }
h3 { font-size: 1rem; margin: 0 0 .4rem; }
.part { font-size: 1.4rem; margin: 2rem 0 .5rem; }
p { margin: 0 0 .75rem; max-width: 50rem; }
header p, footer { color: var(--soft); }
footer { padding-bottom: 2rem; font-size: .875rem; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1rem; padding: 0;
  margin: .5rem 0; }
a { color: var(--accent); }
nav a { display: inline-block; padding: .3rem 0; }
section { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  padding: 1.1rem; margin: 0 0 1rem; min-width: 0; }
.alert { border-left: .3rem solid; border-radius: .3rem; padding: .5rem .8rem; margin: 0 0 .75rem;
  max-width: none; }
.bad { color: var(--bad); background: var(--bad-back); }
.warn { color: var(--warn); background: var(--warn-back); }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  gap: 1rem; margin: 0 0 1rem; }
figure { margin: 0; min-width: 0; }
figcaption { font-size: .875rem; color: var(--soft); margin: 0 0 .4rem; max-width: 50rem; }
.plots svg { width: 100%; height: auto; display: block; max-width: 40rem; }
.scroll { overflow-x: auto; margin: 0 0 1rem; }
.picture svg { display: block; margin: 0 auto; }
@media (min-width: 40rem) { .picture svg { height: auto; max-width: 100%; } }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; vertical-align: top; }
th.word, td.word { text-align: left; }
td.text { white-space: normal; min-width: 14rem; max-width: 40rem; overflow-wrap: anywhere; }
th { font-weight: 600; vertical-align: bottom; }
.tall { max-height: 32rem; overflow-y: auto; }
.tall thead th { position: sticky; top: 0; background: var(--card); }
td.hot { background: color-mix(in srgb, var(--heat) var(--much), transparent); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1rem; font-size: .875rem; margin: 0 0 .75rem;
  color: var(--soft); }
.legend i { display: inline-block; width: 1.6rem; height: .3rem; border-radius: .15rem;
  vertical-align: middle; margin-right: .4rem; }
svg text { fill: var(--ink); }
svg .soft { fill: var(--soft); }
@media (max-width: 40rem) {
  body { font-size: 15px; }
  section { padding: .8rem; border-radius: .4rem; }
  header, main, nav, footer { padding-left: .6rem; padding-right: .6rem; }
  td.text { min-width: 11rem; }
  .words th, .words td { white-space: normal; min-width: 0; overflow-wrap: anywhere; }
  .words td:first-child { min-width: 6rem; overflow-wrap: normal; }
}
@media print {
  :root {
    color-scheme: light;
    --page: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #bbb; --accent: #000;
    --bad: #8c1d18; --bad-back: #fff; --warn: #5c3d00; --warn-back: #fff; --numa: #f2f2f2;
    --rank: #fff; --heat: #e8590c;
    --c0: #0b62c4; --c1: #c2410c; --c2: #0a7d55; --c3: #a3308f; --c4: #876300; --c5: #0e7490;
    --c6: #6d4bd1; --c7: #6b7280;
    --q0: #b3261e; --q1: #d9730d; --q2: #a08900; --q3: #2b8a3e; --q4: #0b62c4; --qn: #8b949e;
  }
  @page { size: A4 landscape; margin: 12mm; }
  body { font-size: 10pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  nav { display: none; }
  section { border: 0; padding: 0; }
  header, main, footer { max-width: none; padding: 0; }
  .scroll, .tall { overflow: visible; max-height: none; }
  .tall thead th { position: static; }
  .picture svg { height: auto; max-width: 100%; }
  table { font-size: 7pt; }
  th, td { padding: 1pt 3pt; white-space: normal; }
  td.text { min-width: 0; }
  figure, tr, .alert { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  thead { display: table-header-group; }
}
"""
)
