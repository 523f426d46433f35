// Choosing rows of a list for a bulk action: x the current row, J and K go on choosing, a click with Shift the range, the
// box in the head the page. The boxes belong to the form [data-select]; all that match is a box of the form itself.
(() => {
  let last = null;
  const form = () => document.querySelector("form[data-select]");
  const boxes = () => [...document.querySelectorAll("[data-select-row]")];
  const boxOf = (element) => element?.closest("tr")?.querySelector("[data-select-row]");

  const show = () => {
    const bar = form();
    if (!bar) return;
    const chosen = boxes().filter((box) => box.checked).length;
    const everything = bar.querySelector("[data-select-all]")?.checked;
    const count = bar.querySelector("[data-select-count]");
    count.textContent = everything ? count.dataset.all : chosen ? count.dataset.some.replace("{n}", chosen) : count.dataset.none;
    for (const button of bar.querySelectorAll("button")) button.disabled = !chosen && !everything;
    for (const box of boxes()) box.closest("tr").classList.toggle("chosen", box.checked || Boolean(everything));
    const page = document.querySelector("[data-select-page]");
    if (!page) return;
    page.hidden = false;
    page.checked = chosen > 0 && chosen === boxes().length;
    page.indeterminate = chosen > 0 && !page.checked;
  };

  const range = (to) => {
    const all = boxes();
    const [begin, end] = [all.indexOf(last), all.indexOf(to)].sort((a, b) => a - b);
    if (begin >= 0) for (const box of all.slice(begin, end + 1)) box.checked = to.checked;
  };

  document.addEventListener("click", (event) => {
    const box = event.target.closest?.("[data-select-row]");
    if (box) {
      if (event.shiftKey && last) range(box);
      last = box;
    } else if (event.target.matches?.("[data-select-page]")) {
      for (const one of boxes()) one.checked = event.target.checked;
    }
    if (box || event.target.matches?.("[data-select-page], [data-select-all]")) show();
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "x" || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (event.target.closest("input:not([type=checkbox]), select, textarea, dialog[open]")) return;
    const box = boxOf(document.activeElement);
    if (!box) return;
    box.checked = !box.checked;
    last = box;
    event.preventDefault();
    show();
  });

  document.addEventListener("row:moved", (event) => {
    if (!event.detail.extends) return;
    const [from, to] = [boxOf(event.detail.from), boxOf(event.detail.to)];
    if (!to) return;
    if (from) from.checked = true;
    to.checked = true;
    last = to;
    show();
  });

  // A browser that comes back to the page ticks the boxes again, before or after this script runs.
  for (const name of ["DOMContentLoaded", "htmx:afterSwap", "htmx:historyRestore"]) document.addEventListener(name, show);
  window.addEventListener("pageshow", show);
})();
