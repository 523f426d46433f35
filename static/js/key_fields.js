// Fields that hold a key: pressing one writes it, in place of what stood there. Tab, Enter and Escape keep their meaning.
document.addEventListener("keydown", (event) => {
  const field = event.target.closest?.("[data-key-fields] input:not([type=hidden])");
  if (!field || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const key = event.key;
  if ([...key].length !== 1 && !/^F\d{1,2}$/.test(key)) return;
  if (key === " ") return;
  event.preventDefault();
  field.value = key;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.select();
});
