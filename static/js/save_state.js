// State words of what is being saved, tied to the request itself: Saving…, then the answer, or Not saved and a way to send
// the very same form again (its nonce makes a repeat harmless). The words stand in the strip (data-strip), which brings
// them in the reader's language. review.js tells it what it sends by itself; the rest are htmx's own requests.
window.saveState = (() => {
  let pressed = null;

  const strip = () => document.querySelector("[data-strip]");
  const state = () => document.querySelector("[data-save-state]");
  const word = (name) => strip()?.dataset[`words${name}`] ?? "";

  const saving = () => {
    if (!state()) return;
    state().classList.remove("failed");
    state().textContent = word("Saving");
  };

  // `ways` are [words, what a press does]; the first one takes the focus, unless somebody is writing.
  const failed = (why, ways) => {
    if (!state()) return;
    const buttons = ways.map(([text, act]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.addEventListener("click", act);
      return button;
    });
    state().classList.add("failed");
    state().replaceChildren(`${word("NotSaved")} ${why} `, ...buttons);
    if (!document.activeElement?.matches("input, textarea, select")) buttons[0]?.focus();
  };

  const why = (status) => (status === 403 ? word("SignedOut") : status ? word("Status").replace("%s", status) : word("Away"));

  const ofForm = (form, status) => {
    const button = pressed;
    failed(why(status), status === 403
      ? [[word("Reload"), () => location.reload()]]
      : [[word("Again"), () => form.requestSubmit(button?.form === form ? button : undefined)]]);
  };

  document.addEventListener("submit", (event) => { pressed = event.submitter; }, true);
  document.addEventListener("htmx:beforeRequest", (event) => { if (event.target.closest("[data-save]")) saving(); });
  document.addEventListener("htmx:responseError", (event) => {
    const form = event.target.closest("[data-save]");
    if (form) ofForm(form, event.detail.xhr.status);
  });
  for (const name of ["htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(name, (event) => {
      const form = event.target.closest("[data-save]");
      if (form) ofForm(form, 0);
    });
  }
  // Every write says what is on the screen: a label of anything else is refused.
  document.addEventListener("htmx:configRequest", (event) => {
    const item = document.getElementById("review")?.dataset.item;
    if (item && event.detail.verb === "post") event.detail.headers["X-On-Screen"] = item;
  });
  return { saving, failed, why, word };
})();
