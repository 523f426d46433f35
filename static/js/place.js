// Brings the call on the screen into view inside its pane, when the page opens and after each swap.
(() => {
  const place = () => {
    const call = document.querySelector("[data-here]");
    const pane = call?.closest(".pane");
    if (!pane || pane.scrollHeight <= pane.clientHeight) return;
    const top = call.getBoundingClientRect().top - pane.getBoundingClientRect().top;
    const fits = top + call.offsetHeight <= pane.clientHeight;
    if (!fits) pane.scrollTop += Math.max(0, top - pane.clientHeight / 3);
  };
  document.addEventListener("DOMContentLoaded", place);
  for (const name of ["htmx:afterSwap", "htmx:historyRestore"]) document.addEventListener(name, place);
})();
