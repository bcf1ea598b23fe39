// The wall of samples, search, and pages.

import { ask, count, empty, go, h, main, many, pictureOf, remember, show, state } from "./parts.js";

const PAGE = 60;

export async function wall(words, current) {
  const query = words.get("q") || "",
    start = Number(words.get("start") || 0);
  Object.assign(state, { query, start });
  const told = h("div", { class: "told", role: "status" });
  const grid = h("div", { class: "wall" });
  const pager = h("div", { class: "pager" });
  show(searchTools(query), told, grid, pager);
  setTile(state.tile);
  const cards = [];
  let next = start,
    failed = 0,
    why = "",
    known = 0,
    complete = false;
  told.textContent = query ? "searching ..." : "loading ...";
  while (next !== null && cards.length < PAGE) {
    const found = await ask("api/samples", { start: next, count: PAGE - cards.length, q: query });
    if (!current()) return;
    for (const card of found.cards) {
      cards.push(card);
      grid.append(tile(card));
    }
    ({ next, known, complete } = found);
    failed += found.failed;
    why = why || found.why;
    if (query)
      told.textContent = `${many(cards.length, "match").replace("matchs", "matches")} in samples ${count(start)} to ${count(next === null ? known : next)}`;
    if (!query) break;
  }
  state.numbers = cards.map((card) => card.number);
  if (failed) told.textContent += `; ${many(failed, "sample")} could not be decided (${why})`;
  if (!query)
    told.textContent = cards.length
      ? `samples ${count(start)} to ${count(start + cards.length - 1)} of ${count(known)}${complete ? "" : "+"}`
      : "";
  if (!cards.length)
    grid.replaceWith(
      query
        ? empty("Nothing found", "No sample from here on matches.")
        : empty("No samples", "There is nothing in these shards from here on."),
    );
  drawPager(pager, { query, start, next, known, complete });
  drawTroubles(told, !cards.length);
  const opened = grid.querySelector(`[data-number="${CSS.escape(String(state.opened))}"]`);
  (opened || main).focus({ preventScroll: !opened });
}

async function drawTroubles(place, open) {
  const { errors, mode } = await ask("api/state");
  if (!errors.length) return;
  const title =
    mode === "streamed" && errors.length === 1
      ? "read as a stream, without an index"
      : many(errors.length, "note").concat(" about these shards");
  place.after(
    h(
      "details",
      { class: "troubles", open },
      h("summary", {}, title),
      h(
        "ul",
        {},
        errors.map((error) => h("li", {}, error)),
      ),
    ),
  );
}

function searchTools(query) {
  const input = h("input", {
    id: "search",
    type: "search",
    value: query,
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "Part of a key, or a condition: cls == 3 and width(jpg) > 256",
    "aria-label": "Search by key or condition",
  });
  input.value = query;
  const form = h(
    "form",
    { class: "search", role: "search" },
    input,
    query && h("button", { class: "button", type: "button", on: { click: () => go("samples", {}) } }, "clear"),
    h("button", { class: "button", type: "submit" }, "search"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    go("samples", { q: input.value.trim() });
  });
  const size = h("input", { type: "range", min: "96", max: "420", step: "12", "aria-label": "Size of the pictures" });
  size.value = state.tile;
  size.addEventListener("input", () => setTile(Number(size.value)));
  return h("div", { class: "tools" }, form, h("label", { class: "slider" }, "size", size));
}

export function setTile(size) {
  state.tile = Math.max(96, Math.min(420, size));
  document.documentElement.style.setProperty("--tile", `${state.tile}px`);
  remember("tile", state.tile);
}

function tile(card) {
  const kind = (card.fields.find((field) => field.name === card.picture) || {}).kind;
  let inside;
  if (card.picture) {
    inside = pictureOf(card.number, card.picture, state.tile > 250 ? 512 : 320, `${card.picture} of ${card.key}`);
    if (kind !== "image" && kind !== "video") inside.classList.add("whole");
    inside.addEventListener("load", () => {
      if (inside.naturalWidth <= 64) inside.classList.add("pixel");
    });
  } else {
    inside = h("div", { class: "words" }, card.label || card.fields.map((field) => field.name).join(" "));
  }
  const shown = { audio: "♪ sound", video: "▶ video", array: "array" }[kind];
  return h(
    "a",
    { class: "tile", href: `#/sample?n=${card.number}`, "data-number": String(card.number), title: card.key },
    h("div", { class: "shot" }, inside),
    h(
      "div",
      { class: "badges" },
      card.class && h("span", { class: "badge class", title: "class" }, card.class),
      shown && h("span", { class: "badge" }, shown),
      card.problems > 0 && h("span", { class: "badge bad", title: "problems" }, `⚠ ${card.problems}`),
    ),
    h(
      "div",
      { class: "under" },
      h("b", {}, card.picture ? card.label || card.key : card.key),
      h("span", {}, card.picture && card.label ? card.key : card.fields.map((field) => field.name).join(" ")),
    ),
  );
}

function drawPager(pager, { query, start, next, known, complete }) {
  const to = (place) => go("samples", { q: query, start: place > 0 ? place : "" });
  const button = (text, key, place, possible) =>
    h(
      "button",
      { class: "button", type: "button", title: key, disabled: !possible, on: { click: () => to(place) } },
      text,
    );
  const jump = h("input", {
    type: "range",
    min: "0",
    max: String(Math.max(0, known - 1)),
    step: "1",
    "aria-label": "Go to a sample",
  });
  jump.value = start;
  const shown = h("output", { class: "soft" }, count(start));
  jump.addEventListener("input", () => {
    shown.textContent = count(jump.value);
  });
  jump.addEventListener("change", () => to(Number(jump.value)));
  pager.replaceChildren(
    button("← before", "PageUp", Math.max(0, start - PAGE), start > 0 && !query),
    query && start > 0 && button("first matches", "Home", 0, true),
    jump,
    shown,
    h("span", { class: "soft" }, `of ${count(known)}${complete ? "" : "+"}`),
    button("after →", "PageDown", next, next !== null),
  );
  state.pages = {
    before: start > 0 && !query ? () => to(Math.max(0, start - PAGE)) : null,
    after: next !== null ? () => to(next) : null,
  };
}
