// A field with data-picker around it and its list: typing narrows the list, arrows move in it, Enter takes what is marked
// and saves, Tab takes it and goes on. What is on no list can be taken as such: the box below says so.
(() => {
  const parts = (input) => {
    const box = input.closest("[data-picker]");
    return { box, options: [...box.querySelectorAll("[role=option]")], other: box.querySelector("[data-other]") };
  };
  const marked = (box) => box.querySelector("[role=option].active:not([hidden])");

  const mark = (input, option) => {
    const { box } = parts(input);
    box.querySelector(".active")?.classList.remove("active");
    option?.classList.add("active");
    option?.scrollIntoView({ block: "nearest" });
    if (option) input.setAttribute("aria-activedescendant", option.id);
    else input.removeAttribute("aria-activedescendant");
  };

  const narrow = (input) => {
    const { options, other } = parts(input);
    const typed = input.value.trim();
    const words = typed.toLowerCase();
    let exact = false;
    for (const option of options) {
      if (option === other) continue;
      exact ||= option.dataset.value === typed;
      option.hidden = !option.textContent.toLowerCase().includes(words);
    }
    other.hidden = !typed || exact;
    other.querySelector("[data-typed]").textContent = typed;
    const fits = options.filter((option) => !option.hidden);
    const named = fits.find((option) => option.dataset.value?.toLowerCase().includes(words));
    mark(input, typed ? named ?? fits[0] : null);
  };

  const take = (input, option) => {
    const { box, options, other } = parts(input);
    if (!option) return;
    if (option !== other) input.value = option.dataset.value;
    box.querySelector("[name=not_offered]").checked = option === other;
    for (const one of options) one.setAttribute("aria-selected", String(one === option));
    mark(input, null);
  };

  const inputOf = (target) => (target.matches?.("[data-picker] [role=combobox]") ? target : null);

  document.addEventListener("input", (event) => {
    const input = inputOf(event.target);
    if (input) narrow(input);
  });
  document.addEventListener("keydown", (event) => {
    const input = inputOf(event.target);
    if (!input || event.isComposing) return;
    const { box, options } = parts(input);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const fits = options.filter((option) => !option.hidden);
      const step = event.key === "ArrowDown" ? 1 : -1;
      const at = fits.indexOf(marked(box));
      mark(input, fits[at < 0 && step < 0 ? fits.length - 1 : (at + step + fits.length) % fits.length]);
    } else if (event.key === "Enter" || event.key === "Tab") {
      take(input, marked(box)); // Enter then sends the form, as it does in any field
    }
  }, true);
  document.addEventListener("click", (event) => {
    const option = event.target.closest("[data-picker] [role=option]");
    if (!option) return;
    const input = option.closest("[data-picker]").querySelector("[role=combobox]");
    take(input, option);
    input.form.querySelector("[data-saves]").focus();
  });
})();
