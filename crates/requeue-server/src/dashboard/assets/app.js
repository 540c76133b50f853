// What the pages gain by a script: live parts, times in the zone of the browser, keys, and selecting all rows.
// Without it, every page works as it is loaded.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const main = document.getElementById("main");
  const status = document.getElementById("live-status");

  // ---- Times: `<time datetime>` is shown relative to now, and with `data-exact` in the zone of the browser.

  const span = (ms) => {
    const s = Math.floor(ms / 1000), m = Math.floor(s / 60), h = Math.floor(s / 3600), d = Math.floor(s / 86400);
    if (s < 60) return `${s}s`;
    if (s < 600) return `${m}m ${s % 60}s`;
    if (s < 3600) return `${m}m`;
    if (s < 86400) return `${h}h ${m % 60}m`;
    if (s < 1209600) return `${d}d ${h % 24}h`;
    return `${d}d`;
  };
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const two = (number) => String(number).padStart(2, "0");
  const clock = (at) => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const local = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(at)}`;
  // What a time in UTC is here, and in UTC when the pointer is above it.
  const showTimes = (root = document) => {
    const now = Date.now();
    for (const time of all("time[datetime]", root)) {
      const at = new Date(time.dateTime), apart = at - now;
      if (Number.isNaN(apart)) continue;
      const utc = `${time.dateTime.slice(0, 19).replace("T", " ")} UTC`;
      let text, title = utc;
      if (time.dataset.exact === "clock") text = clock(at);
      else if (time.dataset.exact === "minute") text = local(at).slice(0, 16);
      else if ("exact" in time.dataset) text = local(at);
      else {
        text = Math.abs(apart) < 1000 ? "now" : apart > 0 ? `in ${span(apart)}` : `${span(-apart)} ago`;
        title = `${local(at)} here, ${utc}`;
      }
      if (time.textContent !== text) time.textContent = text;
      if (time.title !== title) time.title = title;
    }
    for (const same of all("[data-zone]", root)) same.hidden = same.dataset.zone === zone;
  };

  // ---- Live parts: the page is also a stream of its parts that have changed.

  const setStatus = (text, live) => {
    if (!status || status.textContent === text) return;
    status.textContent = text;
    status.dataset.live = live;
  };

  const key = (node) => node.nodeType === 1 ? node.dataset.key || node.id : "";

  // Changes `from` into `to` and keeps the elements that stay, with their focus and state.
  const morph = (from, to) => {
    if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName || key(from) !== key(to)) {
      from.replaceWith(to);
      return;
    }
    if (from.nodeType !== 1) {
      if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
      return;
    }
    for (const { name } of [...from.attributes]) {
      // A person has opened or closed it.
      if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
    }
    for (const { name, value } of [...to.attributes]) {
      if (name !== "open" && from.getAttribute(name) !== value) from.setAttribute(name, value);
    }
    morphChildren(from, to);
  };
  const morphChildren = (from, to) => {
    const keyed = new Map([...from.children].filter(key).map((node) => [key(node), node]));
    let at = from.firstChild;
    for (const next of [...to.childNodes]) {
      const same = key(next) && keyed.get(key(next));
      if (same) {
        if (same === at) at = at.nextSibling; else from.insertBefore(same, at);
        morph(same, next);
      } else if (at && !(key(at) && keyed.has(key(at)) && key(next)) && at.nodeName === next.nodeName && !key(next) && !key(at)) {
        const old = at;
        at = at.nextSibling;
        morph(old, next);
      } else {
        from.insertBefore(next, at);
      }
    }
    while (at) {
      const gone = at;
      at = at.nextSibling;
      gone.remove();
    }
  };

  // Rows do not move while somebody selects them or writes into a field between them.
  const isInUse = (part) =>
    part.querySelector("input[type=checkbox]:checked, details[open].behind:focus-within") ||
    (part.contains(document.activeElement) && /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.nodeName));

  // Parts that arrived while they were in use: the server sends only what changes.
  const postponed = new Map();

  const update = ({ id, html }) => {
    const part = document.getElementById(id);
    if (!part || !("live" in part.dataset)) return;
    if (isInUse(part)) {
      postponed.set(id, html);
      setStatus("Live, but not the rows in use", "on");
      return;
    }
    postponed.delete(id);
    const next = new DOMParser().parseFromString(`<section>${html}</section>`, "text/html").body.firstChild;
    morphChildren(part, next);
    showTimes(part);
    prepare(part);
    setStatus("Live", "on");
  };

  // Opens a stream while the page is visible, and again after a failure.
  const follow = (url, handlers) => {
    let source, retry;
    const open = () => {
      clearTimeout(retry);
      if (source || document.hidden) return;
      source = new EventSource(url);
      source.addEventListener("open", () => setStatus("Live", "on"));
      for (const [name, handle] of Object.entries(handlers)) {
        source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
      }
      source.addEventListener("login", () => location.reload());
      source.addEventListener("problem", (event) => setStatus(JSON.parse(event.data).detail, "off"));
      source.onerror = () => {
        setStatus("Not connected. Trying again …", "off");
        // A browser gives up if the server responds with an error.
        if (source && source.readyState === EventSource.CLOSED) {
          close();
          retry = setTimeout(open, 5000);
        }
      };
    };
    const close = () => {
      clearTimeout(retry);
      if (source) source.close();
      source = undefined;
    };
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        close();
        setStatus("Paused while hidden", "");
      } else {
        open();
      }
    });
    addEventListener("pagehide", close);
    addEventListener("pageshow", open);
    open();
  };

  // ---- Events

  const MAX_ROWS = 200;
  let leftOut = 0, isEmpty = true;
  const addRows = (body) => ({ rows, left_out }) => {
    const next = new DOMParser().parseFromString(`<table><tbody>${rows}</tbody></table>`, "text/html");
    if (isEmpty) body.replaceChildren();
    isEmpty = false;
    showTimes(next);
    for (const row of all("tr", next)) body.prepend(row);
    while (body.rows.length > MAX_ROWS) body.lastElementChild.remove();
    leftOut += left_out;
    const missed = document.getElementById("events-missed");
    if (leftOut && missed) missed.textContent = `${leftOut.toLocaleString("en")} more are not shown.`;
  };

  // ---- Selecting rows

  const prepare = (root) => {
    for (const box of all("[data-select-all]", root)) box.hidden = false;
    for (const form of all("form.jobs", root)) countSelected(form);
  };
  const countSelected = (form) => {
    const boxes = all("input[name=id]", form);
    const selected = boxes.filter((box) => box.checked).length;
    for (const label of all("[data-selected]", form)) label.textContent = selected ? `(${selected})` : "";
    for (const box of all("[data-select-all]", form)) {
      box.checked = selected > 0 && selected === boxes.length;
      box.indeterminate = selected > 0 && selected < boxes.length;
    }
  };
  document.addEventListener("change", ({ target }) => {
    const form = target.closest("form.jobs");
    if (!form) return;
    if ("selectAll" in target.dataset) {
      for (const box of all("input[name=id]", form)) box.checked = target.checked;
    }
    countSelected(form);
  });

  // ---- Keys

  const places = { o: "./", d: "dead", w: "workers", s: "schedules", p: "push", e: "events" };
  let wentAt = 0;
  document.addEventListener("keydown", (event) => {
    const isField = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.nodeName);
    if (event.key === "Escape" && isField) event.target.blur();
    if (isField || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      document.getElementById("search")?.focus();
      event.preventDefault();
    } else if (event.key === "?") {
      location.href = "help";
    } else if (event.key === "g") {
      wentAt = Date.now();
    } else if (Date.now() - wentAt < 1500 && places[event.key]) {
      location.href = places[event.key];
    }
  });

  // ---- Start

  showTimes();
  const shownIn = document.getElementById("zone");
  if (shownIn) shownIn.textContent = `Times in ${zone}`;
  setInterval(() => {
    showTimes();
    for (const [id, html] of [...postponed]) update({ id, html });
  }, 1000);
  prepare(document);
  if (main?.dataset.stream) follow(main.dataset.stream, { part: update });
  const events = document.querySelector("[data-events]");
  if (events) follow(events.dataset.events, { rows: addRows(events) });
  const next = document.querySelector("form[data-submit]");
  if (next) next.submit();
})();
