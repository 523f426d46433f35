// Files dropped on the form go into its input; a bar shows how far they are sent; a file that is too large or empty is
// told before it is sent. The form itself is sent by htmx, or by the browser; it brings the words (data-words-…).
(() => {
  const form = (event) => event.target.closest?.("[data-upload]");

  const fault = (target, words) => {
    const line = target.querySelector("[data-upload-fault]");
    line.textContent = words;
    line.hidden = !words;
  };

  for (const name of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(name, (event) => {
      const drop = event.target.closest?.("[data-drop]");
      if (!drop) return;
      event.preventDefault();
      drop.classList.toggle("over", name === "dragover");
      if (name !== "drop" || !event.dataTransfer.files.length) return;
      const input = drop.querySelector("input[type=file]");
      input.files = event.dataTransfer.files;
      input.dispatchEvent(new Event("change", { bubbles: true }));
    });
  }
  document.addEventListener("change", (event) => {
    const target = form(event);
    if (!target || event.target.type !== "file") return;
    const limit = Number(target.dataset.maxBytes);
    const bad = [...event.target.files].find((file) => file.size > limit || !file.size);
    fault(target, bad ? `${bad.name}: ${bad.size ? target.dataset.wordsTooLarge.replace("{limit}", Math.round(limit / 1048576)) : target.dataset.wordsEmpty}` : "");
    if (bad) event.target.value = "";
    else target.querySelector("button[type=submit]").focus();
  });
  document.addEventListener("htmx:xhr:progress", (event) => {
    const target = form(event);
    if (!target || !event.detail.lengthComputable) return;
    const bar = target.querySelector("[data-upload-progress]");
    const percent = Math.floor((100 * event.detail.loaded) / event.detail.total);
    bar.hidden = false;
    bar.value = percent;
    target.querySelector("[data-upload-words]").textContent = percent < 100 ? target.dataset.wordsSent.replace("{percent}", `${percent} %`) : target.dataset.wordsReading;
  });
  for (const name of ["htmx:sendError", "htmx:responseError"]) {
    document.addEventListener(name, (event) => {
      if (form(event)) fault(form(event), form(event).dataset.wordsBrokeOff);
    });
  }
})();
