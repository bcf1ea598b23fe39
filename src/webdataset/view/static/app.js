"use strict";
// The page of `wl view`. Whatever comes from the data is put into the page as text, never as markup.

const TABS = [["samples", "Samples"], ["statistics", "Statistics"], ["shards", "Shards"], ["problems", "Problems"],
              ["plan", "Plan"], ["live", "Live"]];
const PAGE = 60;
const main = document.getElementById("main");
const state = { facts: null, tile: Number(remembered("tile", 168)), numbers: [], query: "", start: 0, view: 0, timers: [] };

// -- small things ------------------------------------------------------------------------------------

function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, run] of Object.entries(value)) node.addEventListener(event, run);
    else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else if (name in node && name !== "list" && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function remembered(name, otherwise) {
  try { return localStorage.getItem(`wl-view-${name}`) ?? otherwise; } catch { return otherwise; }
}

function remember(name, value) {
  try { localStorage.setItem(`wl-view-${name}`, value); } catch { /* a private window keeps nothing */ }
}

function address(path, words) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(words || {})) if (value !== "" && value !== null) asked.set(name, value);
  const text = asked.toString();
  return text ? `${path}?${text}` : path;
}

async function ask(path, words) {
  let answer;
  try {
    answer = await fetch(address(path, words), { cache: "no-store" });
  } catch {
    throw new Error("the view has ended: start `wl view` again");
  }
  let value = null;
  try { value = await answer.json(); } catch { /* not JSON */ }
  if (!answer.ok) throw new Error((value && value.error) || `${answer.status} ${answer.statusText}`);
  return value;
}

const count = (n) => Number(n).toLocaleString("en-US");
const many = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

function bytes(n) {
  if (n < 1000) return n === 1 ? "1 byte" : `${Math.round(n)} bytes`;
  for (const unit of ["kB", "MB", "GB", "TB"]) { n /= 1000; if (n < 1000 || unit === "TB") return `${n.toFixed(1)} ${unit}`; }
}

function short(x) {
  if (Number.isInteger(x) && Math.abs(x) < 1e15) return count(x);
  return Math.abs(x) >= 1e5 || (x !== 0 && Math.abs(x) < 1e-3) ? x.toExponential(2) : String(Number(x.toPrecision(4)));
}

function duration(seconds) {
  if (seconds < 60) return `${short(Math.round(seconds * 100) / 100)} s`;
  const whole = Math.round(seconds), rest = `${String(Math.floor(whole / 60) % 60).padStart(2, "0")}:${String(whole % 60).padStart(2, "0")}`;
  return whole < 3600 ? rest : `${Math.floor(whole / 3600)}:${rest}`;
}

function age(then) {
  const seconds = Date.now() / 1000 - then;
  for (const [unit, size] of [["year", 31557600], ["month", 2629800], ["day", 86400], ["hour", 3600], ["minute", 60]])
    if (seconds >= size) return `${many(Math.floor(seconds / size), unit)} ago`;
  return "just now";
}

const hue = (n) => `hsl(${(n * 222.5) % 360} 62% ${n % 2 ? 48 : 60}%)`;
const named = (field, kind) => (kind === "leaf" || /^[A-Za-z]\w*$/.test(field) ? field : `_[${JSON.stringify(field)}]`);
const fieldWord = (field) => (/^[A-Za-z]\w*$/.test(field) ? field : JSON.stringify(field));

function say(text) {
  const notice = document.getElementById("notice");
  notice.textContent = text || "";
  notice.hidden = !text;
}

function later(milliseconds, run) { state.timers.push(setTimeout(run, milliseconds)); }

function show(...nodes) { main.replaceChildren(...nodes); }

function empty(title, text, ...more) { return h("div", { class: "empty" }, h("h2", {}, title), h("p", {}, text), ...more); }

function progress(done, total, text) {
  return h("div", {}, h("div", { class: "soft", role: "status" }, text),
    h("div", { class: "progress" }, h("i", { style: { width: `${total ? (100 * done) / total : 0}%` } })));
}

// -- where we are: everything is in the address, so that going back works -----------------------------------

function where() {
  const [path, words] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path || (state.facts && state.facts.mode === "live" ? "live" : "samples"), words: new URLSearchParams(words || "") };
}

function go(path, words) { location.hash = `#/${address(path, words)}`; }

async function route() {
  state.timers.splice(0).forEach(clearTimeout);
  const view = ++state.view;
  const { path, words } = where();
  say("");
  for (const tab of document.querySelectorAll("#tabs a"))
    if (tab.dataset.path === (path === "sample" ? "samples" : path)) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  const draw = { samples: wall, sample: samplePage, statistics: statisticsPage, shards: shardsPage, problems: problemsPage,
                 plan: planPage, live: livePage }[path] || wall;
  try {
    await draw(words, () => view === state.view);
  } catch (error) {
    if (view === state.view) say(error.message);
  }
}

