"""What is asked of a page in the browser: scripts that answer with what is wrong with it."""

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

OVER = "document.documentElement.scrollWidth - innerWidth"

# Text whose contrast with the nearest painted background is below WCAG's 4.5, with both colours and the ratio.
FAINT = """
() => {
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = color;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const color = rgba(getComputedStyle(one).backgroundColor);
      if (color[3] === 255) return color;
    }
    return rgba(getComputedStyle(document.documentElement).backgroundColor);
  };
  const faint = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility({ visibilityProperty: true })) continue;
    if (element.closest("option, :disabled, [aria-disabled=true], .visually-hidden, script, title")) continue;
    const [text, back] = [rgba(getComputedStyle(element).color), ground(element)];
    const [a, b] = [light(text), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const words = walker.currentNode.data.trim().slice(0, 40);
    if (ratio < 4.5) faint.add(`${ratio.toFixed(2)} ${text} on ${back}: ${words}`);
  }
  return [...faint];
}
"""

# Each word of ours two fifths longer. What people and machines wrote stays: it is as long as it is in any language.
LONGER = """
() => {
  const ours = "bdi, code, pre, time, kbd, svg, script, style, textarea";
  const more = (word) => word + "wxyzaeiou".slice(0, Math.ceil(word.length * 0.4));
  const longer = (text) => text.replace(/[\\p{L}]{2,}/gu, more);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) texts.push(walker.currentNode);
  for (const text of texts) if (!text.parentElement.closest(ours)) text.data = longer(text.data);
  for (const fold of document.querySelectorAll("details:not(.confirm)")) fold.open = true;
}
"""

# Buttons and links like buttons whose words are cut off, and neighbours in a line that lie on one another.
BROKEN = """
() => {
  const found = [];
  const shown = (one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest(".visually-hidden");
  for (const one of document.querySelectorAll("button, .button, h1, h2, label")) {
    if (!shown(one) || !one.clientWidth) continue;
    if (one.scrollWidth > one.clientWidth + 1) found.push(`cut: ${one.textContent.trim().slice(0, 60)}`);
  }
  for (const line of document.querySelectorAll(".page-head, .actions, .buttons, .panel-head, .row, .list-head")) {
    const boxes = [...line.children].filter(shown).filter((one) => getComputedStyle(one).position !== "absolute");
    const areas = boxes.map((one) => one.getBoundingClientRect()).filter((area) => area.width && area.height);
    for (const [place, a] of areas.entries()) {
      for (const b of areas.slice(place + 1)) {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 2 && high > 2) found.push(`on one another: ${line.textContent.trim().slice(0, 60)}`);
      }
    }
  }
  return found;
}
"""

# Words of a right-to-left script that are not set apart from the words around them, and fields that hold such words but
# begin on the left.
ASTRAY = """
() => {
  const script = /[\\u0590-\\u08ff]/;
  const apart = "bdi, [dir=auto], option, title, textarea, script, pre, code, .visually-hidden";
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode;
    if (script.test(text.data) && !text.parentElement.closest(apart)) found.push(text.data.trim().slice(0, 80));
  }
  for (const field of document.querySelectorAll("input:not([type=hidden]), textarea")) {
    if (!script.test(field.value) || field.matches(".mono")) continue;
    const isApart = field.dir === "auto" || getComputedStyle(field).unicodeBidi === "plaintext";
    if (!isApart) found.push(field.outerHTML.slice(0, 80));
  }
  return found;
}
"""


# What axe finds that keeps people from something, and headings out of order. FAINT stands for its rule of contrast: it
# holds all text to the same ratio, and takes a twentieth of the time.
FOUND = """
async () => {
  const { violations } = await axe.run(document, {
    resultTypes: ["violations"],
    rules: { "color-contrast": { enabled: false } },
  });
  return violations
    .filter((one) => ["serious", "critical"].includes(one.impact) || one.id === "heading-order")
    .map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`);
}
"""


def faint(page: Page) -> list[str]:
    """Text that is too faint in one theme or the other."""
    found = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found += [f"{scheme}: {words}" for words in page.evaluate(FAINT)]
    return found


def amiss(page: Page, *, widths: tuple[int, ...] = (1280, 390, 360)) -> list[str]:
    """What is wrong with how a page looks, with all that folds open: text too faint in either theme, and how far it is
    wider than the window at each width. It is asked of the page as it is: loading it anew for each is what takes time.
    """
    page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
    found = faint(page)
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        if (over := page.evaluate(OVER)) > 0:
            found.append(f"{over} px wider than {width}")
    page.set_viewport_size({"width": 1280, "height": 900})
    return found


def serious(page: Page) -> list[str]:
    """What axe-core finds serious or critical, text that is too faint in either theme, and headings out of order."""
    page.evaluate(AXE_SCRIPT)
    return [*page.evaluate(FOUND), *faint(page)]
