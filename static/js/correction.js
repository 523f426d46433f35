// The form of a correction: Ctrl+Enter saves, Esc leaves (at once while nothing was typed, else the field first), and what
// changes shows line by line as it is typed. Each field knows what the call had: data-actual.
(() => {
  const form = () => document.querySelector("[data-correction]");
  const line = (kind, sign, text) => {
    const element = document.createElement(kind);
    element.textContent = `${sign} ${text}`;
    return element;
  };

  const changed = (fields) => {
    const lines = [];
    for (const field of fields) {
      const { actual, name } = field.dataset;
      if (field.value === actual) continue;
      if (actual) lines.push(line("del", "-", `${name}: ${actual}`));
      if (field.value) lines.push(line("ins", "+", `${name}: ${field.value}`));
    }
    return lines;
  };

  const between = (before, after) => {
    const [old, now] = [before.split("\n"), after.split("\n")];
    while (old.length && now.length && old[0] === now[0]) { old.shift(); now.shift(); }
    while (old.length && now.length && old.at(-1) === now.at(-1)) { old.pop(); now.pop(); }
    return [...old.map((text) => line("del", "-", text)), ...now.map((text) => line("ins", "+", text))];
  };

  const show = () => {
    const place = form()?.querySelector("[data-diff]");
    if (!place) return;
    const json = form().querySelector("textarea[name=json]");
    const lines = json ? between(json.dataset.actual, json.value) : changed(form().querySelectorAll("[data-fields] [data-actual]"));
    place.replaceChildren(...lines);
    place.hidden = !lines.length;
  };

  const touched = () => [...form().elements].some((field) => field.value !== field.defaultValue && "defaultValue" in field);

  document.addEventListener("input", (event) => { if (event.target.closest("[data-correction]")) show(); });
  document.addEventListener("change", (event) => { if (event.target.closest("[data-correction]")) show(); });
  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("htmx:afterSwap", show);
  document.addEventListener("keydown", (event) => {
    if (!form() || event.isComposing || document.querySelector("dialog:modal")) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      document.activeElement.blur(); // else the note of the next item would have the focus, and take its label's key
      form().requestSubmit(form().querySelector("[data-saves]"));
    } else if (event.key === "Escape" && !(event.target.form === form() && touched())) {
      event.preventDefault();
      form().querySelector("[data-leave]").click();
    }
  }, true);
})();