async function refresh() {
  try {
    const before = state.facts, facts = (state.facts = await ask("api/state"));
    if (before && before.mode === "indexing" && facts.mode !== "indexing" && where().path !== "sample" && scrollY < 80) route();
    document.getElementById("title").textContent = facts.title || "wl view";
    document.title = facts.title ? `${facts.title} - wl view` : "wl view";
    const samples = `${count(facts.samples)}${facts.complete ? "" : "+"} samples`;
    const status = document.getElementById("status");
    status.textContent = { live: "", indexed: samples, streamed: `${samples}, streamed`,
      indexing: `${samples}, indexing ${facts.indexed} of ${many(facts.shards, "shard")}` }[facts.mode];
    status.title = facts.errors.join("\n");
    const tab = document.querySelector('#tabs a[data-path="live"]');
    tab.textContent = facts.live ? `Live (${facts.live})` : "Live";
    const problems = document.querySelector('#tabs a[data-path="problems"]');
    problems.textContent = facts.problems ? `Problems (${count(facts.problems)})` : "Problems";
    setTimeout(refresh, facts.mode === "indexing" ? 700 : 4000);
  } catch (error) {
    document.getElementById("status").textContent = "ended";
    say(error.message);
  }
}

// -- pictures ------------------------------------------------------------------------------------------

function pictureOf(number, field, size, alt, item) {
  const source = address("picture", { n: number, field, size, item: item || "" });
  const image = h("img", { src: source, alt, loading: "lazy", decoding: "async" });
  image.addEventListener("error", async () => {
    let reason = "the picture cannot be shown";
    try { await ask(source); } catch (error) { reason = error.message; }
    image.replaceWith(h("div", { class: "broken", role: "img", "aria-label": `${alt}: ${reason}` }, h("b", {}, "⚠"), h("span", {}, reason)));
  });
  return image;
}

// -- the wall -------------------------------------------------------------------------------------------

async function wall(words, current) {
  const query = words.get("q") || "", start = Number(words.get("start") || 0);
  Object.assign(state, { query, start });
  const told = h("div", { class: "told", role: "status" });
  const grid = h("div", { class: "wall" });
  const pager = h("div", { class: "pager" });
  show(searchTools(query), told, grid, pager);
  setTile(state.tile);
  const cards = [];
  let next = start, failed = 0, why = "", known = 0, complete = false;
  told.textContent = query ? "searching ..." : "loading ...";
  while (next !== null && cards.length < PAGE) {
    const found = await ask("api/samples", { start: next, count: PAGE - cards.length, q: query });
    if (!current()) return;
    for (const card of found.cards) { cards.push(card); grid.append(tile(card)); }
    ({ next, known, complete } = found);
    failed += found.failed;
    why = why || found.why;
    if (query) told.textContent = `${many(cards.length, "match").replace("matchs", "matches")} in samples ${count(start)} to ${count(next === null ? known : next)}`;
    if (!query) break;
  }
  state.numbers = cards.map((card) => card.number);
  if (failed) told.textContent += `; ${many(failed, "sample")} could not be decided (${why})`;
  if (!query) told.textContent = cards.length ? `samples ${count(start)} to ${count(start + cards.length - 1)} of ${count(known)}${complete ? "" : "+"}` : "";
  if (!cards.length) grid.replaceWith(query ? empty("Nothing found", "No sample from here on matches.") : empty("No samples", "There is nothing in these shards from here on."));
  drawPager(pager, { query, start, next, known, complete });
  drawTroubles(told, !cards.length);
  const opened = grid.querySelector(`[data-number="${CSS.escape(String(state.opened))}"]`);
  (opened || main).focus({ preventScroll: !opened });
}

async function drawTroubles(place, open) {
  const { errors, mode } = await ask("api/state");
  if (!errors.length) return;
  const title = mode === "streamed" && errors.length === 1 ? "read as a stream, without an index" : many(errors.length, "note").concat(" about these shards");
  place.after(h("details", { class: "troubles", open }, h("summary", {}, title), h("ul", {}, errors.map((error) => h("li", {}, error)))));
}

function searchTools(query) {
  const input = h("input", { id: "search", type: "search", value: query, autocomplete: "off", spellcheck: "false",
    placeholder: "Part of a key, or a condition: cls == 3 and width(jpg) > 256", "aria-label": "Search by key or condition" });
  input.value = query;
  const form = h("form", { class: "search", role: "search" }, input,
    query && h("button", { class: "button", type: "button", on: { click: () => go("samples", {}) } }, "clear"),
    h("button", { class: "button", type: "submit" }, "search"));
  form.addEventListener("submit", (event) => { event.preventDefault(); go("samples", { q: input.value.trim() }); });
  const size = h("input", { type: "range", min: "96", max: "420", step: "12", "aria-label": "Size of the pictures" });
  size.value = state.tile;
  size.addEventListener("input", () => setTile(Number(size.value)));
  return h("div", { class: "tools" }, form, h("label", { class: "slider" }, "size", size));
}

function setTile(size) {
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
    inside.addEventListener("load", () => { if (inside.naturalWidth <= 64) inside.classList.add("pixel"); });
  } else {
    inside = h("div", { class: "words" }, card.label || card.fields.map((field) => field.name).join(" "));
  }
  const shown = { audio: "♪ sound", video: "▶ video", array: "array" }[kind];
  return h("a", { class: "tile", href: `#/sample?n=${card.number}`, "data-number": String(card.number), title: card.key },
    h("div", { class: "shot" }, inside),
    h("div", { class: "badges" }, card.class && h("span", { class: "badge class", title: "class" }, card.class), shown && h("span", { class: "badge" }, shown),
      card.problems > 0 && h("span", { class: "badge bad", title: "problems" }, `⚠ ${card.problems}`)),
    h("div", { class: "under" }, h("b", {}, card.picture ? card.label || card.key : card.key),
      h("span", {}, card.picture && card.label ? card.key : card.fields.map((field) => field.name).join(" "))));
}

