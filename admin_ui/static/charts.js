// Draws the charts of a page: <div class="chart" data-trend="URL" data-series="depth:* slots" data-title="…" data-unit="s">.
// A series is a key of the URL's JSON (admin_ui/charting.py); `name:*` stands for one of each tier. Charts of one URL share
// one request, again whenever a new point can be there. Without a point the chart says so.
"use strict";
(() => {
  const charts = [...document.querySelectorAll(".chart[data-trend]")];
  if (!charts.length) return;
  const every = { 5: 5_000, 120: 60_000, 1800: 300_000 }; // step in s → ms
  const dashes = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
  const drawn = new Map(); // chart → { plot, data, keys }

  // --- numbers -----------------------------------------------------------------------------------------------------
  const plain = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 3, notation: "compact" });
  const seconds = (s) => {
    if (s === 0) return "0";
    if (s < 1) return `${Math.round(s * 1000)} ms`;
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (s >= size) return `${plain.format(s / size)} ${unit}`;
    return `${plain.format(s)} s`;
  };
  const words = { s: seconds, "%": (x) => `${Math.round(100 * x)} %` };
  const times = [0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800];
  const write = (chart, x) => (x == null ? "–" : (words[chart.dataset.unit] ?? plain.format)(x));

  // --- one chart ---------------------------------------------------------------------------------------------------
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const lines = () => ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5"].map(colour);
  const keysOf = (chart, { series, tiers }) =>
    chart.dataset.series.split(" ").flatMap((key) => key.endsWith(":*") ? tiers.map((tier) => key.slice(0, -1) + tier) : key in series ? [key] : []);
  const label = (key) => ({ came: "in", ended: "out", busy: "in use", slots: "capacity", gamma: "γ", replicas: "backends wanted" })[key] ?? key.replace(/^.*:/, "");
  const clock = (span) => (_, ticks) =>
    ticks.map((s) => new Date(1000 * s).toLocaleString(undefined, span > 172_800 ? { month: "numeric", day: "numeric" } : { hour: "2-digit", minute: "2-digit", hour12: false }));

  const options = (chart, keys, data) => {
    const text = colour("--muted"), grid = { stroke: colour("--soft"), width: 1 }, axis = { stroke: text, grid, ticks: grid, font: "11px system-ui, sans-serif" };
    const stamp = (s) => (s == null ? "" : new Date(1000 * s).toLocaleString(undefined, { month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false }));
    return {
      width: Math.max(200, chart.clientWidth), height: 190, ms: 1e-3, padding: [8, 8, 0, 0],
      cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      legend: { live: true },
      hooks: { setCursor: [(plot) => { if (plot.cursor.idx == null) showNewest(plot); }] },
      scales: { x: { time: true, range: () => [drawn.get(chart)?.data.from ?? data.from, drawn.get(chart)?.data.to ?? data.to] }, y: { range: (_, __, most) => [0, Math.max(most * 1.08, chart.dataset.unit === "%" ? 1 : 0.001)] } },
      axes: [
        { ...axis, values: clock(data.to - data.from), space: 60 },
        { ...axis, size: 62, values: (_, ticks) => ticks.map((x) => write(chart, x)), ...(chart.dataset.unit === "s" ? { incrs: times } : {}) },
      ],
      series: [
        { label: "at", value: (_, s) => stamp(s) },
        ...keys.map((key, n) => ({
          label: label(key), stroke: lines()[n % 5], width: 1.6, dash: dashes[n % 4], points: { show: false },
          spanGaps: false, value: (_, x) => write(chart, x),
        })),
      ],
    };
  };

  const showNewest = (plot) => plot.setLegend({ idx: plot.data[0].length - 1 }); // while nobody points at a moment

  const describe = (chart, keys, data) => {
    const newest = keys.map((key) => `${label(key)} ${write(chart, data.series[key].findLast((x) => x != null))}`);
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", `${chart.dataset.title}, newest: ${newest.join(", ")}`);
  };

  const draw = (chart, data, again = false) => {
    const keys = keysOf(chart, data);
    const known = drawn.get(chart);
    const values = [data.at, ...keys.map((key) => data.series[key])];
    if (!data.at.length) {
      chart.classList.add("is-empty");
      chart.textContent = "No history yet. A dispatcher that observes this pool writes a point every 5 s.";
      return;
    }
    describe(chart, keys, data);
    if (known && !again && known.keys.join() === keys.join()) {
      known.data = data;
      known.plot.setData(values);
      if (known.plot.cursor.idx == null) showNewest(known.plot);
      return;
    }
    known?.plot.destroy();
    chart.classList.remove("is-empty");
    chart.textContent = "";
    const plot = new uPlot(options(chart, keys, data), values, chart);
    drawn.set(chart, { data, keys, plot });
    showNewest(plot);
  };

  // --- all of them -------------------------------------------------------------------------------------------------
  const byUrl = Map.groupBy ? Map.groupBy(charts, (chart) => chart.dataset.trend) : charts.reduce((map, chart) => map.set(chart.dataset.trend, [...(map.get(chart.dataset.trend) ?? []), chart]), new Map());
  const isOff = () => document.hidden || localStorage.getItem("fairlane-live") === "off";

  const follow = async (url, own) => {
    let pause = 5_000, first = true;
    for (;;) {
      if (first || !isOff()) {
        try {
          const answer = await fetch(url, { headers: { Accept: "application/json" }, credentials: "same-origin" });
          if (answer.ok) {
            const data = await answer.json();
            pause = every[data.step] ?? 5_000;
            first = false;
            for (const chart of own) draw(chart, data);
          } else if (answer.status === 401 || answer.status === 404) return;
        } catch { /* the page says so itself: app.js; the lines stay */ }
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  };
  for (const [url, own] of byUrl) follow(url, own);

  const again = () => { for (const [chart, { data }] of drawn) draw(chart, data, true); };
  document.addEventListener("fairlane:theme", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let waiting = 0;
  new ResizeObserver(() => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => {
      for (const [chart, { plot }] of drawn) if (chart.clientWidth && chart.clientWidth !== plot.width) plot.setSize({ width: chart.clientWidth, height: 190 });
    });
  }).observe(document.body);
})();
