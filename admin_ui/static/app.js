// What pages do by themselves: refresh, times in the viewer's zone, confirmations in a dialog, keys, light and dark.
// Without JavaScript every page and every act works too; they are links and forms.
"use strict";
(() => {
  const $ = (selector, within = document) => within.querySelector(selector);
  const live = $("#live");
  const dialog = $("#dialog");

  // --- times -------------------------------------------------------------------------------------------------------
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const duration = (ms) => {
    const s = Math.max(0, ms) / 1000;
    if (s < 1) return `${Math.round(s * 1000)} ms`;
    for (const [size, unit] of units) if (s >= size) return `${(s / size).toFixed(1)} ${unit}`;
    return `${s.toFixed(1)} s`;
  };
  const stamp = new Intl.DateTimeFormat(undefined, {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    hour12: false, timeZoneName: "short",
  });
  const localise = (within = document) => {
    for (const time of within.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      time.title = stamp.format(at);
      time.textContent = time.dataset.show === "ago" ? `${duration(Date.now() - at)} ago` : stamp.format(at);
    }
  };

  // --- refresh -----------------------------------------------------------------------------------------------------
  let on = localStorage.getItem("fairlane-live") !== "off";
  const liveSwitch = $("#live-switch");
  const showLive = () => liveSwitch?.setAttribute("aria-pressed", String(on));
  const toggleLive = () => {
    on = !on;
    localStorage.setItem("fairlane-live", on ? "on" : "off");
    showLive();
  };
  const isBusy = () => {
    if (dialog?.open) return true;
    const at = document.activeElement;
    const typing = at && live.contains(at) && at.matches("input, select, textarea");
    const selected = String(document.getSelection() ?? "");
    return Boolean(typing || selected);
  };
  // What somebody has unfolded stays so.
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => !(name === "open" && node.matches("details"));
  const away = $("#away");
  const notCurrent = (why) => {
    away.hidden = !why;
    if (why) $("#away-why").textContent = why;
  };
  if (live?.hasAttribute("hx-get")) {
    const refresh = () => {
      if (on && !document.hidden && !isBusy()) htmx.trigger(live, "refresh");
    };
    // What moves on quickly says so itself, as long as it does.
    const pace = () => Number(($("[data-refresh-ms]", live) ?? document.body).dataset.refreshMs);
    const next = () => setTimeout(() => { refresh(); next(); }, pace());
    next();
    document.addEventListener("visibilitychange", refresh);
    dialog?.addEventListener("close", refresh); // meanwhile it stood still
  }
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.target.id === "live") notCurrent("");
    if (event.detail.target?.closest(".act-place")) event.detail.shouldSwap = true; // what went wrong is said where it was asked
  });
  document.addEventListener("htmx:responseError", (event) => {
    notCurrent(event.detail.xhr.status === 503 ? "Redis is away." : `the page answered ${event.detail.xhr.status}.`);
  });
  document.addEventListener("htmx:sendError", () => notCurrent("this page's server does not answer."));
  document.addEventListener("htmx:afterSettle", (event) => localise(event.target));
  showLive();
  liveSwitch?.addEventListener("click", toggleLive);

  const retry = $("[data-retry]");
  if (retry) setTimeout(() => location.reload(), Number(retry.dataset.retry));

  // --- confirmations -----------------------------------------------------------------------------------------------
  const open = async (href) => {
    const body = $("#dialog-body");
    body.className = "act-place";
    body.textContent = "Looking …";
    if (!dialog.open) dialog.showModal();
    await htmx.ajax("GET", href, { target: body, swap: "innerHTML" });
    ($("input:not([type=hidden]), select, textarea, button", body) ?? dialog).focus();
  };
  document.addEventListener("click", (event) => {
    const plain = !(event.ctrlKey || event.metaKey || event.shiftKey || event.button);
    const opener = event.target.closest("a[data-dialog]");
    if (opener && plain) {
      event.preventDefault();
      open(opener.href);
      return;
    }
    if (event.target.closest("[data-close]") && dialog?.open) {
      event.preventDefault();
      dialog.close();
    }
    if (event.target === dialog) dialog.close();
  });
  dialog?.addEventListener("close", () => $("#dialog-body").replaceChildren());

  // --- filters: what is empty is not in the address -------------------------------------------------------------------
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-prune]")) return;
    for (const field of event.target.elements) if (field.name && field.value === "") field.disabled = true;
    setTimeout(() => { for (const field of event.target.elements) field.disabled = false; });
  });

  // --- keys --------------------------------------------------------------------------------------------------------
  let afterG = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea") || dialog?.open) return;
    if (event.key === "g") { afterG = Date.now(); return; }
    if (Date.now() - afterG < 1500) {
      const place = $(`.places a[data-key="${CSS.escape(event.key)}"]`);
      if (place) place.click();
      afterG = 0;
      return;
    }
    if (event.key === "/") { const field = $(".filters input"); if (field) { event.preventDefault(); field.focus(); } }
    if (event.key === "l") toggleLive();
    if (event.key === "d") toggleTheme();
  });

  // --- light and dark ----------------------------------------------------------------------------------------------
  const toggleTheme = () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("fairlane-theme", root.dataset.theme);
    document.dispatchEvent(new CustomEvent("fairlane:theme"));
  };
  $("#theme-switch")?.addEventListener("click", toggleTheme);

  localise();
})();