function drawPager(pager, { query, start, next, known, complete }) {
  const to = (place) => go("samples", { q: query, start: place > 0 ? place : "" });
  const button = (text, key, place, possible) => h("button", { class: "button", type: "button", title: key, disabled: !possible, on: { click: () => to(place) } }, text);
  const jump = h("input", { type: "range", min: "0", max: String(Math.max(0, known - 1)), step: "1", "aria-label": "Go to a sample" });
  jump.value = start;
  const shown = h("output", { class: "soft" }, count(start));
  jump.addEventListener("input", () => { shown.textContent = count(jump.value); });
  jump.addEventListener("change", () => to(Number(jump.value)));
  pager.replaceChildren(button("← before", "PageUp", Math.max(0, start - PAGE), start > 0 && !query),
    query && start > 0 && button("first matches", "Home", 0, true), jump, shown,
    h("span", { class: "soft" }, `of ${count(known)}${complete ? "" : "+"}`), button("after →", "PageDown", next, next !== null));
  state.pages = { before: start > 0 && !query ? () => to(Math.max(0, start - PAGE)) : null, after: next !== null ? () => to(next) : null };
}

// -- one sample ---------------------------------------------------------------------------------------------

async function samplePage(words, current) {
  const number = Number(words.get("n") || 0);
  const sample = await ask("api/sample", words.has("key") ? { key: words.get("key") } : { n: number });
  if (!current()) return;
  state.opened = sample.number;
  const place = state.numbers.indexOf(sample.number);
  const before = place > 0 ? state.numbers[place - 1] : sample.number - 1;
  const after = place >= 0 && place + 1 < state.numbers.length ? state.numbers[place + 1] : sample.number + 1;
  state.steps = { before: before >= 0 ? () => go("sample", { n: before }) : null, after: () => go("sample", { n: after }) };
  const step = (text, key, run) => h("button", { class: "button", type: "button", title: key, disabled: !run, on: { click: () => run && run() } }, text);
  const heading = h("div", { class: "heading" },
    h("button", { class: "button", type: "button", title: "Escape", on: { click: back } }, "↑ all"),
    h("div", { class: "grow" }, h("h1", {}, sample.key),
      h("div", { class: "soft" }, `sample ${count(sample.number)} · number ${count(sample.place)} of shard ${count(sample.shard)} · ${bytes(sample.bytes)} · ${sample.url}`)),
    step("← before", "left arrow", state.steps.before), step("after →", "right arrow", state.steps.after));
  const problems = sample.problems.map((one) => h("p", { class: "problem" }, h("b", {}, one.problem), ` ${one.about}${one.detail ? `: ${one.detail}` : ""}${one.member ? ` (${one.member})` : ""}`));
  const rest = sample.fields.filter((field) => field.name !== sample.picture || !["image", "array"].includes(field.kind));
  const cards = h("div", { class: "fields" }, sample.fields.map((field) => fieldCard(sample, field)));
  const stage = rest.length < sample.fields.length ? stageOf(sample) : null;
  show(heading, ...problems, h("div", { class: stage ? "sample" : "sample single" }, stage, cards));
  main.focus({ preventScroll: true });
}

function back() { go("samples", { q: state.query, start: state.start || "" }); }

function stageOf(sample) {
  const picture = pictureOf(sample.number, sample.picture, 1600, `${sample.picture} of ${sample.key}`);
  picture.loading = "eager";
  picture.addEventListener("load", () => {
    if (picture.naturalWidth >= 400 || picture.naturalHeight >= 400) return;
    const scale = Math.max(1, Math.floor(Math.min(640 / picture.naturalWidth, 480 / picture.naturalHeight)));
    picture.style.setProperty("width", `${picture.naturalWidth * scale}px`);
    picture.classList.add("small");
  });
  const frame = h("div", { class: "frame" }, picture);
  const stage = h("div", { class: "stage" }, frame);
  const layers = sample.fields.filter((field) => field.overlay && field.name !== sample.picture && ["image", "array"].includes(field.kind));
  const first = layers.find((field) => field.overlay === "mask") || layers[0];
  const controls = layers.map((field) => {
    const layer = h("img", { class: "layer", alt: `${field.name} in false colours`, src: address("picture", { n: sample.number, field: field.name, size: 1600 }) });
    layer.style.setProperty("opacity", "0.55");
    layer.addEventListener("error", () => layer.remove());
    const box = h("input", { type: "checkbox", checked: field === first });
    layer.hidden = field !== first;
    const strength = h("input", { type: "range", min: "0", max: "100", "aria-label": `how much of ${field.name}` });
    strength.value = 55;
    box.addEventListener("change", () => { layer.hidden = !box.checked; });
    strength.addEventListener("input", () => layer.style.setProperty("opacity", String(strength.value / 100)));
    frame.append(layer);
    return h("label", {}, box, field.name, strength);
  });
  frame.style.setProperty("position", "relative");
  return h("section", { class: "card", "aria-label": "Picture" }, stage, controls.length ? h("div", { class: "layers" }, controls) : null);
}

function fieldCard(sample, field) {
  const facts = h("span", { class: "facts" }, bytes(field.size));
  const body = h("div", {}, h("span", { class: "soft" }, "..."));
  const card = h("section", { class: "card field", "aria-label": `field ${field.name}` },
    h("header", {}, h("h2", {}, field.name), facts,
      h("a", { href: address("download", { n: sample.number, field: field.name }), download: "", title: "Save as a file" }, "save")), body);
  ask("api/field", { n: sample.number, field: field.name }).then((found) => {
    facts.textContent = [factsOf(found), bytes(field.size)].filter(Boolean).join(" · ");
    body.replaceChildren(...contentOf(sample, field, found));
  }).catch((error) => body.replaceChildren(h("p", { class: "problem" }, error.message)));
  return card;
}

