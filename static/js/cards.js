// Calls that wait: one of them is current, its buttons hear the keys. A form that is unfolded takes the focus, Ctrl+Enter
// sends the form one is writing in, and when a call is decided the next one is current.
(() => {
  const cards = () => [...document.querySelectorAll("[data-card]")];

  const choose = (card) => {
    for (const one of document.querySelectorAll("[data-current]")) if (one !== card) delete one.dataset.current;
    if (card) card.dataset.current = "";
  };
  const settle = () => { if (!document.querySelector("[data-card][data-current]")) choose(cards()[0]); };

  document.addEventListener("DOMContentLoaded", settle);
  document.addEventListener("parts:merged", settle);
  document.addEventListener("focusin", (event) => {
    const card = event.target.closest("[data-card]");
    if (card) choose(card);
  });
  document.addEventListener("click", (event) => {
    const fold = event.target.closest(".decide summary")?.parentElement;
    if (!fold) return;
    event.preventDefault(); // at once, so that what is typed next goes into the form
    fold.open = !fold.open;
    if (fold.open) fold.querySelector("input:not([type=hidden]), textarea, select")?.focus();
  });
  document.addEventListener("keydown", (event) => {
    const form = event.target.closest?.("form");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && form && event.target.matches("textarea, input, select")) {
      event.preventDefault();
      form.requestSubmit();
    }
  });

  let at = -1;
  document.addEventListener("htmx:beforeSwap", (event) => {
    at = cards().indexOf(event.detail.target.closest?.("[data-card]"));
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (at < 0) return;
    const here = document.getElementById(event.detail.target.id);
    const next = here?.matches("[data-card]") ? here : cards()[Math.min(at, cards().length - 1)];
    at = -1;
    choose(next ?? null);
    (here?.querySelector("[role=alert]") ? here.querySelector("input:not([type=hidden]), textarea") ?? here : next)?.focus();
  });
})();
