// One sample, with every field by its kind.

import {
  address,
  ask,
  bytes,
  count,
  duration,
  empty,
  go,
  h,
  main,
  many,
  pictureOf,
  short,
  show,
  state,
} from "./parts.js";

export async function samplePage(words, current) {
  const number = Number(words.get("n") || 0);
  const sample = await ask("api/sample", words.has("key") ? { key: words.get("key") } : { n: number });
  if (!current()) return;
  state.opened = sample.number;
  const place = state.numbers.indexOf(sample.number);
  const before = place > 0 ? state.numbers[place - 1] : sample.number - 1;
  const after = place >= 0 && place + 1 < state.numbers.length ? state.numbers[place + 1] : sample.number + 1;
  state.steps = {
    before: before >= 0 ? () => go("sample", { n: before }) : null,
    after: () => go("sample", { n: after }),
  };
  const step = (text, key, run) =>
    h(
      "button",
      { class: "button", type: "button", title: key, disabled: !run, on: { click: () => run && run() } },
      text,
    );
  const heading = h(
    "div",
    { class: "heading" },
    h("button", { class: "button", type: "button", title: "Escape", on: { click: back } }, "↑ all"),
    h(
      "div",
      { class: "grow" },
      h("h1", {}, sample.key),
      h(
        "div",
        { class: "soft" },
        `sample ${count(sample.number)} · number ${count(sample.place)} of shard ${count(sample.shard)} · ${bytes(sample.bytes)} · ${sample.url}`,
      ),
    ),
    step("← before", "left arrow", state.steps.before),
    step("after →", "right arrow", state.steps.after),
  );
  const problems = sample.problems.map((one) =>
    h(
      "p",
      { class: "problem" },
      h("b", {}, one.problem),
      ` ${one.about}${one.detail ? `: ${one.detail}` : ""}${one.member ? ` (${one.member})` : ""}`,
    ),
  );
  const rest = sample.fields.filter(
    (field) => field.name !== sample.picture || !["image", "array"].includes(field.kind),
  );
  const cards = h(
    "div",
    { class: "fields" },
    sample.fields.map((field) => fieldCard(sample, field)),
  );
  const stage = rest.length < sample.fields.length ? stageOf(sample) : null;
  show(heading, ...problems, h("div", { class: stage ? "sample" : "sample single" }, stage, cards));
  main.focus({ preventScroll: true });
}

export function back() {
  go("samples", { q: state.query, start: state.start || "" });
}

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
  const layers = sample.fields.filter(
    (field) => field.overlay && field.name !== sample.picture && ["image", "array"].includes(field.kind),
  );
  const first = layers.find((field) => field.overlay === "mask") || layers[0];
  const controls = layers.map((field) => {
    const layer = h("img", {
      class: "layer",
      alt: `${field.name} in false colours`,
      src: address("picture", { n: sample.number, field: field.name, size: 1600 }),
    });
    layer.style.setProperty("opacity", "0.55");
    layer.addEventListener("error", () => layer.remove());
    const box = h("input", { type: "checkbox", checked: field === first });
    layer.hidden = field !== first;
    const strength = h("input", { type: "range", min: "0", max: "100", "aria-label": `how much of ${field.name}` });
    strength.value = 55;
    box.addEventListener("change", () => {
      layer.hidden = !box.checked;
    });
    strength.addEventListener("input", () => layer.style.setProperty("opacity", String(strength.value / 100)));
    frame.append(layer);
    return h("label", {}, box, field.name, strength);
  });
  frame.style.setProperty("position", "relative");
  return h(
    "section",
    { class: "card", "aria-label": "Picture" },
    stage,
    controls.length ? h("div", { class: "layers" }, controls) : null,
  );
}

function fieldCard(sample, field) {
  const facts = h("span", { class: "facts" }, bytes(field.size));
  const body = h("div", {}, h("span", { class: "soft" }, "..."));
  const card = h(
    "section",
    { class: "card field", "aria-label": `field ${field.name}` },
    h(
      "header",
      {},
      h("h2", {}, field.name),
      facts,
      h(
        "a",
        { href: address("download", { n: sample.number, field: field.name }), download: "", title: "Save as a file" },
        "save",
      ),
    ),
    body,
  );
  ask("api/field", { n: sample.number, field: field.name })
    .then((found) => {
      facts.textContent = [factsOf(found), bytes(field.size)].filter(Boolean).join(" · ");
      body.replaceChildren(...contentOf(sample, field, found));
    })
    .catch((error) => body.replaceChildren(h("p", { class: "problem" }, error.message)));
  return card;
}

function factsOf(found) {
  if (found.sound)
    return `${found.sound.format}, ${count(found.sound.rate)} Hz, ${many(found.sound.channels, "channel")}, ${duration(found.sound.seconds)}`;
  if (found.video)
    return [
      `${found.video.width} × ${found.video.height}`,
      found.video.fps && `${short(found.video.fps)} frames/s`,
      found.video.frames && many(found.video.frames, "frame"),
      found.video.seconds && duration(found.video.seconds),
      found.video.codec,
    ]
      .filter(Boolean)
      .join(", ");
  if (found.format) return `${found.format} ${found.width} × ${found.height} ${found.mode}`;
  if (found.arrays && found.arrays.length === 1) return arrayText(found.arrays[0]);
  return found.hex !== undefined && !found.error ? "bytes" : "";
}

function arrayText(array) {
  const range =
    array.min === undefined ? "" : `, ${short(array.min)} to ${short(array.max)}, mean ${short(array.mean)}`;
  return `${array.dtype} ${array.shape.join(" × ") || "scalar"}${range}${array.not_finite ? `, ${many(array.not_finite, "value")} not finite` : ""}`;
}

