// Search in arguments and result of the call on the screen: marks all places, goes from one to the next, and unfolds what
// a place is folded in. The marks are the browser's highlights; the page's text stays as it is.
(() => {
  const box = () => document.querySelector("[data-find]");
  const field = () => document.getElementById("find");
  const parts = () => document.querySelectorAll(".call [data-part-of-call]");
  const canMark = "highlights" in CSS;
  let places = [];
  let at = -1;

  const texts = function* (root) {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) if (!walker.currentNode.parentElement.closest(".node-tools, .more")) yield walker.currentNode;
  };

  const found = (words) => {
    const ranges = [];
    for (const part of parts()) {
      for (const text of texts(part)) {
        const hay = text.data.toLowerCase();
        for (let start = hay.indexOf(words); start >= 0 && ranges.length < 2_000; start = hay.indexOf(words, start + words.length)) {
          const range = document.createRange();
          if (start + words.length > text.length) break; // lower case can be longer than what it is of
          range.setStart(text, start);
          range.setEnd(text, start + words.length);
          ranges.push(range);
        }
      }
    }
    return ranges;
  };

  const mark = () => {
    if (canMark) {
      CSS.highlights.set("found", new Highlight(...places));
      CSS.highlights.set("found-here", new Highlight(...(places[at] ? [places[at]] : [])));
    }
    const count = box()?.querySelector("[data-find-count]");
    if (!count) return;
    const [n, all] = [at + 1, places.length];
    if (!field().value) count.textContent = "";
    else if (!all) count.textContent = count.dataset.none;
    else count.textContent = count.dataset.words.replace("%s", n).replace("%s", all);
  };

  const search = () => {
    const words = field().value.toLowerCase();
    places = words ? found(words) : [];
    at = -1;
    step(1);
  };

  const step = (by) => {
    if (places.length) {
      at = (at + by + places.length) % places.length;
      const around = places[at].startContainer.parentElement;
      for (let fold = around.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
      around.scrollIntoView({ block: "nearest" });
      if (!canMark) {
        getSelection().removeAllRanges();
        getSelection().addRange(places[at]);
      }
    }
    mark();
  };

  const close = () => {
    if (!box()) return;
    box().hidden = true;
    places = [];
    at = -1;
    mark();
    document.querySelector(".pane")?.focus({ preventScroll: true });
  };

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-find-open]")) {
      box().hidden = false;
      field().focus();
      field().select();
    }
    const by = event.target.closest("[data-find-step]");
    if (by) step(Number(by.dataset.findStep));
    if (event.target.closest("[data-find-close]")) close();
  });
  document.addEventListener("input", (event) => { if (event.target === field()) search(); });
  document.addEventListener("keydown", (event) => {
    if (!box() || box().hidden || event.isComposing) return;
    if (event.key === "F3" || (event.key === "Enter" && event.target === field())) {
      event.preventDefault();
      step(event.shiftKey ? -1 : 1);
      if (event.key === "Enter" && !event.shiftKey && places.length === 0) return;
    } else if (event.key === "Escape" && (event.target === field() || event.target.closest?.("[data-find]"))) {
      event.preventDefault();
      close();
    }
  }, true);
  for (const name of ["review:shown", "htmx:afterSwap"]) {
    document.addEventListener(name, () => { places = []; at = -1; if (canMark) CSS.highlights.clear(); });
  }
  document.addEventListener("evidence:loaded", () => { if (box() && !box().hidden && field().value) search(); });
})();
