// Opens the <dialog> that data-opens names, and closes the one a data-closes button stands in. Esc closes by itself. With
// data-beside it is no dialog but stands beside the page, which goes on hearing its keys: pressed again, it is away.
// One that the page came with (data-modal, open) is made modal.
document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  const opened = opener && document.getElementById(opener.dataset.opens);
  if (opened && "beside" in opener.dataset) opened.hidden = !opened.hidden;
  else if (opened) {
    event.preventDefault(); // a link leads to the page with the dialog open, for browsers without this script
    if (!opened.open) opened.showModal();
  }
  const closer = event.target.closest("[data-closes]");
  if (closer) closer.closest("dialog")?.close();
});
for (const dialog of document.querySelectorAll("dialog[open][data-modal]")) {
  dialog.close();
  dialog.showModal();
}
// What folds open over the page closes by Esc too, and so does what stands beside it; what opened it has the focus again.
// In a field Esc leaves the field first (keys.js).
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || event.isComposing || document.querySelector("dialog:modal")) return;
  if (event.target.matches?.("input:not([type=checkbox], [type=radio], [type=file]), textarea, select")) return;
  const inside = (open) => document.activeElement?.closest(open) ?? [...document.querySelectorAll(open)].at(-1);
  const fold = inside("details:is(.act, .confirm, .view-menu)[open]");
  const beside = fold ? null : inside(".beside:not([hidden])");
  if (fold) {
    fold.open = false;
    fold.querySelector("summary").focus();
  } else if (beside) {
    beside.hidden = true;
    document.querySelector(`[data-opens="${beside.id}"][data-beside]:not(#${beside.id} *)`)?.focus();
  } else return;
  event.preventDefault();
});
