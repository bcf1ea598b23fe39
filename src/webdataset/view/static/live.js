// Running loaders that are watched.

import { ask, bytes, count, empty, h, heading, later, say, short, show } from "./parts.js";

export async function livePage(_, current) {
  const { loaders } = await ask("api/live");
  if (!current()) return;
  const top = heading("Running loaders", "what they give, and how long training waits for them");
  show(
    top,
    loaders.length
      ? h("div", { class: "grid" }, loaders.map(loaderCard))
      : empty(
          "No loader is watched",
          "Start training with WDS_MONITOR=1 in its environment, or call loader.monitor().",
        ),
  );
  later(1000, () => current() && livePage(_, current).catch((error) => say(error.message)));
}

function loaderCard(one) {
  const stats = one.stats || {},
    seconds = Math.max(one.time - one.begun, 0.001);
  const recent = one.history.length ? one.history[one.history.length - 1][1] : one.items / seconds;
  const bad = one.waiting > 0.1;
  const rows = [
    ["passes", count(one.passes)],
    ["batches", count(one.items)],
    ["samples", count(one.samples)],
    stats.bytes_read && ["read", bytes(stats.bytes_read)],
    stats.shards_read && ["shards", count(stats.shards_read)],
    stats.retries && ["retries", count(stats.retries)],
    stats.samples_dropped && ["samples left out", count(stats.samples_dropped)],
    stats.shards_skipped && ["shards skipped", count(stats.shards_skipped)],
  ].filter(Boolean);
  return h(
    "section",
    { class: "card loader" },
    h(
      "h2",
      {},
      one.world > 1 ? `rank ${one.rank} of ${one.world}` : one.title || "loader",
      h(
        "span",
        { class: "soft" },
        ` ${one.age > 5 ? "not heard of lately" : one.state} · ${one.host} · process ${one.pid}`,
      ),
    ),
    h("div", { class: "big" }, `${short(Math.round(recent * 10) / 10)} batches/s`),
    sparkline(one.history),
    h(
      "div",
      { class: "soft" },
      `${(100 * one.waiting).toFixed(one.waiting < 0.1 ? 1 : 0)} % of the time was spent waiting for data`,
    ),
    h("div", { class: "meter-line" }, h("i", { class: bad ? "bad" : "", style: { width: `${100 * one.waiting}%` } })),
    h(
      "div",
      { class: "facts-grid" },
      rows.map(([label, text]) => h("div", {}, h("b", {}, text), h("div", { class: "soft" }, label))),
    ),
    Object.entries(stats.reasons || {})
      .slice(0, 5)
      .map(([reason, n]) => h("p", { class: "problem" }, `${count(n)} × ${reason}`)),
  );
}

function sparkline(history) {
  const make = (tag, props) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
    return node;
  };
  const svg = make("svg", {
    viewBox: "0 0 240 80",
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": "batches per second and waiting over time",
  });
  const most = Math.max(1e-9, ...history.map((entry) => entry[1]));
  const x = (place) => (history.length > 1 ? (240 * place) / (history.length - 1) : 0);
  svg.append(
    make("polygon", {
      class: "wait",
      points: `0,80 ${history.map((entry, place) => `${x(place)},${80 - 76 * entry[2]}`).join(" ")} 240,80`,
    }),
  );
  svg.append(
    make("polyline", {
      class: "rate",
      points: history.map((entry, place) => `${x(place)},${78 - (72 * entry[1]) / most}`).join(" "),
    }),
  );
  return svg;
}
