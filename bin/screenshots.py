#!/usr/bin/env python
"""Pictures of every page, light, dark and 390 px wide, from a running service: to be looked at, not compared.

    .venv/bin/python bin/screenshots.py http://127.0.0.1:8787/signin/once/…/ [--out screenshots] [--only review]

The sign-in link is the one that `make run` prints (or `manage.py signin_link`).
"""

import argparse
import os
import shutil
import sys
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

LOOKS = {
    "light": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1440, "height": 900}, "color_scheme": "dark"},
    "narrow": {
        "viewport": {"width": 390, "height": 844},
        "color_scheme": "light",
        "has_touch": True,
        "is_mobile": True,
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("link", help="one-time sign-in link of a running service")
    parser.add_argument("--out", type=Path, default=Path("screenshots"))
    parser.add_argument("--only", default="", help="pages whose name holds this word")
    options = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        print("There is no Chromium on PATH. Install it, or set CHROMIUM to the path of one.", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        state = sign_in(browser, options.link)
        for look, settings in LOOKS.items():
            context = browser.new_context(storage_state=state, **settings)
            for name, path in places(context, options.link).items():
                if options.only in name:
                    shoot(context, urljoin(options.link, path), options.out / f"{name}-{look}.png", look)
            context.close()
        browser.close()
    return 0


def sign_in(browser: Browser, link: str) -> dict:
    context = browser.new_context()
    page = context.new_page()
    page.goto(link)
    page.locator("main button[type=submit], main form button").first.click()
    page.wait_for_url(lambda address: "/signin/" not in address)
    state = context.storage_state()
    context.close()
    return state


def places(context: BrowserContext, link: str) -> dict[str, str]:
    """Name and path of each page, the details among them found by following links."""
    page = context.new_page()
    page.goto(urljoin(link, "/?switch"))
    home = urlsplit(page.locator("main a[href^='/t/']").first.get_attribute("href") or "/").path
    found = {
        "home": "/?switch",
        "overview": home,
        "review": f"{home}review/",
        "review-done": f"{home}review/?done=1",
        "calls": f"{home}calls/",
        "calls-filtered": f"{home}calls/?error=yes&from=2020-01-01",
        "calls-none": f"{home}calls/?conversation=nobody",
        "turns": f"{home}turns/",
        "pending": f"{home}pending/",
        "run": f"{home}run/",
        "proposals": f"{home}proposals/",
        "proposals-tracked": f"{home}proposals/tracked/",
        "cases": f"{home}cases/",
        "replays": f"{home}replays/",
        "replay-new": f"{home}replays/new/",
        "replay-trends": f"{home}replays/trends/",
        "coach": f"{home}coach/",
        "guidelines": f"{home}guidelines/",
        "agreement": f"{home}agreement/",
        "reviewers": f"{home}reviewers/",
        "audit": f"{home}audit/",
        "schedules": f"{home}schedules/",
        "schedule-new": f"{home}schedules/new/",
        "imports": f"{home}imports/",
        "export": f"{home}export/",
        "tools": f"{home}tools/",
        "tool-new": f"{home}tools/new/",
        "booking": f"{home}booking/",
        "models": f"{home}models/",
        "model-new": f"{home}models/new/",
        "styles": f"{home}styles/",
        "style-new": f"{home}styles/new/",
        "exchange": f"{home}exchange/",
        "secrets": f"{home}secrets/",
        "members": f"{home}members/",
        "tokens": f"{home}tokens/",
        "account": "/account/",
        "not-found": f"{home}nothing/",
    }
    for name, start, selector in (
        ("call", f"{home}calls/", "[data-row]"),
        ("call-error", f"{home}calls/?error=yes", "[data-row]"),
        ("turn", f"{home}turns/", "[data-row]"),
        ("turn-run", f"{home}turns/?ours=on&channel=page", "[data-row]"),
        ("turn-waiting", f"{home}turns/?state=awaiting", "[data-row]"),
        ("proposal", f"{home}proposals/tracked/", "[data-row]"),
        ("case", f"{home}cases/", "[data-row]"),
        ("replay", f"{home}replays/", "[data-row]"),
        ("coach-run", f"{home}coach/", "[data-row]"),
        ("schedule", f"{home}schedules/", "main th a"),
        ("tool", f"{home}tools/", "main th a, main td a"),
        ("style", f"{home}styles/", "main td a"),
        ("import", f"{home}imports/", "main td a"),
    ):
        page.goto(urljoin(link, start))
        target = page.locator(selector)
        if target.count():
            found[name] = target.first.get_attribute("href") or "/"
    page.close()
    return found


def shoot(context: BrowserContext, address: str, file: Path, look: str) -> None:
    page: Page = context.new_page()
    page.goto(address, wait_until="networkidle")
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    if overflow > 0:
        print(f"{file.name}: {overflow} px wider than the window")
    page.screenshot(path=file, full_page=look == "narrow")
    page.close()
    print(file)


if __name__ == "__main__":
    sys.exit(main())
