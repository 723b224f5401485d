"""Colours and layout of the pages. Colours are CSS variables, so that one drawing serves light and dark."""

KINDS = {
    "computing": "computing",
    "trunk": "waiting for the trunk",
    "experts": "waiting for experts",
    "rows": "waiting for embedding rows",
}
"""What a thread does, by the kind of an interval; its colour is the class `k-KIND`."""

_SHEET = """
:root { color-scheme: light dark; --ink: #1d232b; --soft: #5d6875; --line: #d8dde3; --page: #f6f7f9;
  --card: #ffffff; --computing: #3b76c4; --trunk: #d9622b; --experts: #b03a86; --rows: #8a7d1e;
  --m0: #3b76c4; --m1: #d9622b; --m2: #2f9173; --m3: #b03a86; --m4: #8a7d1e; --m5: #6c5fc7; --m6: #78828e;
  --m7: #b9c0c8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaee; --soft: #a3adb8; --line: #39424d;
  --page: #14181d; --card: #1d2329; --computing: #5b95e0; --trunk: #ef8350; --experts: #d767ad;
  --rows: #bfae3f; --m0: #5b95e0; --m1: #ef8350; --m2: #4cb693; --m3: #d767ad; --m4: #bfae3f;
  --m5: #9489ea; --m6: #98a3af; --m7: #4b5561; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 20px 48px; }
h1 { font-size: 17px; font-weight: 600; margin: 0 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 15px; font-weight: 600; margin: 0 0 10px; }
.soft { color: var(--soft); } p { margin: 4px 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 16px 18px;
  margin-top: 16px; }
.verdict { font-size: 25px; line-height: 1.25; font-weight: 650; margin: 0 0 6px; }
.verdict.drive, .verdict.one { color: var(--trunk); } .verdict.memory { color: var(--computing); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 14px;
  margin-top: 16px; }
.facts b { display: block; font-size: 20px; font-weight: 600; font-variant-numeric: tabular-nums; }
.facts span { color: var(--soft); font-size: 13px; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.k-computing { fill: var(--computing); } .k-trunk { fill: var(--trunk);
  } .k-experts { fill: var(--experts); }
.k-rows { fill: var(--rows); } .grid { stroke: var(--line); } .band { fill: var(--line); opacity: .35; }
.flight { opacity: .75; } .mark { stroke: var(--ink); stroke-width: 2; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin-top: 8px; color: var(--soft);
  font-size: 13px; }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 6px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 500; } td, th { padding: 3px 12px 3px 0;
  vertical-align: top; }
.scroll { overflow-x: auto; } .scroll td, .scroll th { white-space: nowrap; }
"""

_CLASSES = [f".m{number} {{ fill: var(--m{number}); background: var(--m{number}); }}" for number in range(8)]
_CLASSES += [f".b-{kind} {{ background: var(--{kind}); }}" for kind in KINDS]

CSS = _SHEET + "\n".join(_CLASSES)
