// Keys are printed in Latin letters. Where a keyboard writes others (Cyrillic, Greek, Arabic …), the letter in the same
// place of a Latin one is meant; what is typed into a field stays as it is typed.
window.addEventListener("keydown", (event) => {
  const letter = /^Key([A-Z])$/.exec(event.code)?.[1];
  if (!letter || [...event.key].length !== 1 || event.key <= "~") return;
  const isTyped = event.target.closest?.("input:not([type=checkbox], [type=radio], [type=file]), textarea, select, [contenteditable]");
  if (isTyped && !event.ctrlKey && !event.metaKey && !event.target.closest("[data-key-fields]")) return;
  Object.defineProperty(event, "key", { value: event.shiftKey ? letter : letter.toLowerCase() });
}, true);
