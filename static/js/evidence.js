// Arguments and results to be read by hand and keyboard: arrows go from value to value and fold, Ctrl+C copies the value in
// focus and Ctrl+Shift+C its path (a JSON pointer), a toolbar says the same for the mouse. What was left out is loaded in
// its place. What is copied comes from the server: the page shows marks where text hides something.
(() => {
  const MANY_FOLDS = 1_000;
  const place = (element) => element?.closest?.("[data-at]");
  const root = (element) => element.closest("[data-branch]");
  const words = () => document.querySelector("[data-copy]")?.dataset ?? {};

  // --- copying ------------------------------------------------------------------------------------------------------
  const fetched = async (address) => {
    const answer = await fetch(address, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer.text();
  };

  const put = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(await text);
    const area = document.createElement("textarea"); // a page without https has no clipboard of its own
    area.value = await text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    if (!isDone) throw new Error("refused");
    return undefined;
  };

  const copy = async (text, button) => {
    const before = button?.textContent;
    let told = words().done ?? "";
    try {
      await put(text);
    } catch {
      told = words().failed ?? "";
    }
    if (!button) return;
    button.textContent = told;
    setTimeout(() => { button.textContent = before; }, 1_500);
  };

  const pathOf = (element) => decodeURIComponent(element.dataset.at);
  const valueOf = (element) => fetched(`${root(element).dataset.branch}?${new URLSearchParams({ raw: 1, at: pathOf(element) })}`);

  // --- the toolbar --------------------------------------------------------------------------------------------------
  let bar = null;
  const dress = (element) => {
    if (!element || !root(element)) return;
    if (bar?.parentElement === element) return;
    bar ??= document.querySelector("template[data-node-tools]")?.content.firstElementChild.cloneNode(true);
    if (!bar) return;
    const cell = element.matches("tr") ? element.querySelector("th") : element.querySelector(":scope > .json-key");
    cell?.after?.(bar);
    if (element.matches("tr")) cell.append(bar);
  };

  const act = (event) => {
    const button = event.target.closest(".node-tools button");
    if (!button) return;
    const element = place(button);
    event.preventDefault();
    copy(button.dataset.copies === "path" ? pathOf(element) : valueOf(element), button);
  };

  // --- the keyboard -------------------------------------------------------------------------------------------------
  const visibleNodes = (element) => [...root(element).querySelectorAll("[data-at]")].filter((one) => one.checkVisibility());
  const fold = (element) => [...element.querySelectorAll("details.json-fold")].find((one) => place(one) === element);

  const step = (event) => {
    const container = event.target.closest?.("[data-branch]");
    if (!container || event.isComposing || event.target.matches("input, textarea")) return;
    const here = place(event.target);
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "c" && here && getSelection().isCollapsed) {
      event.preventDefault();
      copy(event.shiftKey ? pathOf(here) : valueOf(here), here.querySelector(`.node-tools [data-copies=${event.shiftKey ? "path" : "value"}]`));
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const nodes = visibleNodes(container);
    const at = nodes.indexOf(here);
    const go = (node) => {
      if (!node) return;
      event.preventDefault();
      node.focus();
    };
    if (event.key === "ArrowDown") go(nodes[at + 1]);
    else if (event.key === "ArrowUp") go(at > 0 ? nodes[at - 1] : null);
    else if (event.key === "Home") go(nodes[0]);
    else if (event.key === "End") go(nodes.at(-1));
    else if (event.key === "ArrowRight" && here) {
      const folded = fold(here);
      if (folded && !folded.open) { event.preventDefault(); folded.open = true; } else if (folded) go(nodes[at + 1]);
    } else if (event.key === "ArrowLeft" && here) {
      const folded = fold(here);
      if (folded?.open) { event.preventDefault(); folded.open = false; } else go(place(here.parentElement));
    }
  };

  // --- loading, folding ---------------------------------------------------------------------------------------------
  const load = async (link) => {
    link.setAttribute("aria-busy", "true");
    const answer = await fetch(link.getAttribute("href"), { headers: { "HX-Request": "true" }, credentials: "same-origin" });
    if (!answer.ok) {
      link.removeAttribute("aria-busy");
      return;
    }
    const read = new DOMParser().parseFromString(await answer.text(), "text/html").body;
    const how = link.dataset.load;
    if (how === "members") {
      const list = [...read.querySelector("ul").children];
      const first = list[0];
      link.closest("li").replaceWith(...list);
      first?.focus?.();
    } else if (how === "text") {
      const cut = link.closest(".cut");
      cut.previousElementSibling?.remove();
      cut.replaceWith(...read.childNodes);
    } else {
      const value = document.createElement("div");
      value.className = "value";
      value.tabIndex = 0;
      value.setAttribute("role", "group");
      value.dataset.branch = new URL(link.href).pathname;
      value.append(...read.childNodes);
      link.closest("p").previousElementSibling?.replaceWith(value);
      link.closest("p").remove();
      value.focus();
    }
    document.dispatchEvent(new CustomEvent("evidence:loaded"));
  };

  const expand = (button) => {
    const folds = [...button.closest(".call").querySelectorAll("details.json-fold")];
    if (folds.length > MANY_FOLDS) {
      button.textContent = button.dataset.tooMany.replace("%s", folds.length);
      return;
    }
    const open = folds.some((one) => !one.open);
    for (const one of folds) one.open = open;
  };

  document.addEventListener("click", (event) => {
    act(event);
    const link = event.target.closest("a[data-load]");
    if (link && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      load(link);
    }
    const copies = event.target.closest("button[data-copy]");
    if (copies) copy(fetched(copies.dataset.copy), copies);
    const all = event.target.closest("[data-expand]");
    if (all) expand(all);
    const opener = event.target.closest("a[data-opens-fold]");
    const opened = opener && document.getElementById(opener.getAttribute("href").slice(1));
    if (opened) {
      event.preventDefault();
      opened.open = true;
      opened.querySelector("summary").focus();
      opened.scrollIntoView({ block: "nearest" });
    }
  });
  document.addEventListener("keydown", step, true);
  document.addEventListener("focusin", (event) => dress(place(event.target)));
  document.addEventListener("mouseover", (event) => dress(place(event.target)));
})();
