"""Takes screenshots of the dashboard and of `requeue top`, with the data of `requeue demo`.

screenshots.py DIRECTORY          the images of the documentation
screenshots.py --all DIRECTORY    every page, in light and dark, wide and narrow
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from server import REQUEUE, Api, end_with_parent
from terminal import as_html, screen_of
from watch import CHROMIUM, FLAGS

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}

# Of each image of the documentation: its page, and whether it is dark.
IMAGES = {
    "dashboard-light": ("./", "light"),
    "dashboard-dark": ("./", "dark"),
    "kind": ("kind?kind=invoice.send&state=dead", "light"),
    "dead": ("dead", "light"),
}

MAX_BYTES = 150_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--all", action="store_true", help="every page, in light and dark, wide and narrow")
    parser.add_argument("--wait", type=int, default=150, help="how long the demo runs before, in seconds")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    command = [REQUEUE, "demo", "--listen", "127.0.0.1:0", "--no-open", "--seed", "7", "--speed", "3", "--json"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=end_with_parent)
    try:
        url = json.loads(demo.stdout.readline())["listening"]
        # The charts need some minutes of history, of which each step is a minute.
        time.sleep(options.wait)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            take_all(browser, url, options.directory) if options.all else take(browser, url, options.directory)
            browser.close()
    finally:
        demo.terminate()
        demo.wait(timeout=60)


def take(browser: Browser, url: str, directory: Path) -> None:
    for name, (path, scheme) in IMAGES.items():
        context = browser.new_context(base_url=url, viewport=WIDE, color_scheme=scheme)
        page = context.new_page()
        page.goto(path)
        page.get_by_text("Live", exact=True).wait_for()
        image = directory / f"{name}.png"
        page.screenshot(path=image)
        context.close()
        finish(image)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_content(as_html(screen_of([REQUEUE, "top", "--server", url], 8)))
    image = directory / "top.png"
    page.locator("pre").screenshot(path=image)
    page.close()
    finish(image)


def finish(image: Path) -> None:
    compress(image)
    size = image.stat().st_size
    print(f"{image}: {size:,} bytes")
    assert size < MAX_BYTES, f"{image} has more than {MAX_BYTES:,} bytes"


def take_all(browser: Browser, url: str, directory: Path) -> None:
    for scheme in ("light", "dark"):
        for size, viewport in {"wide": WIDE, "narrow": NARROW}.items():
            context = browser.new_context(base_url=url, viewport=viewport, color_scheme=scheme)
            page = context.new_page()
            for name, path in all_pages(Api(url)).items():
                page.goto(path)
                page.wait_for_timeout(300)
                page.screenshot(path=directory / f"{name}-{scheme}-{size}.png", full_page=True)
            context.close()


def all_pages(api: Api) -> dict[str, str]:
    """The pages of the demo: name, link."""
    pages = {"overview": "./", "overview-week": "./?due=week&sort=dead"}
    for name in ("dead", "workers", "schedules", "push", "events", "help", "put", "login"):
        pages[name] = name
    for kind, state in [
        ("order.remind", "waiting"),
        ("sms.send", "ready"),
        ("invoice.send", "dead"),
        ("invoice.send", "leased"),
        ("newsletter.send", "ready"),
        ("partner.notify", "all"),
    ]:
        pages[f"kind-{kind}-{state}"] = f"kind?kind={kind}&state={state}"
    for state in ("waiting", "leased", "dead"):
        for job in api.get("/v1/kinds/invoice.send/jobs", state=state, limit=1)["jobs"]:
            pages[f"job-{state}"] = f"job?kind=invoice.send&id={job['id']}"
    pages["job-missing"] = "job?kind=invoice.send&id=nobody"
    pages["search"] = "go?q=nobody"
    pages["settings"] = "settings?kind=sms.send"
    pages["delete-kind"] = "delete-kind?kind=sms.send"
    return pages


def compress(image: Path) -> None:
    """Reduces the colours, if pngquant is installed."""
    if shutil.which("pngquant"):
        command = ["pngquant", "--force", "--skip-if-larger", "--strip", "--speed", "1", "--output", image, image]
        # 98: the result would be larger.
        subprocess.run(command, check=False)


if __name__ == "__main__":
    main()