function factsOf(found) {
  if (found.sound) return `${found.sound.format}, ${count(found.sound.rate)} Hz, ${many(found.sound.channels, "channel")}, ${duration(found.sound.seconds)}`;
  if (found.video) return [`${found.video.width} × ${found.video.height}`, found.video.fps && `${short(found.video.fps)} frames/s`,
    found.video.frames && many(found.video.frames, "frame"), found.video.seconds && duration(found.video.seconds), found.video.codec].filter(Boolean).join(", ");
  if (found.format) return `${found.format} ${found.width} × ${found.height} ${found.mode}`;
  if (found.arrays && found.arrays.length === 1) return arrayText(found.arrays[0]);
  return found.hex !== undefined && !found.error ? "bytes" : "";
}

function arrayText(array) {
  const range = array.min === undefined ? "" : `, ${short(array.min)} to ${short(array.max)}, mean ${short(array.mean)}`;
  return `${array.dtype} ${array.shape.join(" × ") || "scalar"}${range}${array.not_finite ? `, ${many(array.not_finite, "value")} not finite` : ""}`;
}

function contentOf(sample, field, found) {
  const nodes = [];
  if (found.error) nodes.push(h("p", { class: "problem" }, h("b", {}, "⚠ "), found.error));
  if (found.sound) nodes.push(wave(found.sound));
  if (!found.error && field.kind === "audio") nodes.push(player("audio", sample, field));
  if (field.kind === "video") nodes.push(player("video", sample, field));
  if (found.format && field.name !== sample.picture) nodes.push(h("div", { class: "heat" }, pictureOf(sample.number, field.name, 640, `${field.name} of ${sample.key}`)));
  for (const array of found.arrays || []) nodes.push(heat(sample, field, array, found.arrays.length > 1));
  if (found.tree !== undefined) nodes.push(h("ul", { class: "tree mono" }, h("li", {}, treeOf(null, found.tree, 0))));
  if (found.text !== undefined) {
    if (field.kind === "number" || (found.text.length <= 24 && !found.text.includes("\n"))) nodes.push(h("div", { class: "big" }, found.text || "(empty)"));
    else nodes.push(h("pre", { tabindex: "0" }, found.text), found.cut && h("p", { class: "soft" }, "the beginning; save it to see the rest"));
  }
  if (found.hex !== undefined) nodes.push(hexView(sample, field, found));
  return nodes.filter(Boolean);
}

function player(tag, sample, field) {
  const media = h(tag, { controls: true, preload: "metadata", src: address("media", { n: sample.number, field: field.name }), "aria-label": `${field.name} of ${sample.key}` });
  media.addEventListener("error", () => media.replaceWith(h("p", { class: "problem" }, "this browser cannot play it")));
  return media;
}

function wave(sound) {
  const canvas = h("canvas", { width: 1200, height: 220, role: "img", "aria-label": `waveform of ${duration(sound.seconds)}` });
  const pen = canvas.getContext("2d"), scale = 100 / Math.max(sound.peak, 0.05), step = 1200 / sound.shape.length;
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  sound.shape.forEach(([low, high], place) => pen.fillRect(place * step, 110 - high * scale - 0.5, Math.max(1, step - 0.6), (high - low) * scale + 1));
  return canvas;
}

function heat(sample, field, array, several) {
  const picture = array.shape.length ? pictureOf(sample.number, field.name, 480, `${field.name} ${array.item} as a heat map`, array.item) : null;
  return h("div", {}, several && h("h3", {}, array.item, h("span", { class: "soft" }, ` ${arrayText(array)}`)), picture && h("div", { class: "heat" }, picture),
    array.min !== undefined && h("div", { class: "heat soft" }, short(array.min), h("span", { class: "scale" }), short(array.max)));
}

function treeOf(name, node, depth) {
  const label = name === null ? null : [h("span", { class: "name" }, name), ": "];
  if (node === null || typeof node !== "object") {
    const kind = typeof node === "string" ? "text" : "other";
    return h("span", {}, label, h("span", { class: kind }, typeof node === "string" ? JSON.stringify(node) : String(node)));
  }
  if (node.type !== "dict" && node.type !== "list") {
    const text = node.type === "array" ? arrayText(node) : `${node.text}${node.size ? `... (${many(node.size, "character")})` : ""}`;
    return h("span", {}, label, h("span", { class: "other" }, text));
  }
  const size = node.type === "dict" ? `{${node.size}}` : `[${node.size}]`;
  const items = node.items.map((item, place) => h("li", {}, node.type === "dict" ? treeOf(item[0], item[1], depth + 1) : treeOf(String(place), item, depth + 1)));
  if (node.items.length < node.size) items.push(h("li", { class: "soft" }, `... and ${count(node.size - node.items.length)} more`));
  return h("details", { open: depth < 2 && node.size <= 50 }, h("summary", {}, label, h("span", { class: "other" }, size)), h("ul", {}, items));
}

