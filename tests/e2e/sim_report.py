#!/usr/bin/env python3
# Owns the look at a report with a real browser: are the charts drawn, and does it stay off the
# network?
"""usage: tests/e2e/sim_report.py WEFT   exit code 77: there is no browser here"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

QUIET = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-default-apps", "--disable-extensions", "--no-first-run",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=4000"]
ELSEWHERE = "http://elsewhere.invalid/picture.png"
CARDS = ["Bounds", "Flow completion times", "Goodput over time", "Marks, trims and drops",
         "Longest queues over time", "Paths of one flow", "Use of links", "Faults"]


class Page(HTMLParser):
    """Counts what is drawn, by the section that it stands in."""

    def __init__(self):
        super().__init__()
        self.drawn = {}
        self.title = None
        self.in_title = False

    def handle_starttag(self, tag, attributes):
        if tag == "section":
            self.title = None
        self.in_title = tag == "h2"
        at = dict(attributes)
        # An "M" alone is no curve, a value that is no number draws nothing.
        curve = tag == "path" and at.get("d", "").count("L") > 0
        shape = tag in ("rect", "line", "circle", "td")
        bad = any("NaN" in str(value) or "undefined" in str(value) for value in at.values())
        if self.title and bad:
            self.drawn[self.title] = float("-inf")
        elif self.title and (curve or shape):
            self.drawn[self.title] = self.drawn.get(self.title, 0) + 1

    def handle_data(self, data):
        if self.in_title:
            self.title = data.strip()
            self.drawn.setdefault(self.title, 0)
            self.in_title = False


def requests(log):
    """Addresses that the page, and not the browser on its own account, asked the network for."""
    text = Path(log).read_text(encoding="utf-8", errors="replace")
    found = re.findall(r'"initiator":"([^"]*)".*?"url":"((?:https?|wss?|ftp):[^"]*)"', text)
    return sorted({url for initiator, url in found if initiator != "not an origin"})


def look_at(browser, page, folder, size):
    """The document after its scripts have run, what was asked of the network, what was said."""
    log = Path(folder, "net.json")
    result = subprocess.run(
        [browser, *QUIET, f"--user-data-dir={folder}/profile", f"--window-size={size}",
         f"--log-net-log={log}", "--dump-dom", page.as_uri()],
        check=False, capture_output=True, text=True, timeout=120)
    return result.stdout, requests(log), result.stderr[-500:]


def main():
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((name for name in names if shutil.which(name)), None)
    if browser is None:
        print("no browser: install chromium to look at reports")
        return 77
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        made = subprocess.run([sys.argv[1], "sim", "e4-link-failures", "--report", folder],
                              check=False, stdout=subprocess.DEVNULL, timeout=300)
        report = Path(folder, "report.html")
        if made.returncode != 0 or not report.exists():
            print(f"weft sim ends with {made.returncode} and makes no report to look at")
            return 1
        # A page that does ask must be found out, or the answer below is worth nothing.
        other = Path(folder, "other.html")
        other.write_text(f'<img src="{ELSEWHERE}">', encoding="utf-8")
        if ELSEWHERE not in look_at(browser, other, folder, "800,600")[1]:
            problems.append("the browser's log does not show what a page asks the network for")
        for size in ("1280,900", "390,844"):
            document, urls, said = look_at(browser, report, folder, size)
            page = Page()
            page.feed(document)
            if not page.drawn:
                problems.append(f"{size}: nothing was drawn: {said}")
                continue
            problems += [f"{size}: '{card}' shows nothing" for card in CARDS
                         if page.drawn.get(card, 0) < 1]
            problems += [f"{size}: asks the network for {url}" for url in urls]
            print(size, json.dumps({card: page.drawn.get(card, 0) for card in CARDS}))
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
