// State words of a form that saves by htmx, tied to the request itself: Saving…, then the answer, or Not saved and a way
// to send the very same form again (its nonce makes a repeat harmless).
(() => {
  let pressed = null;

  const state = () => document.querySelector("[data-save-state]");

  const failed = (form, why, reload) => {
    const words = state();
    if (!words) return;
    const again = document.createElement("button");
    again.type = "button";
    again.textContent = reload ? "Reload the page" : "Send again";
    const button = pressed;
    again.addEventListener("click", () => (reload ? location.reload() : form.requestSubmit(button)));
    words.classList.add("failed");
    words.replaceChildren(`Not saved: ${why} `, again);
    again.focus();
  };

  document.addEventListener("submit", (event) => { pressed = event.submitter; }, true);
  document.addEventListener("htmx:beforeRequest", (event) => {
    const form = event.target.closest("[data-save]");
    if (!form || !state()) return;
    state().classList.remove("failed");
    state().textContent = "Saving…";
  });
  document.addEventListener("htmx:responseError", (event) => {
    const form = event.target.closest("[data-save]");
    const status = event.detail.xhr.status;
    if (form) failed(form, status === 403 ? "you signed in or out since." : `the server answered ${status}.`, status === 403);
  });
  for (const name of ["htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(name, (event) => {
      const form = event.target.closest("[data-save]");
      if (form) failed(form, "the server cannot be reached.", false);
    });
  }
})();