function hexView(sample, field, found) {
  const lines = [];
  for (let place = 0; place < found.hex.length; place += 32) {
    const pairs = found.hex.slice(place, place + 32).match(/../g) || [];
    const text = pairs.map((pair) => { const code = parseInt(pair, 16); return code > 32 && code < 127 ? String.fromCharCode(code) : "·"; }).join("");
    lines.push(`${(found.start + place / 2).toString(16).padStart(8, "0")}  ${pairs.join(" ").padEnd(47)}  ${text}`);
  }
  const end = found.start + found.hex.length / 2;
  const view = h("div", {}, h("pre", { class: "hex", tabindex: "0" }, lines.join("\n") || "(empty)"));
  const turn = async (start) => { const page = await ask("api/hex", { n: sample.number, field: field.name, start }); view.replaceWith(hexView(sample, field, page)); };
  if (found.start > 0 || end < found.size) view.append(h("div", { class: "pager" },
    h("button", { class: "button", type: "button", disabled: found.start <= 0, on: { click: () => turn(Math.max(0, found.start - 4096)) } }, "← before"),
    h("span", { class: "soft" }, `bytes ${count(found.start)} to ${count(end)} of ${count(found.size)}`),
    h("button", { class: "button", type: "button", disabled: end >= found.size, on: { click: () => turn(end) } }, "after →")));
  return view;
}

// -- statistics ------------------------------------------------------------------------------------------------

async function statisticsPage(_, current) {
  const found = await ask("api/statistics", { start: 1 });
  if (!current()) return;
  if (found.state === "failed") return show(empty("No statistics", found.error));
  if (!found.result) {
    show(progress(found.done, found.total, `looking at samples all over the dataset: ${count(found.done)} of ${count(found.total)}`));
    return later(300, () => current() && statisticsPage(_, current).catch((error) => say(error.message)));
  }
  const result = found.result;
  show(h("div", { class: "heading" }, h("div", { class: "grow" }, h("h1", {}, "Statistics"),
    h("div", { class: "soft" }, `of ${many(result.samples, "sample")} spread over ${count(result.of)}; click a bar to see its samples`))),
    h("div", { class: "chips" }, result.sets.map((set) => h("span", { class: "chip" }, `${set.fields.join(" ") || "no fields"}: ${count(set.samples)}`))),
    h("div", { class: "columns" }, result.fields.map((field) => statisticsCard(field, result.samples))));
}

function statisticsCard(field, samples) {
  const facts = [Object.entries(field.modes || field.dtypes || field.types || {}).map(([kind, n]) => (n === field.samples ? kind : `${kind} (${count(n)})`)).slice(0, 3).join(", "),
    field.shape_range && field.shape_range.join("; "), field.range && `${short(field.range[0])} to ${short(field.range[1])}`, field.bytes && `${bytes(field.bytes.total)} in all`];
  if (field.samples < samples) facts.unshift(`in ${count(field.samples)} of ${count(samples)}`);
  const errors = Object.entries(field.errors || {}).slice(0, 3).map(([text, n]) => h("p", { class: "problem" }, `${count(n)} × ${text}`));
  return h("section", { class: "card" }, h("h2", {}, field.name), h("div", { class: "soft" }, facts.filter(Boolean).join(" · ")), errors,
    field.histograms.filter((one) => one.bars.length > 1).map((one) => histogram(field, one)));
}

function histogram(field, { of, bars, others }) {
  const most = Math.max(...bars.map((bar) => bar.count));
  const look = (bar) => go("samples", { q: conditionOf(field, of, bar, bar === bars[bars.length - 1]) });
  if (of === "values" && bars[0].label !== undefined)
    return h("div", {}, h("h3", {}, "values"), h("div", { class: "classes" }, bars.map((bar) => h("button", { type: "button", title: "show these samples", on: { click: () => look(bar) } },
      h("span", {}, bar.label), h("i", { style: { width: `${(100 * bar.count) / most}%` } }), h("span", {}, count(bar.count))))), others > 0 && h("div", { class: "soft" }, `and ${many(others, "other")}`));
  const unit = of === "bytes" ? bytes : short;
  const text = (bar) => `${unit(bar.from)}${bar.to > bar.from ? ` to ${unit(bar.to)}` : ""}: ${count(bar.count)}`;
  const possible = of !== "mean of values";
  return h("div", {}, h("h3", {}, of), h("div", { class: "bars", role: "group", "aria-label": `histogram of ${of}` }, bars.map((bar) =>
    h("button", { type: "button", title: text(bar), "aria-label": text(bar), disabled: !possible, on: { click: () => look(bar) } }, h("i", { style: { height: `${Math.max(bar.count ? 3 : 0, (100 * bar.count) / most)}%` } })))),
    h("div", { class: "axis" }, h("span", {}, unit(bars[0].from)), h("span", {}, unit(bars[bars.length - 1].to))));
}

function conditionOf(field, of, bar, last) {
  if (bar.label !== undefined) return `${named(field.name, field.kind)} == ${field.kind === "number" ? bar.value : JSON.stringify(bar.value)}`;
  const what = { values: named(field.name, field.kind), length: `len(${named(field.name)})`, bytes: `size(${fieldWord(field.name)})`,
                 width: `width(${fieldWord(field.name)})`, height: `height(${fieldWord(field.name)})` }[of];
  if (bar.from === bar.to) return `${what} == ${bar.from}`;
  return `${bar.from} <= ${what} ${last ? "<=" : "<"} ${bar.to}`;
}

// -- shards -----------------------------------------------------------------------------------------------------

