"""What is asked of a page in the browser: scripts that answer with what is wrong with it."""

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
