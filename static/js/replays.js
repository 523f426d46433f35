// Ctrl+Enter in a text sends its form: what its first button does.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || !event.target.matches("[data-submits]")) return;
  event.preventDefault();
  event.target.form.requestSubmit();
});