async function shardsPage(words, current) {
  const { shards } = await ask("api/shards");
  if (!current()) return;
  const by = words.get("by") || "order";
  const order = shards.map((shard, place) => ({ ...shard, place }));
  const value = { order: (one) => -one.place, name: (one) => one.name, bytes: (one) => one.bytes || 0, samples: (one) => one.samples || 0, age: (one) => -(one.modified || 0), problems: (one) => one.problems }[by];
  order.sort((one, other) => (value(one) < value(other) ? 1 : value(one) > value(other) ? -1 : one.place - other.place));
  const most = Math.max(1, ...shards.map((one) => one.bytes || 0)), mostSamples = Math.max(1, ...shards.map((one) => one.samples || 0));
  const total = shards.reduce((sum, one) => sum + (one.bytes || 0), 0);
  const tiles = shards.slice(0, 2000).map((one, place) => h("button", { type: "button", class: one.error ? "bad" : "", title: `${one.name}: ${one.samples === undefined ? "?" : count(one.samples)} samples, ${one.bytes === undefined ? "?" : bytes(one.bytes)}${one.error ? `; ${one.error}` : ""}`,
    "aria-label": one.name, style: { width: `${Math.max(10, 120 * Math.sqrt((one.bytes || 0) / most))}px`, opacity: String(0.3 + (0.7 * (one.samples || 0)) / mostSamples) },
    on: { click: () => one.first !== undefined && go("samples", { start: one.first || "" }) } }));
  const head = (key, text, number) => h("th", { class: number ? "n" : "", "aria-sort": by === key ? "descending" : "none" }, h("button", { type: "button", on: { click: () => go("shards", { by: key }) } }, `${text}${by === key ? " ↓" : ""}`));
  show(h("div", { class: "heading" }, h("div", { class: "grow" }, h("h1", {}, many(shards.length, "shard")),
    h("div", { class: "soft" }, `${total ? bytes(total) : ""}; wider is larger, darker has more samples; click one to see its samples`))),
    h("div", { class: "map", role: "group", "aria-label": "map of shards" }, tiles),
    h("div", { class: "card" }, h("table", {}, h("thead", {}, h("tr", {}, head("order", "#", true), head("name", "shard"), head("samples", "samples", true), head("bytes", "size", true), head("age", "age"), head("problems", "problems", true))),
      h("tbody", {}, order.slice(0, 1000).map((one) => h("tr", { class: one.error ? "bad" : "" }, h("td", { class: "n soft" }, count(one.place)),
        h("td", {}, one.first !== undefined ? h("a", { href: `#/${address("samples", { start: one.first || "" })}` }, one.name) : one.name, h("div", { class: "soft" }, one.error || (one.url !== one.name ? one.url : ""))),
        h("td", { class: "n" }, one.samples === undefined ? "" : count(one.samples)), h("td", { class: "n" }, one.bytes === undefined ? "" : bytes(one.bytes), h("i", { class: "meter", style: { width: `${(100 * (one.bytes || 0)) / most}%` } })),
        h("td", {}, one.modified ? age(one.modified) : ""), h("td", { class: "n" }, one.problems || "")))))));
}

// -- problems ---------------------------------------------------------------------------------------------------

async function problemsPage(words, current, start) {
  const from = Number(words.get("from") || 0);
  const found = await ask("api/problems", { start: start ? 1 : "", from });
  if (!current()) return;
  const heading = h("div", { class: "heading" }, h("div", { class: "grow" }, h("h1", {}, "Problems"), h("div", { class: "soft" }, "broken images, incomplete samples, doubled keys, cut archives and more, as `wl lint` finds them")));
  if (found.state === "waiting")
    return show(heading, empty("Not checked yet", "A check reads every shard once and decodes every image.",
      h("button", { class: "button main", type: "button", on: { click: () => problemsPage(words, current, true).catch((error) => say(error.message)) } }, "check all shards")));
  const parts = [heading];
  if (found.state === "running") parts.push(progress(found.done, found.total, `checked ${count(found.done)} of ${many(found.total, "shard")}`));
  if (found.error) parts.push(h("p", { class: "problem" }, found.error));
  if (found.state === "done" && !found.kinds.length) parts.push(empty("No problems", `in ${many(found.total, "shard")}`));
  if (found.kinds.length) {
    parts.push(h("div", { class: "card" }, h("table", {}, h("tbody", {}, found.kinds.map((kind) => h("tr", {}, h("td", { class: "n" }, count(kind.count)), h("td", {}, h("b", {}, kind.problem)), h("td", {}, kind.about)))))));
    parts.push(h("h2", { style: { margin: "20px 0 8px" } }, "Where"), h("div", { class: "card" }, h("table", {}, h("tbody", {}, found.findings.map((one) => h("tr", {}, h("td", {}, h("b", {}, one.problem)),
      h("td", {}, one.number !== undefined ? h("a", { href: `#/sample?n=${one.number}` }, one.key) : one.key || one.member || ""), h("td", {}, one.detail || one.about), h("td", { class: "soft" }, one.shard)))))));
    const to = (place) => go("problems", { from: place || "" });
    if (found.kept > 200) parts.push(h("div", { class: "pager" }, h("button", { class: "button", type: "button", disabled: from <= 0, on: { click: () => to(Math.max(0, from - 200)) } }, "← before"),
      h("span", { class: "soft" }, `${count(from)} to ${count(Math.min(found.kept, from + 200))} of ${count(found.kept)}`), h("button", { class: "button", type: "button", disabled: from + 200 >= found.kept, on: { click: () => to(from + 200) } }, "after →")));
  }
  show(...parts);
  if (found.state === "running") later(600, () => current() && problemsPage(words, current).catch((error) => say(error.message)));
}

// -- the plan of an exact epoch -----------------------------------------------------------------------------------

