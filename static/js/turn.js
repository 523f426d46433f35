// A turn as it runs. Text of the model and arguments are put in as they come; at each change of state the turn is asked
// for and merged, so that what stays is the server's. Where no stream is to be had it is asked for now and then.
(() => {
  const POLL_MS = 1500;
  const LOOK_MS = 30000; // labels of others ring no bell
  const MAX_SHOWN = 20000;

  const follow = (section) => {
    let seq = Number(section.dataset.seq);
    let cycles = Number(section.dataset.cycles);
    let source = null;
    let asking = null;
    let again = false;
    let timer;

    const isOver = () => section.hasAttribute("data-over");
    const atEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 80;
    const moving = (change) => {
      const follows = atEnd();
      change();
      if (follows) scrollTo(0, document.documentElement.scrollHeight);
    };

    const take = (fresh) => {
      const isNewer = Number(fresh.dataset.seq) >= seq;
      if (!isNewer) for (const part of [...fresh.children]) if (part.hasAttribute("data-live")) part.remove();
      cycles = Math.max(cycles, Number(fresh.dataset.cycles));
      if (isNewer) {
        seq = Number(fresh.dataset.seq);
        section.dataset.state = fresh.dataset.state;
        section.toggleAttribute("data-over", fresh.hasAttribute("data-over"));
      }
      // What the stream has shown since is newer than this picture of it.
      moving(() => window.parts.merge(section, fresh, (mine, part) => !isNewer && mine.hasAttribute("data-live") && !part));
      if (!isOver()) return;
      stop();
      if (section.hasAttribute("data-reload")) location.reload();
    };

    const refresh = () => {
      if (asking) { again = true; return asking; }
      asking = window.parts.fetched(section).catch(() => null).then((fresh) => {
        asking = null;
        if (fresh) take(fresh);
        if (again) { again = false; refresh(); }
      });
      return asking;
    };

    const part = (name, make) => {
      const found = section.querySelector(`:scope > [data-part="${name}"]`);
      if (found) return found;
      const made = make();
      made.dataset.part = name;
      made.dataset.rev = "stream";
      made.setAttribute("data-live", "");
      section.querySelector(':scope > [data-part="state"]').before(made);
      return made;
    };
    const element = (tag, className, ...inside) => {
      const made = document.createElement(tag);
      made.className = className;
      made.append(...inside);
      return made;
    };
    const place = (tag, className) => {
      const made = element(tag, className);
      made.dir = "auto";
      made.dataset.text = "";
      return made;
    };
    const reply = () => element("div", "message role-assistant", element("span", "role", section.dataset.wordsAssistant), element("div", "said", place("div", "text")));
    const call = () => {
      const head = element("header", "call-head", element("h2", "call-name"), element("span", "tag streaming", section.dataset.wordsStreaming));
      return element("article", "call", head, element("section", "call-part", element("h3", "", section.dataset.wordsArguments), place("pre", "value")));
    };
    const write = (target, text) => {
      const shown = Number(target.dataset.shown ?? target.textContent.length);
      target.dataset.shown = shown + text.length;
      if (shown < MAX_SHOWN) target.append(window.inert(text));
    };

    const heard = {
      assistant_delta: (event) => write(part(`reply-${event.cycle}`, reply).querySelector("[data-text]"), event.text),
      streaming: (event) => {
        const made = part(`call-${event.cycle}-${event.index}`, call);
        if (event.name) {
          made.querySelector(".call-name").replaceChildren(window.inert(event.name));
          made.querySelector("[data-text]").replaceChildren();
          made.querySelector("[data-text]").dataset.shown = 0;
        }
        write(made.querySelector("[data-text]"), event.argumentsDelta);
      },
    };
    const hear = (message) => {
      const number = Number(message.lastEventId);
      const event = JSON.parse(message.data);
      if (number <= seq) return;
      seq = number;
      const kind = event.type === "tool_call" ? event.state : event.type;
      if (heard[kind]) {
        if (event.cycle >= cycles) moving(() => heard[kind](event));
        return;
      }
      if (event.state === "running" && event.type === "turn_state") {
        for (const one of [...section.children]) if (one.hasAttribute("data-live")) one.remove(); // it was not finished, and is void
      }
      refresh();
    };

    const stop = () => {
      clearInterval(timer);
      source?.close();
      source = null;
    };
    const poll = (ms) => {
      clearInterval(timer);
      timer = setInterval(() => { if (!document.hidden) refresh(); }, ms);
    };
    const listen = () => {
      stop();
      if (isOver()) return;
      poll(LOOK_MS);
      source = new EventSource(`${section.dataset.events}?after=${seq}`);
      for (const type of ["assistant_delta", "tool_call", "tool_decision", "turn_state", "assistant_end"]) source.addEventListener(type, hear);
      source.addEventListener("error", () => {
        if (source?.readyState !== EventSource.CLOSED) return; // it tries again by itself
        refresh();
        poll(POLL_MS);
      });
    };

    document.addEventListener("visibilitychange", () => { // a browser has few connections to give
      if (isOver()) return;
      if (document.hidden) stop();
      else refresh().then(listen);
    });
    document.addEventListener("htmx:afterRequest", (event) => { if (event.detail.requestConfig?.verb === "post") refresh(); });
    listen();
  };

  document.addEventListener("DOMContentLoaded", () => {
    const sections = [...document.querySelectorAll("[data-turn]")];
    sections.forEach(follow);
    if (sections.length && document.getElementById("composer")) scrollTo(0, document.documentElement.scrollHeight);
  });
})();
