// What is written and not saved yet is kept in this browser, by tenant, person and item: it survives moving on, reloading
// and a browser that was closed. It is away once it is saved, or discarded. Where the browser keeps nothing, leaving asks.
(() => {
  const PREFIX = "draft ";
  const KEEP_DAYS = 14;
  const DAY_MS = 86_400_000;
  let cannotKeep = false;
  let timer;

  const screen = () => document.querySelector("[data-drafts]");
  const name = (place = screen()?.dataset.drafts) => (place ? PREFIX + place : null);
  const note = () => document.getElementById("note");
  const correction = () => document.querySelector("[data-correction]");

  const read = (key) => {
    try {
      return JSON.parse(localStorage.getItem(key) ?? "null");
    } catch {
      return null;
    }
  };

  const fieldsOf = (form) => Object.fromEntries([...new FormData(form)].filter(([key]) => !HIDDEN.has(key) && typeof key === "string"));
  const HIDDEN = new Set(["csrfmiddlewaretoken", "call", "turn", "cycle", "version", "nonce", "filter", "queue", "stay", "here", "note", "correcting", "sure"]);
  const touched = (form) => [...form.elements].some((field) =>
    field.id !== "note" && ("defaultValue" in field && field.type !== "hidden" && field.type !== "checkbox" ? field.value !== field.defaultValue
      : field.type === "checkbox" ? field.checked !== field.defaultChecked : false));

  const keep = () => {
    const key = name();
    if (!key || !note() || "saved" in screen().dataset) return;
    const draft = read(key) ?? {};
    if (note().value !== note().defaultValue) draft.note = note().value;
    else delete draft.note;
    const form = correction();
    if (form && touched(form)) draft.correction = { label: form.dataset.correction, fields: fieldsOf(form) };
    try {
      if (draft.note === undefined && !draft.correction) localStorage.removeItem(key);
      else localStorage.setItem(key, JSON.stringify({ ...draft, at: Date.now() }));
      cannotKeep = false;
    } catch {
      cannotKeep = draft.note !== undefined || Boolean(draft.correction);
    }
  };

  const drop = (place) => { if (name(place)) localStorage.removeItem(name(place)); };

  const line = () => {
    const place = document.querySelector("[data-draft-line]");
    const draft = name() && read(name());
    if (!place) return;
    const isNote = draft?.note !== undefined && note()?.value === draft.note && note().value !== note().defaultValue;
    const links = [...place.querySelectorAll("[data-draft-correction]")];
    for (const link of links) link.hidden = Boolean(correction()) || link.dataset.draftCorrection !== draft?.correction?.label;
    place.querySelector("[data-draft-note]").hidden = !isNote && !(correction() && draft?.correction);
    place.hidden = !isNote && !(draft?.correction && (correction() || links.some((link) => !link.hidden)));
  };

  const bringBack = () => {
    const draft = name() && read(name());
    const field = note();
    if (draft && field && draft.note !== undefined && field.value === field.defaultValue) field.value = draft.note;
    const form = correction();
    if (draft?.correction && form && form.dataset.correction === draft.correction.label && !touched(form)) fill(form, draft.correction.fields);
    line();
  };

  const fill = (form, fields) => {
    for (const field of form.elements) {
      if (!field.name || HIDDEN.has(field.name) || field.type === "hidden" || field.tagName === "BUTTON") continue;
      if (field.type === "checkbox" || field.type === "radio") field.checked = fields[field.name] === field.value;
      else if (field.name in fields) field.value = fields[field.name];
    }
    form.querySelector("input, textarea, select")?.dispatchEvent(new Event("input", { bubbles: true }));
  };

  const prune = () => {
    for (const key of Object.keys(localStorage)) {
      if (key.startsWith(PREFIX) && !(read(key)?.at > Date.now() - KEEP_DAYS * DAY_MS)) localStorage.removeItem(key);
    }
  };

  const changed = (event) => {
    if (!event.target.closest?.("#note, [data-correction]")) return;
    clearTimeout(timer);
    timer = setTimeout(() => { keep(); line(); }, 150);
  };

  // A label that htmx sent itself is saved when its answer comes: the item is another one, or its note the saved one.
  document.addEventListener("htmx:beforeSwap", (event) => {
    clearTimeout(timer);
    const form = event.detail.requestConfig?.elt?.closest?.("[data-save]:not([data-step])");
    const unfinished = event.detail.xhr.status !== 200 || event.detail.xhr.getResponseHeader("X-Not-Saved");
    if (form && screen() && !unfinished && event.detail.requestConfig.verb === "post" && event.detail.requestConfig.path.includes("/label/")) drop(screen().dataset.drafts);
    else if (screen()) keep();
  });
  document.addEventListener("input", changed);
  document.addEventListener("change", changed);
  document.addEventListener("review:leaving", keep);
  document.addEventListener("review:shown", bringBack);
  document.addEventListener("review:saved", (event) => { drop(event.detail); line(); });
  document.addEventListener("htmx:afterSwap", bringBack);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-draft-drop]")) return;
    const field = note();
    drop(screen()?.dataset.drafts);
    if (field) field.value = field.defaultValue;
    line();
    field?.focus();
  });
  document.addEventListener("DOMContentLoaded", () => {
    try {
      prune();
    } catch {
      cannotKeep = false; // a browser that keeps nothing has nothing to prune
    }
    bringBack();
  });
  addEventListener("pagehide", keep);
  addEventListener("beforeunload", (event) => {
    keep();
    if (cannotKeep) event.preventDefault();
  });
})();
