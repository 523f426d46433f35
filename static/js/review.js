// Review at the speed of the keys. What comes next is asked for ahead and kept in memory; a label shows it at once, while
// the label travels. Labels are sent one after the other. One that fails brings its item back, with what was written, and
// waits there; all that was pressed after it waits behind it. Without an item ahead, htmx does the same step by step.
(() => {
  const KEEP_MS = 120_000; // what others do meanwhile is caught by the version that each write carries
  const SETTLED_MS = 90; // a key that bounces must not label what nobody has seen
  const UNDO_SHOWN_MS = 8_000;

  const ahead = new Map(); // address -> { at, promise, screen }
  const jobs = []; // labels on their way, oldest first: { form data, screen, … }
  let running = false;
  let stopped = false; // a label failed: its item is on the screen

  const review = () => document.getElementById("review");
  const csrf = () => JSON.parse(document.body.getAttribute("hx-headers") ?? "{}");
  const busy = () => jobs.length > 0;

  // --- asking ahead -------------------------------------------------------------------------------------------------
  const ask = (address) => {
    const known = ahead.get(address);
    if (known && performance.now() - known.at < KEEP_MS) return known;
    const entry = { at: performance.now(), screen: null };
    ahead.set(address, entry);
    entry.promise = fetch(address, { headers: { "HX-Request": "true", "X-Ahead": "1" }, credentials: "same-origin" })
      .then(async (answer) => {
        if (!answer.ok || answer.headers.has("HX-Refresh") || answer.redirected) throw new Error(`${answer.status}`);
        const read = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("review");
        if (!read) throw new Error("no item");
        entry.screen = document.adoptNode(read);
      })
      .catch(() => { if (ahead.get(address) === entry) ahead.delete(address); });
    return entry;
  };

  const forget = (item) => {
    for (const [address, entry] of ahead) if (entry.screen?.dataset.item === item) ahead.delete(address);
  };

  const askAround = () => {
    const screen = review();
    if (!screen) return;
    const wanted = [...screen.querySelectorAll("a[data-ahead]")];
    const soon = wanted.filter((link) => link.dataset.ahead === "soon").map((link) => link.getAttribute("href"));
    const later = wanted.filter((link) => link.dataset.ahead === "later").map((link) => link.getAttribute("href"));
    if (screen.dataset.following) soon.unshift(screen.dataset.following);
    const keep = new Set([...soon, ...later]);
    for (const address of ahead.keys()) if (!keep.has(address)) ahead.delete(address);
    const canLabel = screen.querySelector("#label-form") ?? screen.querySelector("[data-onward]");
    if (canLabel || soon.length > 1) for (const address of new Set(soon)) ask(address);
    setTimeout(() => { if (review() === screen) later.forEach(ask); }, 400);
  };

  // --- showing ------------------------------------------------------------------------------------------------------
  const settle = () => {
    const screen = review();
    if (!screen) return;
    screen.dataset.settling = "";
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => { delete screen.dataset.settling; }, SETTLED_MS)));
  };

  const show = (screen, { push = true } = {}) => {
    document.dispatchEvent(new CustomEvent("review:leaving"));
    const old = review();
    const strip = old.querySelector("[data-strip]");
    const guidelines = document.activeElement?.closest("#guidelines");
    old.replaceWith(screen);
    if (strip && busy()) screen.querySelector("[data-strip]")?.replaceWith(strip.cloneNode(true));
    if (!screen.dataset.live) window.htmx.process(screen);
    screen.dataset.live = "1";
    if (push) history.pushState({ htmx: true }, "", screen.dataset.address);
    if (!guidelines && document.activeElement === document.body) screen.querySelector(".pane")?.focus({ preventScroll: true });
    settle();
    document.dispatchEvent(new CustomEvent("review:shown", { detail: screen }));
    askAround();
  };

  // --- saving -------------------------------------------------------------------------------------------------------
  const send = async (job) => {
    const body = new URLSearchParams(job.fields);
    const answer = await fetch(job.action, {
      method: "POST",
      body,
      headers: { ...csrf(), "HX-Request": "true", "X-Ahead": "1", "X-On-Screen": job.item },
      credentials: "same-origin",
      keepalive: body.toString().length < 60_000, // the label of a page that is left on the way arrives
    });
    const refused = answer.status === 409 || answer.headers.has("X-Not-Saved");
    return { status: answer.status, ok: answer.ok && !refused && !answer.headers.has("HX-Refresh"), refused, text: await answer.text() };
  };

  const run = async () => {
    if (running || stopped) return;
    running = true;
    while (jobs.length && !stopped) {
      const job = jobs[0];
      let answer;
      try {
        answer = await send(job);
      } catch {
        answer = { status: 0, ok: false, text: "" };
      }
      if (answer.ok) {
        jobs.shift();
        saved(job, answer.text);
      } else {
        fail(job, answer);
      }
    }
    running = false;
  };

  const saved = (job, text) => {
    forget(job.item);
    job.screen.dataset.saved = "";
    document.dispatchEvent(new CustomEvent("review:saved", { detail: job.screen.dataset.drafts }));
    const told = new DOMParser().parseFromString(text, "text/html").querySelector("[data-saved]");
    if (review() === job.screen) onward(job.address);
    const screen = review();
    if (!told) {
      asBefore(job);
      return;
    }
    if (!screen) return;
    for (const badge of screen.querySelectorAll(`[data-stop="${CSS.escape(job.item)}"] .badge`)) {
      badge.className = `badge label-${told.dataset.label}`;
    }
    if (busy()) return; // the words of the next one stand there
    if (!screen.dataset.item) { // what is left was counted before this label
      onward(screen.dataset.address);
      return;
    }
    const strip = told.querySelector("[data-strip]");
    const standing = told.querySelector("#standing");
    const place = screen.querySelector("[data-strip]");
    if (strip && place) { // the undo stands out for a while, and stays
      strip.dataset.fresh = "";
      setTimeout(() => { delete strip.dataset.fresh; }, UNDO_SHOWN_MS);
      place.replaceWith(document.adoptNode(strip));
      window.htmx.process(strip);
    }
    if (standing) screen.querySelector("#standing")?.replaceWith(document.adoptNode(standing));
  };

  // A skip leaves what was said of the last label.
  const asBefore = (job) => {
    const place = review()?.querySelector("[data-strip]");
    if (busy() || !place || !job.strip) return;
    place.replaceWith(job.strip);
    window.htmx.process(job.strip);
  };

  const comeBack = (job) => {
    if (review() !== job.screen) show(job.screen);
    delete job.screen.dataset.settling;
  };

  const fail = (job, answer) => {
    stopped = true;
    const judgement = answer.refused
      ? new DOMParser().parseFromString(answer.text, "text/html").getElementById("judgement")
      : null;
    const isWriting = document.activeElement?.matches("#review textarea, #review input, #review select") && review() !== job.screen;
    if (judgement) { // the server says what is wrong with it: it has to be given anew
      jobs.shift();
      stopped = false;
      comeBack(job);
      const place = job.screen.querySelector("#judgement");
      const fresh = document.adoptNode(judgement);
      place.replaceWith(fresh);
      window.htmx.process(fresh);
      document.dispatchEvent(new CustomEvent("review:shown", { detail: job.screen }));
      forget(job.item);
      fresh.querySelector("[autofocus]")?.focus();
      if (busy()) setTimeout(run, 0);
      return;
    }
    const back = () => { comeBack(job); tell(); };
    const again = () => { stopped = false; window.saveState.saving(); run(); };
    const tell = () => {
      const { why, word, failed } = window.saveState;
      const resend = answer.status === 403 ? [word("Reload"), () => location.reload()] : [word("Again"), again];
      failed(why(answer.status), review() === job.screen ? [resend] : [resend, [word("Back"), back]]);
    };
    if (isWriting) tell();
    else back();
  };

  // Who waited for the answer goes on with it.
  const onward = (address) => {
    const next = ahead.get(address)?.screen;
    if (next) show(next);
    else window.htmx.ajax("GET", address, { target: "#review", swap: "outerHTML show:none" });
  };

  // --- keys become labels -------------------------------------------------------------------------------------------
  const isSettling = () => "settling" in (review()?.dataset ?? {});

  const submitted = (event) => {
    const form = event.target.closest?.("#review [data-onward]");
    if (!form) return;
    if ((isSettling() && form.dataset.onward !== "saved") || stopped) {
      event.preventDefault();
      event.stopImmediatePropagation();
      return;
    }
    const button = event.submitter;
    if (button?.hasAttribute("formaction")) return ofSetting(event, form, button);
    const fields = new FormData(form, button);
    const screen = review();
    const address = screen.dataset.following;
    const stays = fields.has("here") || fields.has("as");
    const coming = ahead.get(address);
    const next = coming?.screen;
    if (coming && !next && !stays && form.dataset.onward !== "saved") return whenThere(event, form, button, coming);
    if (stays || !next || form.dataset.onward === "saved") {
      if (!stays && form.dataset.onward === "saved") return saveFirst(event, form, fields, screen, address);
      return undefined; // htmx sends it, and shows what comes back
    }
    event.preventDefault();
    event.stopImmediatePropagation();
    const strip = screen.querySelector("[data-strip]")?.cloneNode(true);
    jobs.push({ action: form.action, fields: pairs(fields), item: screen.dataset.item, screen, address, strip });
    window.saveState.saving();
    show(next);
    run();
    return undefined;
  };

  // Pressed before what comes next has come: it is sent with it.
  const whenThere = (event, form, button, coming) => {
    event.preventDefault();
    event.stopImmediatePropagation();
    const screen = review();
    if ("waiting" in screen.dataset) return;
    screen.dataset.waiting = "";
    window.saveState.saving();
    const patience = new Promise((done) => setTimeout(done, 1_500)); // then the label goes first, and brings what comes next
    Promise.race([coming.promise, patience]).then(() => {
      delete screen.dataset.waiting;
      if (!coming.screen) ahead.clear();
      if (review() === screen && form.isConnected) form.requestSubmit(button);
    });
  };

  // A correction may not be done with: the next item waits for the answer, and is there with it.
  const saveFirst = (event, form, fields, screen, address) => {
    event.preventDefault();
    event.stopImmediatePropagation();
    if (jobs.some((job) => job.screen === screen)) return;
    window.saveState.saving();
    jobs.push({ action: form.action, fields: pairs(fields), item: screen.dataset.item, screen, address });
    run();
  };

  const ofSetting = (event, form, button) => {
    event.preventDefault();
    event.stopImmediatePropagation();
    window.htmx.ajax("POST", button.getAttribute("formaction"), { source: form, target: "#review", swap: "outerHTML show:none" });
  };

  const pairs = (fields) => [...fields.entries()].filter(([, value]) => typeof value === "string");

  // --- moving -------------------------------------------------------------------------------------------------------
  const skippedKey = () => `skipped ${location.pathname}`;
  const skipped = () => JSON.parse(sessionStorage.getItem(skippedKey()) ?? "[]");
  const keepSkipped = (places) => sessionStorage.setItem(skippedKey(), JSON.stringify(places.slice(-50)));

  const showUnskip = () => {
    const link = document.querySelector("[data-unskips]");
    const places = skipped().filter((place) => place !== review()?.dataset.address);
    if (!link) return;
    link.hidden = !places.length;
    if (places.length) link.setAttribute("href", places.at(-1));
  };

  const clicked = (event) => {
    const link = event.target.closest?.("#review a[href]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    if (link.hasAttribute("data-skips")) keepSkipped([...skipped().filter((one) => one !== review().dataset.address), review().dataset.address]);
    if (link.hasAttribute("data-unskips")) keepSkipped(skipped().filter((one) => one !== link.getAttribute("href")));
    const next = link.hasAttribute("data-ahead") && ahead.get(link.getAttribute("href"))?.screen;
    if (!next) return moveMark(link);
    event.preventDefault();
    event.stopImmediatePropagation();
    if (!isSettling()) show(next);
  };

  // The rail says at once where one is going; the panes follow.
  const moveMark = (link) => {
    if (!link.matches("[data-ahead], [data-stop]")) return;
    const address = link.getAttribute("href");
    const stop = document.querySelector(`[data-stop][href="${CSS.escape(address)}"]`);
    if (!stop) return;
    document.querySelector("[data-stop][aria-current]")?.removeAttribute("aria-current");
    stop.setAttribute("aria-current", "true");
  };

  // --- beside -------------------------------------------------------------------------------------------------------
  const writing = (target) => target.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");

  document.addEventListener("submit", submitted, true);
  document.addEventListener("click", clicked, true);
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.key.toLowerCase() !== "z") return;
    if (writing(event.target) || document.querySelector("dialog:modal")) return;
    const button = document.querySelector(`[data-step][action*="/${event.shiftKey ? "redo" : "undo"}/"] button`);
    if (!button) return;
    event.preventDefault();
    if (!event.repeat) button.click();
  });
  // What htmx sends waits until the labels before it have arrived.
  const whenSaved = (act) => (busy() && !stopped ? setTimeout(whenSaved, 20, act) : act());
  document.addEventListener("htmx:confirm", (event) => {
    if (!busy() || stopped || event.detail.verb !== "post") return;
    event.preventDefault();
    whenSaved(() => event.detail.issueRequest(true));
  });
  // The ways back mean the label that was given last, also while that is on its way and the strip knows nothing of it.
  document.addEventListener("keydown", (event) => {
    if (!busy() || stopped || event.repeat || event.ctrlKey || event.metaKey || event.altKey || writing(event.target)) return;
    const [undo, edit] = document.querySelector("[data-strip]")?.dataset.keysWaiting?.split(" ") ?? [];
    if (![undo, edit].includes(event.key) || document.querySelector("dialog:modal")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const wanted = event.key === undo ? "[data-step][action*='/undo/'] button" : "[data-edits]";
    whenSaved(() => setTimeout(() => document.querySelector(wanted)?.click(), 0));
  }, true);
  document.addEventListener("submit", (event) => {
    const step = event.target.closest?.("[data-step]");
    if (!step || !busy() || stopped) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    const action = step.getAttribute("action");
    whenSaved(() => document.querySelector(`[data-step][action="${CSS.escape(action)}"] button`)?.click());
  }, true);
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target?.id !== "review" && event.target.id !== "review") return;
    ahead.clear();
    settle();
    showUnskip();
    askAround();
  });
  document.addEventListener("review:shown", showUnskip);
  document.addEventListener("DOMContentLoaded", () => { showUnskip(); askAround(); });
  addEventListener("beforeunload", (event) => { if (busy()) event.preventDefault(); });
})();
