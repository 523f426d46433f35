// Brings the call on the screen into view inside its pane, and gives the pane the focus, so that the arrows and the space
// bar scroll it: when the page opens and after each swap.
(() => {
  const place = () => {
    const pane = document.querySelector(".pane");
    if (document.activeElement === document.body) pane?.focus({ preventScroll: true });
    const call = pane?.querySelector("[data-here]");
    if (!call || pane.scrollHeight <= pane.clientHeight) return;
    const top = call.getBoundingClientRect().top - pane.getBoundingClientRect().top;
    const fits = top + call.offsetHeight <= pane.clientHeight;
    if (!fits) pane.scrollTop += Math.max(0, top - pane.clientHeight / 3);
  };
  document.addEventListener("DOMContentLoaded", place);
  for (const name of ["htmx:afterSwap", "htmx:historyRestore"]) document.addEventListener(name, place);
})();