async function planPage(words, current) {
  const names = { ranks: "4", workers: "2", batch: "16", seed: "0", epoch: "0", shuffle_bytes: "256MiB" };
  const labels = { ranks: "ranks", workers: "workers per rank", batch: "batch per rank", seed: "seed", epoch: "epoch", shuffle_bytes: "shuffle memory" };
  const values = Object.fromEntries(Object.entries(names).map(([name, value]) => [name, words.get(name) || value]));
  const form = h("form", { class: "plan card" }, Object.entries(labels).map(([name, label]) => { const input = h("input", { name, inputmode: name === "shuffle_bytes" ? "text" : "numeric", autocomplete: "off" }); input.value = values[name]; return h("label", {}, label, input); }),
    h("button", { class: "button main", type: "submit" }, "plan"));
  form.addEventListener("submit", (event) => { event.preventDefault(); go("plan", Object.fromEntries(new FormData(form))); });
  const below = h("div", {}, h("p", { class: "soft" }, "planning ..."));
  show(h("div", { class: "heading" }, h("div", { class: "grow" }, h("h1", {}, "Plan of an exact epoch"), h("div", { class: "soft" }, "who gets which sample, and when, with WebDataset(..., exact=True); one colour is one shard"))), form, below);
  let found;
  try { found = await ask("api/plan", { ...values, first: words.get("first") || "" }); } catch (error) { if (current()) below.replaceChildren(h("p", { class: "problem" }, error.message)); return; }
  if (!current()) return;
  const facts = found.facts;
  const fact = (text, label) => h("div", { class: "fact" }, h("b", {}, text), h("span", {}, label));
  const range = (list, unit) => { const low = Math.min(...list), high = Math.max(...list); return unit(low) === unit(high) ? unit(low) : `${unit(low)} to ${unit(high)}`; };
  const head = found.rows.length ? found.rows[0].ranks.slice(0, 16) : [];
  const last = found.rows.length ? found.rows[found.rows.length - 1].step + 1 : 0;
  const turn = (first) => go("plan", { ...values, first: first || "" });
  below.replaceChildren(
    h("div", { class: "facts-grid" }, fact(count(facts.steps), "steps per rank"), fact(count(facts.samples), "samples"), fact(count(facts.repeated), "given twice"), fact(count(facts.dropped), "left out"),
      fact(range(facts.bytes_per_rank, bytes), "read per rank"), fact(bytes(facts.memory_per_rank), "memory per rank"), fact(facts.distance.toFixed(2), "of a perfect shuffle, by distance"), fact(facts.same_shard.toFixed(2), "of a perfect shuffle, by shards")),
    h("div", { class: "card schedule" }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { class: "n" }, "step"), h("th", { class: "n" }, "worker"), head.map((one) => h("th", {}, `rank ${one.rank}`)))),
      h("tbody", {}, found.rows.map((row) => h("tr", {}, h("td", { class: "n soft" }, count(row.step)), h("td", { class: "n soft" }, row.ranks[0].worker), row.ranks.slice(0, 16).map((one) => h("td", {}, h("div", { class: "dots" },
        one.samples.slice(0, 256).map(([number, shard, again]) => h("a", { href: `#/sample?n=${number}`, class: again ? "again" : "", title: `sample ${count(number)} of shard ${shard}${again ? ", once more" : ""}`, "aria-label": `sample ${number}`, style: { background: hue(shard) } }))))))))),
      h("div", { class: "pager" }, h("button", { class: "button", type: "button", disabled: found.first <= 0, on: { click: () => turn(Math.max(0, found.first - found.rows.length)) } }, "← before"), h("span", { class: "soft" }, `steps ${count(found.first)} to ${count(last - 1)} of ${count(facts.steps)}`),
        h("button", { class: "button", type: "button", disabled: last >= facts.steps, on: { click: () => turn(last) } }, "after →"))));
}

// -- running loaders ------------------------------------------------------------------------------------------------

async function livePage(_, current) {
  const { loaders } = await ask("api/live");
  if (!current()) return;
  const heading = h("div", { class: "heading" }, h("div", { class: "grow" }, h("h1", {}, "Running loaders"), h("div", { class: "soft" }, "what they give, and how long training waits for them")));
  show(heading, loaders.length ? h("div", { class: "grid" }, loaders.map(loaderCard))
    : empty("No loader is watched", "Start training with WDS_MONITOR=1 in its environment, or call loader.monitor()."));
  later(1000, () => current() && livePage(_, current).catch((error) => say(error.message)));
}

function loaderCard(one) {
  const stats = one.stats || {}, seconds = Math.max(one.time - one.begun, 0.001);
  const recent = one.history.length ? one.history[one.history.length - 1][1] : one.items / seconds;
  const bad = one.waiting > 0.1;
  const rows = [["passes", count(one.passes)], ["batches", count(one.items)], ["samples", count(one.samples)], stats.bytes_read && ["read", bytes(stats.bytes_read)], stats.shards_read && ["shards", count(stats.shards_read)],
    stats.retries && ["retries", count(stats.retries)], stats.samples_dropped && ["samples left out", count(stats.samples_dropped)], stats.shards_skipped && ["shards skipped", count(stats.shards_skipped)]].filter(Boolean);
  return h("section", { class: "card loader" }, h("h2", {}, one.world > 1 ? `rank ${one.rank} of ${one.world}` : one.title || "loader", h("span", { class: "soft" }, ` ${one.age > 5 ? "not heard of lately" : one.state} · ${one.host} · process ${one.pid}`)),
    h("div", { class: "big" }, `${short(Math.round(recent * 10) / 10)} batches/s`), sparkline(one.history),
    h("div", { class: "soft" }, `${(100 * one.waiting).toFixed(one.waiting < 0.1 ? 1 : 0)} % of the time was spent waiting for data`), h("div", { class: "meter-line" }, h("i", { class: bad ? "bad" : "", style: { width: `${100 * one.waiting}%` } })),
    h("div", { class: "facts-grid" }, rows.map(([label, text]) => h("div", {}, h("b", {}, text), h("div", { class: "soft" }, label)))),
    Object.entries(stats.reasons || {}).slice(0, 5).map(([reason, n]) => h("p", { class: "problem" }, `${count(n)} × ${reason}`)));
}

