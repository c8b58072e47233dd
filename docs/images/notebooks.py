"""Makes notebooks.png: runs the Python of docs/notebooks.md, and has Chromium show the results.

Run: python docs/images/notebooks.py
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import tempfile
from html import escape
from pathlib import Path
from typing import Any

PICTURE = Path(__file__).with_suffix(".png")
PAGE = Path(__file__).parents[1] / "notebooks.md"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
STYLE = """
body { margin: 0; display: flex; font: 13px/1.4 system-ui, "DejaVu Sans", sans-serif }
main { flex: 1; padding: 16px 20px }
main.dark { background: #111418; color: #dde }
pre { font: 12px/1.4 "DejaVu Sans Mono", monospace; padding: 6px 8px; background: #8882 }
table { font-size: 12px }
"""


def run_cells(page: str) -> list[tuple[str, str]]:
    """Each block of Python, and what a notebook shows of it: its last expression."""
    names: dict[str, Any] = {}
    cells = []
    for code in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        *statements, last = ast.parse(code).body
        assert isinstance(last, ast.Expr)
        exec(compile(ast.Module(statements, []), PAGE.name, "exec"), names)
        value = eval(compile(ast.Expression(last.value), PAGE.name, "eval"), names)
        cells.append((code, value._repr_html_()))
    names["store"].close()
    return cells


def html_of(cells: list[tuple[str, str]]) -> str:
    """The cells twice, on a light and on a dark page."""
    body = "".join(f"<pre>{escape(code.strip())}</pre>{shown}" for code, shown in cells)
    columns = "".join(f'<main class="{name}">{body}</main>' for name in ("light", "dark"))
    return f"<!doctype html><meta charset=utf-8><style>{STYLE}</style>{columns}"


def main() -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"The picture needs one of these on the path: {', '.join(BROWSERS)}")
    with tempfile.TemporaryDirectory(prefix="notebook-") as directory:
        os.chdir(directory)
        Path("page.html").write_text(html_of(run_cells(PAGE.read_text())))
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1360,860",
        ]
        subprocess.run([browser, *options, f"--screenshot={PICTURE}", "page.html"], check=True, timeout=120)


if __name__ == "__main__":
    main()
