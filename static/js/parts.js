// Brings a piece of a page up to date part by part: a child with data-part is replaced when its data-rev has changed, so
// that what somebody is reading, unfolding or writing beside it stays. `data-refresh` is where the piece comes from, with
// `data-every` seconds it is asked for again and again.
window.parts = (() => {
  const own = (piece) => [...piece.children].filter((one) => one.dataset.part);
  const inUse = (part) => part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select");

  // `keep(part)` says of a part that is gone, or changed, whether it stays as it is.
  const merge = (piece, fresh, keep = () => false) => {
    const old = new Map(own(piece).map((part) => [part.dataset.part, part]));
    let last = null;
    for (const part of own(fresh)) {
      const mine = old.get(part.dataset.part);
      old.delete(part.dataset.part);
      let placed = part;
      if (mine && (mine.dataset.rev === part.dataset.rev || inUse(mine) || keep(mine, part))) placed = mine;
      else if (mine) mine.replaceWith(part);
      if (placed.previousElementSibling !== last || placed.parentElement !== piece) last ? last.after(placed) : piece.prepend(placed);
      if (placed === part) window.htmx.process(part);
      last = placed;
    }
    for (const part of old.values()) if (!inUse(part) && !keep(part, null)) part.remove();
    document.dispatchEvent(new CustomEvent("parts:merged", { detail: piece }));
  };

  // The piece as the server has it now; null where there is none, or the page is on its way to the sign-in.
  const fetched = async (piece) => {
    const answer = await fetch(piece.dataset.refresh, { headers: { "HX-Request": "true" }, credentials: "same-origin" });
    if (answer.headers.has("HX-Refresh")) location.reload();
    if (!answer.ok) return null;
    const read = new DOMParser().parseFromString(await answer.text(), "text/html");
    return read.getElementById(piece.id);
  };

  document.addEventListener("DOMContentLoaded", () => {
    for (const piece of document.querySelectorAll("[data-refresh][data-every]")) {
      setInterval(async () => {
        if (document.hidden) return;
        const fresh = await fetched(piece).catch(() => null);
        if (fresh) merge(piece, fresh, (mine) => mine.matches("[data-card]:has(details[open] form, .choose :checked)"));
      }, 1000 * piece.dataset.every);
    }
  });
  return { merge, fetched };
})();