function contentOf(sample, field, found) {
  const nodes = [];
  if (found.error) nodes.push(h("p", { class: "problem" }, h("b", {}, "⚠ "), found.error));
  if (found.sound) nodes.push(wave(found.sound));
  if (!found.error && field.kind === "audio") nodes.push(player("audio", sample, field));
  if (field.kind === "video") nodes.push(player("video", sample, field));
  if (found.format && field.name !== sample.picture)
    nodes.push(
      h("div", { class: "heat" }, pictureOf(sample.number, field.name, 640, `${field.name} of ${sample.key}`)),
    );
  for (const array of found.arrays || []) nodes.push(heat(sample, field, array, found.arrays.length > 1));
  if (found.tree !== undefined) nodes.push(h("ul", { class: "tree mono" }, h("li", {}, treeOf(null, found.tree, 0))));
  if (found.text !== undefined) {
    if (field.kind === "number" || (found.text.length <= 24 && !found.text.includes("\n")))
      nodes.push(h("div", { class: "big" }, found.text || "(empty)"));
    else
      nodes.push(
        h("pre", { tabindex: "0" }, found.text),
        found.cut && h("p", { class: "soft" }, "the beginning; save it to see the rest"),
      );
  }
  if (found.hex !== undefined) nodes.push(hexView(sample, field, found));
  return nodes.filter(Boolean);
}

function player(tag, sample, field) {
  const media = h(tag, {
    controls: true,
    preload: "metadata",
    src: address("media", { n: sample.number, field: field.name }),
    "aria-label": `${field.name} of ${sample.key}`,
  });
  media.addEventListener("error", () => media.replaceWith(h("p", { class: "problem" }, "this browser cannot play it")));
  return media;
}

function wave(sound) {
  const canvas = h("canvas", {
    width: 1200,
    height: 220,
    role: "img",
    "aria-label": `waveform of ${duration(sound.seconds)}`,
  });
  const pen = canvas.getContext("2d"),
    scale = 100 / Math.max(sound.peak, 0.05),
    step = 1200 / sound.shape.length;
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  sound.shape.forEach(([low, high], place) =>
    pen.fillRect(place * step, 110 - high * scale - 0.5, Math.max(1, step - 0.6), (high - low) * scale + 1),
  );
  return canvas;
}

function heat(sample, field, array, several) {
  const picture = array.shape.length
    ? pictureOf(sample.number, field.name, 480, `${field.name} ${array.item} as a heat map`, array.item)
    : null;
  return h(
    "div",
    {},
    several && h("h3", {}, array.item, h("span", { class: "soft" }, ` ${arrayText(array)}`)),
    picture && h("div", { class: "heat" }, picture),
    array.min !== undefined &&
      h("div", { class: "heat soft" }, short(array.min), h("span", { class: "scale" }), short(array.max)),
  );
}

function treeOf(name, node, depth) {
  const label = name === null ? null : [h("span", { class: "name" }, name), ": "];
  if (node === null || typeof node !== "object") {
    const kind = typeof node === "string" ? "text" : "other";
    return h(
      "span",
      {},
      label,
      h("span", { class: kind }, typeof node === "string" ? JSON.stringify(node) : String(node)),
    );
  }
  if (node.type !== "dict" && node.type !== "list") {
    const text =
      node.type === "array"
        ? arrayText(node)
        : `${node.text}${node.size ? `... (${many(node.size, "character")})` : ""}`;
    return h("span", {}, label, h("span", { class: "other" }, text));
  }
  const size = node.type === "dict" ? `{${node.size}}` : `[${node.size}]`;
  const items = node.items.map((item, place) =>
    h("li", {}, node.type === "dict" ? treeOf(item[0], item[1], depth + 1) : treeOf(String(place), item, depth + 1)),
  );
  if (node.items.length < node.size)
    items.push(h("li", { class: "soft" }, `... and ${count(node.size - node.items.length)} more`));
  return h(
    "details",
    { open: depth < 2 && node.size <= 50 },
    h("summary", {}, label, h("span", { class: "other" }, size)),
    h("ul", {}, items),
  );
}

function hexView(sample, field, found) {
  const lines = [];
  for (let place = 0; place < found.hex.length; place += 32) {
    const pairs = found.hex.slice(place, place + 32).match(/../g) || [];
    const text = pairs
      .map((pair) => {
        const code = parseInt(pair, 16);
        return code > 32 && code < 127 ? String.fromCharCode(code) : "·";
      })
      .join("");
    lines.push(`${(found.start + place / 2).toString(16).padStart(8, "0")}  ${pairs.join(" ").padEnd(47)}  ${text}`);
  }
  const end = found.start + found.hex.length / 2;
  const view = h("div", {}, h("pre", { class: "hex", tabindex: "0" }, lines.join("\n") || "(empty)"));
  const turn = async (start) => {
    const page = await ask("api/hex", { n: sample.number, field: field.name, start });
    view.replaceWith(hexView(sample, field, page));
  };
  if (found.start > 0 || end < found.size)
    view.append(
      h(
        "div",
        { class: "pager" },
        h(
          "button",
          {
            class: "button",
            type: "button",
            disabled: found.start <= 0,
            on: { click: () => turn(Math.max(0, found.start - 4096)) },
          },
          "← before",
        ),
        h("span", { class: "soft" }, `bytes ${count(found.start)} to ${count(end)} of ${count(found.size)}`),
        h(
          "button",
          { class: "button", type: "button", disabled: end >= found.size, on: { click: () => turn(end) } },
          "after →",
        ),
      ),
    );
  return view;
}
