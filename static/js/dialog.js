// Opens the <dialog> that data-opens names, and closes the one a data-closes button stands in. Esc closes by itself. With
// data-beside it stands beside the page, which goes on hearing its keys, and the same button closes it.
document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  const dialog = opener && document.getElementById(opener.dataset.opens);
  if (dialog && "beside" in opener.dataset) dialog.toggleAttribute("open");
  else dialog?.showModal();
  const closer = event.target.closest("[data-closes]");
  if (closer) closer.closest("dialog")?.close();
});
