// The page works without this. It adds: light and dark, keys, and fresh numbers.
"use strict";
(function () {
  const root = document.documentElement;
  const kept = safely(() => localStorage.getItem("lamina-theme"));
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;

  document.addEventListener("DOMContentLoaded", () => {
    const help = document.getElementById("help");
    on("theme", switchTheme);
    on("keys", () => help.showModal());
    document.addEventListener("keydown", (event) => press(event, help));
    document.addEventListener("click", (event) => {
      for (const open of document.querySelectorAll("details.switch[open]")) if (!open.contains(event.target)) open.open = false;
    });
    follow(document.body.dataset.events);
    for (const job of document.querySelectorAll("[data-job]")) watch(job);
  });

  function on(id, does) {
    const element = document.getElementById(id);
    if (element) element.addEventListener("click", does);
  }

  function safely(read) {
    try { return read(); } catch { return null; } // storage may be forbidden
  }

  function switchTheme() {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    safely(() => localStorage.setItem("lamina-theme", root.dataset.theme));
  }

  // Keys: never while somebody types, and never with a modifier.
  function press(event, help) {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    const does = {
      "?": () => help.showModal(), t: switchTheme, g: () => { location.href = "/?all"; },
      j: () => step(1), k: () => step(-1), n: () => click("a[rel=next]"), p: () => click("a[rel=prev]"),
      "/": () => { const field = document.querySelector("main input:not([type=hidden])"); if (field) field.focus(); },
    }[event.key] || (/^[1-9]$/.test(event.key) ? () => click(`.tabs a[data-key="${event.key}"]`) : null);
    if (!does) return;
    event.preventDefault();
    does();
  }

  function click(selector) {
    const link = document.querySelector(selector);
    if (link) link.click();
  }

  function step(by) {
    const rows = [...document.querySelectorAll("[data-row]")];
    const at = rows.indexOf(document.activeElement);
    const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1)];
    if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
  }

  // Live: the server says that something has changed, and the page asks for itself again.
  function follow(address) {
    if (!address || !window.EventSource) return;
    let version = null, late = false, busy = false;
    const events = new EventSource(address);
    events.onopen = () => say("on", "live");
    events.onerror = () => say("lost", "connection lost");
    events.addEventListener("change", (event) => {
      const told = JSON.parse(event.data).version;
      if (version !== null && told !== version) refresh();
      version = told;
    });
    document.addEventListener("visibilitychange", () => { if (!document.hidden && late) refresh(); });
    window.addEventListener("pagehide", () => events.close());

    async function refresh() {
      late = document.hidden || busy;
      if (late) return;
      busy = true;
      try {
        const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
        if (answer.ok) swap(new DOMParser().parseFromString(await answer.text(), "text/html"));
      } catch { /* the next event comes when the server is there again */ }
      await new Promise((done) => setTimeout(done, 900));
      busy = false;
      if (late) refresh();
    }
  }

  function swap(fresh) {
    for (const old of document.querySelectorAll("[data-live][id]")) {
      const now = fresh.getElementById(old.id);
      if (!now || now.innerHTML === old.innerHTML) continue;
      const active = document.activeElement;
      const held = old.contains(active) ? active.getAttribute("href") : null;
      const frame = old.querySelector(".scroll"), left = frame ? frame.scrollLeft : 0;
      old.replaceChildren(...now.childNodes);
      if (left && old.querySelector(".scroll")) old.querySelector(".scroll").scrollLeft = left;
      if (held) { const same = [...old.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === held); if (same) same.focus({ preventScroll: true }); }
    }
  }

  function say(state, text) {
    const live = document.getElementById("live");
    if (!live) return;
    live.dataset.state = state;
    live.querySelector("span").textContent = text;
  }

  function watch(job) {
    const events = new EventSource(job.dataset.job);
    events.addEventListener("progress", (event) => {
      const told = JSON.parse(event.data);
      job.querySelector("progress").value = told.share;
      if (told.over) { events.close(); location.reload(); }
    });
    events.onerror = () => events.close();
    window.addEventListener("pagehide", () => events.close());
  }
})();
