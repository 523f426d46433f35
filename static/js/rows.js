// j and k move the cursor through the rows of a list: the link of the row has the focus, so Enter opens it by itself. From
// a box in the row Enter opens it, too.
(() => {
  const typing = "input:not([type=checkbox], [type=radio]), select, textarea, dialog[open]";
  const line = (link) => link.closest("tr, li") ?? link;

  const move = (step, event) => {
    const rows = [...document.querySelectorAll("[data-rows] [data-row]")];
    if (!rows.length) return;
    const at = rows.findIndex((row) => line(row).contains(document.activeElement));
    const row = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
    row.focus();
    row.scrollIntoView({ block: "nearest" });
    event.preventDefault();
    document.dispatchEvent(new CustomEvent("row:moved", { detail: { from: rows[at], to: row, extends: event.key !== event.key.toLowerCase() } }));
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || event.target.closest(typing)) return;
    const step = { j: 1, k: -1, J: 1, K: -1 }[event.key];
    if (step) move(step, event);
    if (event.key !== "Enter" || !event.target.matches("[data-rows] input[type=checkbox]")) return;
    const link = event.target.closest("tr")?.querySelector("[data-row]");
    if (!link) return;
    event.preventDefault();
    link.click();
  });
})();