function sparkline(history) {
  const make = (tag, props) => { const node = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const [name, value] of Object.entries(props)) node.setAttribute(name, value); return node; };
  const svg = make("svg", { viewBox: "0 0 240 80", preserveAspectRatio: "none", role: "img", "aria-label": "batches per second and waiting over time" });
  const most = Math.max(1e-9, ...history.map((entry) => entry[1]));
  const x = (place) => (history.length > 1 ? (240 * place) / (history.length - 1) : 0);
  svg.append(make("polygon", { class: "wait", points: `0,80 ${history.map((entry, place) => `${x(place)},${80 - 76 * entry[2]}`).join(" ")} 240,80` }));
  svg.append(make("polyline", { class: "rate", points: history.map((entry, place) => `${x(place)},${78 - (72 * entry[1]) / most}`).join(" ") }));
  return svg;
}

// -- keys ------------------------------------------------------------------------------------------------------------

const KEYS = [["/", "search"], ["← → ↑ ↓", "move on the wall; before and after on a sample"], ["Enter", "open the sample"], ["Esc", "back to the wall"],
  ["PageUp PageDown", "pages of the wall"], ["+ -", "larger and smaller pictures"], ["1 2 3 4 5 6", "the views, in their order"], ["t", "light or dark"], ["?", "these keys"]];

function showKeys() {
  const dialog = document.getElementById("keys");
  dialog.replaceChildren(h("h1", {}, "Keys"), h("dl", {}, KEYS.map(([key, text]) => [h("dt", {}, key.split(" ").map((one) => [h("kbd", {}, one), " "])), h("dd", {}, text)])),
    h("h2", {}, "Conditions"), h("p", { class: "soft" }, "Fields are names: ", h("code", {}, 'json.score > 0.5 and "dog" in txt'), ". There are len, min, max, abs, sum, int, float, str, lower(), and of fields size(jpg), width(jpg), height(jpg), has(json). ", h("code", {}, '_["caption.txt"]'), " is a field with a dot, ", h("code", {}, "key"), " and ", h("code", {}, "shard"), " are there too."),
    h("form", { method: "dialog" }, h("button", { class: "button main" }, "close")));
  dialog.showModal();
}

function theme() {
  const dark = document.documentElement.dataset.theme !== "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  remember("theme", dark ? "dark" : "light");
}

function moveOnWall(event) {
  const tiles = [...document.querySelectorAll(".tile")], place = tiles.indexOf(document.activeElement);
  if (!tiles.length) return;
  const top = tiles[0].offsetTop, columns = tiles.findIndex((one) => one.offsetTop > top);
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: columns > 0 ? -columns : -tiles.length, ArrowDown: columns > 0 ? columns : tiles.length }[event.key];
  const next = tiles[place < 0 ? 0 : place + step];
  if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); event.preventDefault(); }
}

function onKey(event) {
  const typing = /^(INPUT|TEXTAREA|SELECT|AUDIO|VIDEO)$/.test(document.activeElement.tagName);
  if (event.key === "Escape" && document.activeElement.id === "search") return main.focus();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.getElementById("keys").open) return;
  const { path } = where();
  const onSample = path === "sample";
  if (event.key === "/") { const search = document.getElementById("search"); if (search) { search.focus(); search.select(); } else go("samples", {}); event.preventDefault(); }
  else if (event.key === "?") showKeys();
  else if (event.key === "t") theme();
  else if (event.key === "+" || event.key === "=") setTile(state.tile + 24);
  else if (event.key === "-") setTile(state.tile - 24);
  else if (/^[1-6]$/.test(event.key)) go(TABS[Number(event.key) - 1][0], {});
  else if (event.key === "Escape" && onSample) back();
  else if (onSample && (event.key === "ArrowLeft" || event.key === "k") && state.steps && state.steps.before) state.steps.before();
  else if (onSample && (event.key === "ArrowRight" || event.key === "j") && state.steps) state.steps.after();
  else if (!onSample && event.key.startsWith("Arrow")) moveOnWall(event);
  else if (path === "samples" && state.pages && event.key === "PageDown" && state.pages.after) { state.pages.after(); event.preventDefault(); }
  else if (path === "samples" && state.pages && event.key === "PageUp" && state.pages.before) { state.pages.before(); event.preventDefault(); }
}

// -- begin -------------------------------------------------------------------------------------------------------------

const wanted = remembered("theme", matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.documentElement.dataset.theme = wanted;
document.getElementById("tabs").append(...TABS.map(([path, text]) => h("a", { href: `#/${path}`, "data-path": path }, text)));
document.getElementById("theme").addEventListener("click", theme);
document.getElementById("help").addEventListener("click", showKeys);
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
document.addEventListener("keydown", onKey);
addEventListener("hashchange", route);
refresh().then(route);
