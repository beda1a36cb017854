"""Real browser for tests: Debian's chromium, driven by Playwright. Nothing is downloaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import playwright
from playwright.sync_api import Browser, sync_playwright
from support.untested import not_tested


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start chromium. Without it, skip the test."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        not_tested("in a browser", "no `chromium` on the PATH")
    # tests run as root in containers, where chromium's sandbox does not start
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def node() -> str:
    """Return the Node.js of this machine, or the one that Playwright brings along."""
    return shutil.which("node") or str(Path(playwright.__file__).parent / "driver" / "node")


CONTRAST = """() => {
  const parse = text => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number)
  const over = (top, under) => { const a = top[3] ?? 1; return [0, 1, 2].map(i => top[i] * a + under[i] * (1 - a)) }
  const light = rgb => {
    const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const ground = element => {
    const found = []
    for (let e = element; e; e = e.parentElement) found.push(parse(getComputedStyle(e).backgroundColor))
    return found.reverse().reduce((under, top) => over(top.length > 3 ? top : [...top, 1], under), [255, 255, 255])
  }
  const bad = []
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement
    if (!walker.currentNode.data.trim() || element.closest('title, desc, style, .hidden, .skip')) continue
    const style = getComputedStyle(element), inSvg = element.namespaceURI.endsWith('svg')
    let under = ground(element)
    const box = inSvg && element.previousElementSibling
    if (box && box.tagName === 'rect' && /(^| )on-/.test(element.className.baseVal)) under = parse(getComputedStyle(box).fill).slice(0, 3)
    const ink = over(parse(inSvg ? style.fill : style.color), under)
    const [one, two] = [light(ink), light(under)].sort((a, b) => b - a)
    const ratio = (one + 0.05) / (two + 0.05)
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700)
    if (ratio < (large ? 3 : 4.5)) bad.push([walker.currentNode.data.trim().slice(0, 40), element.className.baseVal ?? element.className, Math.round(ratio * 100) / 100])
  }
  return bad
}"""
"""Script that returns the texts of a page without enough contrast (WCAG 1.4.3)."""


def open_page(browser: Browser, file: Any, **options: Any) -> tuple[Any, list[str]]:
    """Open a file in a window of its own; return the page, and a list that gets its requests, errors and dialogs."""
    page = browser.new_context(**options).new_page()
    noise: list[str] = []
    page.on("request", lambda request: noise.append(f"request {request.url}"))
    page.on("console", lambda message: noise.append(f"console {message.text}"))
    page.on("pageerror", lambda error: noise.append(f"error {error}"))
    page.on("dialog", lambda dialog: noise.append(f"dialog {dialog.message}"))
    page.goto(file.as_uri())
    noise.remove(f"request {file.as_uri()}")
    return page, noise
