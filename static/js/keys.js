// Keys: an element with data-key="x" is pressed by x ("g c": g, then c). A field is focused, a link, button or box clicked.
// Silent while typing and with a modifier; an open dialog hears only the keys of what is in it; of several the one in
// what is current (data-current) is meant. Esc leaves a field.
(() => {
  let prefix = "";
  let timer;

  const typing = (target) => target.closest?.("input:not([type=checkbox], [type=radio], [type=file]), textarea, select, [contenteditable]");
  const visible = (element) => element.checkVisibility?.() ?? element.offsetParent !== null;

  const find = (key) => {
    const scope = document.querySelector("dialog:modal") ?? document;
    const found = [...scope.querySelectorAll(`[data-key="${CSS.escape(key)}"]`)].filter((one) => visible(one) && !one.matches(":disabled"));
    return found.find((one) => one.closest("[data-current]")) ?? found[0];
  };

  const press = (element) => {
    if (element.matches("input:not([type=checkbox], [type=radio]), textarea, select")) {
      element.focus();
      element.select?.();
    } else {
      element.click();
    }
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const key = prefix + event.key;
    clearTimeout(timer);
    prefix = "";
    const element = find(key);
    if (element) {
      event.preventDefault();
      if (!event.repeat) press(element);
    } else if (key === event.key && document.querySelector(`[data-key^="${CSS.escape(key)} "]`)) {
      prefix = `${key} `;
      timer = setTimeout(() => { prefix = ""; }, 1500);
    }
  });
})();
