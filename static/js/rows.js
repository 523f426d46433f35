// j and k move the focus through the rows of a list; Enter then opens the focused link by itself.
document.addEventListener("keydown", (event) => {
  const step = { j: 1, k: -1 }[event.key];
  if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input:not([type=checkbox], [type=radio]), select, textarea, dialog[open]")) return;
  const rows = [...document.querySelectorAll("[data-rows] [data-row]")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const row = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
  row.focus();
  row.scrollIntoView({ block: "nearest" });
  event.preventDefault();
});
