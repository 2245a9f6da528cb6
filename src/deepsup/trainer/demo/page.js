// The page: what a person draws or picks -> what each layer of each net answers, and which of its maps speak for it.
"use strict";

const SIDE = 280; // the canvas in the units of strokes
const KEPT = 0.3; // the share of a layer's activations that its maps show, as in the paper's Fig. 3
const MOST_MAPS = 48;
const UNCALIBRATED = 0.9;
const CIVIDIS = [[0, 34, 78], [65, 77, 107], [124, 123, 120], [187, 173, 108], [255, 234, 70]];

const data = JSON.parse(document.getElementById("data").textContent);
const [channels, height, width] = data.shape;
const byId = (id) => document.getElementById(id);
const state = { strokes: [], picture: null, pixels: null, stroke: null, pen: 20, cursor: null, down: false, net: 0, layer: 0, wanted: "" };

/** Make an element; text is always text, whatever is in it. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

const percent = (share) => `${share >= 0.995 && share < 0.9995 ? (100 * share).toFixed(1) : Math.round(100 * share)} %`;

function probabilities(scores, temperature) {
  const most = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = Array.from(scores, (score) => Math.exp((score - most) / temperature));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

const highest = (values) => values.reduce((best, value, place) => (value > values[best] ? place : best), 0);

// --- the nets ---------------------------------------------------------------------------------------------------------

/** A net at its epochs; the weights of an epoch are unpacked when they are first wanted, after those of the next one. */
class Net {
  constructor(about) {
    this.about = about;
    this.layers = about.layers;
  }

  entryOf(epoch) {
    return this.about.epochs.findLast((each) => each.epoch <= epoch) ?? this.about.epochs[0];
  }

  /** Return the entry of an epoch once its weights are there. */
  load(epoch) {
    const entry = this.entryOf(epoch);
    entry.ready ??= this.unpack(entry);
    return entry.ready;
  }

  async unpack(entry) {
    const next = this.about.epochs[this.about.epochs.indexOf(entry) + 1];
    const later = next && (await this.load(next.epoch));
    entry.weights = await Interpreter.unpacked(entry.entries, entry.text, later?.weights);
    entry.text = "";
    entry.run = Interpreter.compiled(this.about.graph, entry.weights);
    return entry;
  }

  /** Return what every layer answers to pixels [C,H,W]. */
  judge(pixels, epoch) {
    const { run, weights } = this.entryOf(epoch);
    const values = run(Interpreter.tensor([1, ...data.shape], pixels));
    const layers = this.layers.map((layer) => {
      const shares = probabilities(values.get(layer.scores).data, layer.temperature);
      const answer = highest(shares);
      return { layer, scores: values.get(layer.scores).data, shares, answer, sure: shares[answer] };
    });
    const last = layers.at(-1).answer;
    let first = layers.length - 1;
    while (first > 0 && layers[first - 1].answer === last) first--;
    const exit = layers.findIndex(({ layer, sure }) => layer.limit !== undefined && layer.limit !== null && sure > layer.limit);
    return { layers, answer: last, first, exit: exit < 0 ? layers.length - 1 : exit, values, weights };
  }
}

const nets = data.nets.map((about) => new Net(about));
const loaded = (epoch) => Promise.all(nets.map((net) => net.load(epoch)));
const epochs = [...new Set(data.nets.flatMap((net) => net.epochs.map((each) => each.epoch)))].sort((a, b) => a - b);
let epoch = epochs.at(-1);

/** Return how much each map speaks for a class: weight times activation, less the mean over all classes. */
function evidence(judged, place, chosen) {
  const { layer } = judged.layers[place];
  const weight = layer.weight && judged.weights[layer.weight];
  const features = layer.features && judged.values.get(layer.features);
  if (!weight || !features) return null;
  const maps = judged.values.get(layer.maps);
  const count = maps.shape.length === 4 ? maps.shape[1] : features.data.length;
  const [classes, length] = weight.shape;
  if (features.data.length !== length || length % count) return null;
  const cells = length / count;
  return Array.from({ length: count }, (_, map) => {
    let [own, all] = [0, 0];
    for (let cell = map * cells; cell < (map + 1) * cells; cell++) {
      const value = features.data[cell];
      own += value * weight.data[chosen * length + cell];
      for (let each = 0; each < classes; each++) all += value * weight.data[each * length + cell];
    }
    return own - all / classes;
  });
}

// --- what each layer answers ------------------------------------------------------------------------------------------

const short = data.classes.length <= 12 && data.classes.every((name) => [...name].length <= 2);
const LISTED = Math.min(5, data.classes.length);

/** Return a short note on a layer; narrow screens leave the second part out. */
const tag = (kind, text, more) => element("span", { class: `tag ${kind}` }, text, element("span", { class: "more" }, more));

/** Return the elements of one layer, and a function that fills them. */
function layerCard(net, place) {
  const layer = nets[net].layers[place];
  const hidden = place < nets[net].layers.length - 1;
  const title = hidden
    ? element("button", { type: "button", "aria-label": `Look inside ${layer.name}` }, layer.name)
    : element("span", {}, layer.name);
  if (hidden) title.addEventListener("click", () => { select(net, place); byId("maps").scrollIntoView({ block: "nearest" }); });
  const bars = element("div", { class: short ? "bars" : "rows", "aria-hidden": "true" });
  const made = Array.from({ length: short ? data.classes.length : LISTED }, (_, index) => {
    const [fill, label] = [element("i"), element("span", {}, short ? data.classes[index] : "")];
    const bar = element("div", { class: "bar" }, fill, label);
    bars.append(bar);
    return { bar, fill, label };
  });
  const [answer, sure, tags] = [element("b"), element("span"), element("div", { class: "tags" })];
  const card = element("li", { class: "layer" },
    element("div", { class: "name" }, title, element("small", { title: "on test images" }, `${layer.error.toFixed(1)} % error`)),
    bars, element("div", { class: short ? "says" : "says word" }, answer, sure), tags);
  return {
    card,
    fill(judged) {
      const said = judged?.layers[place];
      const order = said && !short ? said.shares.map((_, i) => i).sort((a, b) => said.shares[b] - said.shares[a]) : null;
      made.forEach(({ bar, fill, label }, index) => {
        const which = order ? order[index] : index;
        if (!short) label.textContent = said ? data.classes[which] : "";
        fill.style.setProperty("--p", said ? said.shares[which].toFixed(4) : "0");
        bar.classList.toggle("top", Boolean(said) && which === said.answer);
      });
      answer.textContent = said ? data.classes[said.answer] : "";
      sure.textContent = said ? percent(said.sure) : "";
      card.toggleAttribute("data-other", Boolean(said) && said.answer !== judged.answer);
      card.toggleAttribute("data-stays", Boolean(said) && place >= judged.first);
      card.toggleAttribute("data-first", Boolean(said) && place > 0 && place === judged.first);
      const chips = [];
      if (said && place === judged.first && hidden) chips.push(tag("stays", "stays", " from here on"));
      if (said && place === judged.first && place && !hidden) chips.push(tag("stays", "settled", " only by the output"));
      if (said && place === judged.exit) {
        const limit = nets[net].about.calibrated ? layer.limit : UNCALIBRATED;
        chips.push(hidden ? tag("exit", "early exit", ` here, above ${percent(limit)}`) : tag("exit", "no early exit", ", no layer is so sure"));
      }
      tags.replaceChildren(...chips);
    },
    mark(selected) {
      card.toggleAttribute("data-selected", selected);
      if (hidden) title.setAttribute("aria-pressed", String(selected));
    },
  };
}

const subject = (name) => (name === "output" ? "The output" : name);

/** Return one sentence: the answer and since which layer it stands. */
function verdict(judged) {
  const names = judged.layers.map(({ layer }) => layer.name);
  const changes = judged.layers.slice(0, judged.first).map(({ answer }) => data.classes[answer]);
  if (!changes.length) return `All layers agree, from ${names[0]} on.`;
  const before = [...new Set(changes)].join(", then ");
  return `${subject(names[judged.first])} is the first to say so and to keep to it. Before it: ${before}.`;
}

function panel(net) {
  const about = nets[net].about;
  const [answer, sentence] = [element("div", { class: "answer" }), element("p")];
  const cards = nets[net].layers.map((_, place) => layerCard(net, place));
  const root = element("section", { class: "net", "aria-label": about.name },
    element("h2", {}, about.name),
    element("div", { class: "verdict" }, answer, sentence),
    element("ol", { class: "layers" }, ...cards.map(({ card }) => card)));
  return {
    root,
    cards,
    fill(judged) {
      answer.textContent = judged ? data.classes[judged.answer] : "·";
      answer.classList.toggle("word", Boolean(judged) && !short);
      sentence.textContent = judged ? verdict(judged) : data.ink ? "Draw, or pick an image below." : "Pick or drop an image.";
      for (const card of cards) card.fill(judged);
    },
  };
}

const panels = nets.map((_, net) => panel(net));
byId("nets").append(...panels.map(({ root }) => root));

// --- the maps of a layer ----------------------------------------------------------------------------------------------

/** Return the value above which a layer's strongest activations lie. */
function threshold(values) {
  const sorted = Float32Array.from(values).sort();
  return sorted[Math.min(sorted.length - 1, Math.floor((1 - KEPT) * sorted.length))];
}

function colour(share) {
  const place = Math.min(share, 0.9999) * (CIVIDIS.length - 1);
  const [low, high] = [CIVIDIS[Math.floor(place)], CIVIDIS[Math.floor(place) + 1]];
  return low.map((value, i) => value + (high[i] - value) * (place % 1));
}
const COLOURS = Array.from({ length: 256 }, (_, i) => colour(i / 255));

function tile(map, wide, high) {
  const canvas = makeCanvas(wide, high);
  canvas.setAttribute("role", "img");
  const [plus, minus, text] = [element("i", { class: "for" }), element("i", { class: "against" }), element("p")];
  return { canvas, plus, minus, text, root: element("div", { class: "tile" }, canvas, element("div", { class: "speaks", "aria-hidden": "true" }, plus, minus), text) };
}

function signed(value, scale) {
  const digits = Math.abs(value).toFixed(scale < 1 ? 2 : scale < 10 ? 1 : 0);
  return Number(digits) === 0 ? digits : `${value < 0 ? "−" : "+"}${digits}`;
}

const drawnMaps = new Map(); // net -> its tiles, as long as their shape stays

/** Show the maps of the selected layer of one net, those first that speak most for a class. */
function showMaps(net, judged) {
  const root = mapRoots[net];
  const place = Math.min(state.layer, nets[net].layers.length - 2);
  if (!judged || place < 0) { root.list.replaceChildren(); drawnMaps.delete(net); return; }
  const { layer, answer } = judged.layers[place];
  const chosen = state.wanted === "" ? answer : Number(state.wanted);
  const maps = judged.values.get(layer.maps);
  const spoken = evidence(judged, place, chosen);
  root.title.textContent = `${nets[net].about.name}, ${layer.name}: ${state.wanted === "" ? "it answers" : "for"} “${data.classes[chosen]}”`;
  if (maps.shape.length !== 4) { root.list.replaceChildren(element("p", { class: "caption" }, "This layer has no maps.")); drawnMaps.delete(net); return; }
  const [, count, high, wide] = maps.shape;
  const order = Array.from({ length: count }, (_, map) => map);
  const limit = threshold(maps.data);
  const most = maps.data.reduce((a, b) => Math.max(a, b), -Infinity) - limit;
  if (spoken) order.sort((a, b) => spoken[b] - spoken[a]);
  const shown = count <= MOST_MAPS ? order : [...order.slice(0, MOST_MAPS / 2), ...order.slice(-MOST_MAPS / 2)];
  const scale = spoken ? spoken.reduce((a, b) => Math.max(a, Math.abs(b)), 1e-9) : 1;
  const key = `${layer.name} ${shown.length} ${high} ${wide}`;
  if (drawnMaps.get(net)?.key !== key) {
    const tiles = shown.map((map) => tile(map, wide, high));
    drawnMaps.set(net, { key, tiles });
    root.list.replaceChildren(...tiles.map((each) => each.root));
  }
  drawnMaps.get(net).tiles.forEach((each, index) => {
    const map = shown[index];
    const context = pen2d(each.canvas);
    const image = context.createImageData(wide, high);
    for (let cell = 0; cell < wide * high; cell++) {
      const value = maps.data[map * wide * high + cell] - limit;
      image.data.set(COLOURS[value > 0 ? Math.round((255 * value) / most) : 0], 4 * cell);
      image.data[4 * cell + 3] = 255;
    }
    context.putImageData(image, 0, 0);
    const value = spoken ? spoken[map] : 0;
    each.plus.style.width = `${value > 0 ? (50 * value) / scale : 0}%`;
    each.minus.style.width = `${value < 0 ? (-50 * value) / scale : 0}%`;
    const number = signed(value, scale);
    each.text.textContent = spoken ? number : `map ${map + 1}`;
    each.canvas.setAttribute("aria-label", `Map ${map + 1}${spoken ? `, ${number} for ${data.classes[chosen]}` : ""}`);
  });
}

const mapRoots = nets.map(() => {
  const [title, list] = [element("h2"), element("div", { class: "tiles" })];
  const root = element("section", { class: "net" }, title, list);
  byId("maps").append(root);
  return { root, title, list };
});

const hiddenNames = nets[0].layers.slice(0, -1).map((layer) => layer.name);
byId("layer").append(...hiddenNames.map((name, place) => element("option", { value: place }, name)));
byId("class").append(element("option", { value: "" }, "the answer"), ...data.classes.map((name, place) => element("option", { value: place }, name)));
byId("layer").addEventListener("change", (event) => select(0, Number(event.target.value)));
byId("class").addEventListener("change", (event) => { state.wanted = event.target.value; show(); });
byId("maps-note").textContent =
  "One tile per feature map; bright are the strongest 30 % of the layer's activations, as in the paper's Fig. 3. " +
  "Below it, how much the map speaks for the class (blue, to the right) or against it (striped, to the left): weight times " +
  "activation of the layer's linear classifier, summed over the map, less the mean over all classes.";

function select(net, place) {
  state.layer = place;
  byId("layer").value = String(Math.min(place, hiddenNames.length - 1));
  show();
}

// --- showing ----------------------------------------------------------------------------------------------------------

let judgements = [];

let ready = false; // whether the weights are unpacked

function fail(error) {
  byId("fault").textContent = `This page cannot compute the net: ${error.message}.`;
  byId("fault").hidden = false;
}

/** Compute and show everything for the current pixels. */
function show() {
  const began = performance.now();
  try {
    judgements = ready && state.pixels ? nets.map((net) => net.judge(state.pixels, epoch)) : [];
  } catch (error) {
    judgements = [];
    fail(error);
  }
  const computed = performance.now() - began;
  panels.forEach((each, net) => {
    each.fill(judgements[net]);
    each.cards.forEach((card, place) => card.mark(place === state.layer && place < hiddenNames.length));
  });
  nets.forEach((_, net) => showMaps(net, judgements[net]));
  showSeen();
  state.milliseconds = { computed, all: performance.now() - began };
  if (state.pixels) byId("time").textContent = `${nets.length > 1 ? "Both nets" : "The net"} took ${computed.toFixed(0)} ms for this image.`;
}

let waiting = false;
function showSoon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; see(); show(); });
}

/** Say the answer to those who listen instead of looking; once per stroke or image, not at every movement. */
function announce() {
  const words = judgements.map((judged, net) => {
    const { sure } = judged.layers.at(-1);
    const name = nets.length > 1 ? `${nets[net].about.name}: ` : "";
    const early = judged.layers[judged.exit];
    const exit = early === judged.layers.at(-1) ? "no early exit" : `an early exit would leave at ${early.layer.name} with ${data.classes[early.answer]}`;
    return `${name}${data.classes[judged.answer]}, ${percent(sure)} sure; ${subject(judged.layers[judged.first].layer.name)} is the first to say so and to keep to it; ${exit}`;
  });
  byId("live").textContent = words.length ? `${words.join(". ")}.` : "Nothing is drawn.";
}

/** Make the net's input of what is drawn. */
function see() {
  if (state.picture) return;
  const strokes = [...state.strokes, ...(state.stroke ? [state.stroke] : [])];
  state.pixels = strokes.length ? framedStrokes(strokes, state.pen, width, SIDE) : null;
}

function imageOf(pixels) {
  const image = new ImageData(width, height);
  for (let place = 0; place < width * height; place++) {
    for (let channel = 0; channel < 3; channel++) {
      image.data[4 * place + channel] = pixels[(channels === 1 ? 0 : channel) * width * height + place];
    }
    image.data[4 * place + 3] = 255;
  }
  return image;
}

function showSeen() {
  const seen = byId("seen");
  const context = pen2d(seen);
  if (state.pixels) context.putImageData(imageOf(state.pixels), 0, 0);
  else context.clearRect(0, 0, width, height);
}

const canvas = byId("canvas");

function paint() {
  const context = pen2d(canvas);
  const scale = canvas.width / SIDE;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, SIDE, SIDE);
  if (state.picture) {
    const factor = SIDE / Math.max(state.picture.width, state.picture.height);
    context.imageSmoothingEnabled = state.picture.width > 128;
    const [w, h] = [state.picture.width * factor, state.picture.height * factor];
    context.drawImage(state.picture, (SIDE - w) / 2, (SIDE - h) / 2, w, h);
  }
  const strokes = [...state.strokes, ...(state.stroke ? [state.stroke] : [])];
  drawStrokes(context, strokes, state.pen, "#fff");
  if (state.cursor && document.activeElement === canvas) {
    context.beginPath();
    context.arc(...state.cursor, 9, 0, 2 * Math.PI);
    Object.assign(context, { lineWidth: 2.5, strokeStyle: state.down ? "#F0954A" : "#56B4E9" });
    context.stroke();
  }
  byId("invite").hidden = Boolean(strokes.length || state.cursor);
  byId("invite").classList.toggle("over", Boolean(state.picture));
}

function clear() {
  Object.assign(state, { strokes: [], stroke: null, picture: null, pixels: null, down: false });
  chosen(null);
  byId("truth").replaceChildren();
  byId("fault").hidden = true;
  paint();
}

// --- drawing ----------------------------------------------------------------------------------------------------------

function begin(point) {
  if (state.picture) clear();
  byId("fault").hidden = true;
  state.stroke = [point];
}

function end() {
  if (!state.stroke) return;
  state.strokes.push(state.stroke);
  state.stroke = null;
  paint();
  see();
  show();
  announce();
}

function undo() {
  if (state.picture) clear();
  state.strokes.pop();
  paint();
  see();
  show();
  announce();
}

function wipe() {
  clear();
  show();
  announce();
}

function pointOf(event) {
  const box = canvas.getBoundingClientRect();
  return [((event.clientX - box.left) / box.width) * SIDE, ((event.clientY - box.top) / box.height) * SIDE];
}

if (data.ink) {
  byId("pad").classList.add("drawable");
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !event.isPrimary) return;
    event.preventDefault();
    canvas.focus({ preventScroll: true });
    canvas.setPointerCapture(event.pointerId);
    state.cursor = null;
    begin(pointOf(event));
    paint();
    showSoon();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!state.stroke || !event.isPrimary || state.down) return;
    const seen = event.getCoalescedEvents?.() ?? [];
    for (const each of seen.length ? seen : [event]) state.stroke.push(pointOf(each));
    paint();
    showSoon();
  });
  canvas.addEventListener("pointerup", () => { if (!state.down) end(); });
  canvas.addEventListener("pointercancel", () => { if (!state.down) end(); });
  byId("undo").addEventListener("click", undo);
  byId("clear").addEventListener("click", wipe);
  byId("pen").addEventListener("input", (event) => { state.pen = Number(event.target.value); paint(); showSoon(); });
  canvas.addEventListener("keydown", drawWithKeys);
  canvas.addEventListener("focus", paint);
  canvas.addEventListener("blur", () => { state.cursor = null; state.down = false; end(); paint(); });
}

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** Draw without a pointer: a ring is the pen, space puts it down. */
function drawWithKeys(event) {
  const step = STEPS[event.key];
  if (!step && ![" ", "Backspace", "Escape"].includes(event.key)) return;
  event.preventDefault();
  if (event.key === "Escape") { state.down = false; wipe(); return; }
  if (event.key === "Backspace") { state.down = false; state.stroke = null; undo(); return; }
  state.cursor ??= [SIDE / 2, SIDE / 2];
  if (step) {
    const length = event.shiftKey ? 4 : 12;
    state.cursor = state.cursor.map((value, axis) => Math.min(SIDE - 8, Math.max(8, value + length * step[axis])));
    if (state.down) { state.stroke.push(state.cursor); showSoon(); }
  } else if (state.down) {
    state.down = false;
    end();
  } else {
    begin(state.cursor);
    state.down = true;
    showSoon();
  }
  paint();
  if (step || state.down) {
    const [across, down] = state.cursor.map((value) => percent(value / SIDE));
    byId("live").textContent = `Pen ${state.down ? "down" : "up"}, ${across} across, ${down} down.`;
  }
}

// --- images -----------------------------------------------------------------------------------------------------------

function usePicture(picture, truth = "") {
  clear();
  state.picture = picture;
  state.pixels = framedPicture(picture, data.shape, data.ink);
  paint();
  show();
  if (truth) byId("truth").append("Its label is ", element("b", {}, truth), ".");
  announce();
}

async function openFile(file) {
  try {
    const picture = await pictureIn(file);
    const { canvas: smaller } = pixelsOf(picture, picture.width === width && picture.height === height ? MOST_SIDE : WORKING_SIDE);
    picture.close();
    usePicture(smaller);
  } catch (error) {
    clear();
    show();
    byId("fault").textContent = error.message;
    byId("fault").hidden = false;
  }
}

byId("open").addEventListener("click", () => byId("file").click());
byId("file").addEventListener("change", (event) => {
  if (event.target.files.length) openFile(event.target.files[0]);
  event.target.value = "";
});
document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  if (event.dataTransfer.files.length) openFile(event.dataTransfer.files[0]);
});
document.addEventListener("paste", (event) => {
  if (event.clipboardData?.files.length) openFile(event.clipboardData.files[0]);
});

const thumbs = data.images.map((about, place) => {
  const name = `Test image ${place + 1}, a ${data.classes[about.label]}${about.answers > 1 ? `; ${about.answers} different answers` : ""}`;
  const picture = element("img", { src: `data:image/png;base64,${about.png}`, alt: "" });
  const button = element("button", { type: "button", role: "option", "aria-label": name, "aria-selected": "false", tabindex: place ? -1 : 0, title: name }, picture);
  button.addEventListener("click", () => pick(place));
  return { button, picture, about };
});
byId("thumbs").append(...thumbs.map(({ button }) => button));

function chosen(place) {
  thumbs.forEach(({ button }, index) => {
    button.setAttribute("aria-selected", String(index === place));
    if (place !== null) button.tabIndex = index === place ? 0 : -1;
  });
}

async function pick(place) {
  const { picture, about } = thumbs[place];
  await picture.decode();
  const copy = makeCanvas(picture.naturalWidth, picture.naturalHeight);
  pen2d(copy).drawImage(picture, 0, 0);
  usePicture(copy, data.classes[about.label]);
  chosen(place);
}

byId("thumbs").addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
  if (!step) return;
  event.preventDefault();
  const now = thumbs.findIndex(({ button }) => button === document.activeElement);
  const next = Math.min(Math.max(now + step, 0), thumbs.length - 1);
  thumbs[next].button.focus();
  pick(next);
});

// --- epochs -----------------------------------------------------------------------------------------------------------

function nameEpoch() {
  byId("epoch-name").textContent = epoch ? `after epoch ${epoch} of ${epochs.at(-1)}` : "before the first epoch";
}

/** Show an epoch, as soon as its weights are unpacked. */
async function goTo(place) {
  byId("epoch").value = String(place);
  byId("epoch").setAttribute("aria-valuetext", epochs[place] ? `epoch ${epochs[place]}` : "before training");
  await loaded(epochs[place]);
  if (byId("epoch").value !== String(place)) return; // somebody has gone on
  epoch = epochs[place];
  nameEpoch();
  show();
}

let playing = null;
function play() {
  if (playing) { clearInterval(playing); playing = null; } else {
    let place = Number(byId("epoch").value) === epochs.length - 1 ? 0 : Number(byId("epoch").value);
    goTo(place);
    playing = setInterval(() => {
      place++;
      goTo(place);
      if (place === epochs.length - 1) play();
    }, 700);
  }
  byId("play").textContent = playing ? "❚❚" : "▶";
  byId("play").setAttribute("aria-label", playing ? "Pause" : "Play the training");
}

if (epochs.length > 1) {
  byId("epochs").hidden = false;
  byId("epoch").max = String(epochs.length - 1);
  byId("epoch").value = String(epochs.length - 1);
  byId("epoch").addEventListener("input", (event) => goTo(Number(event.target.value)).then(announce));
  byId("play").addEventListener("click", play);
  nameEpoch();
}

// --- begin ------------------------------------------------------------------------------------------------------------

byId("size").textContent = `${width} × ${height}`;
Object.assign(byId("seen"), { width, height });
paint();
start();

/** Unpack the nets, then show an image on which layers disagree and the answer is right: a net that makes up its mind. */
async function start() {
  try {
    await loaded(epoch);
  } catch (error) {
    fail(error);
    return;
  }
  ready = true;
  show();
  if (thumbs.length && !state.pixels) pick(Math.max(0, data.images.findIndex((about) => about.right)));
  for (const each of [...epochs].reverse()) await loaded(each); // so that the slider does not wait
}

/** For tests, and for the curious at the console: scores of pixels [C,H,W] by net and layer, and what is shown now. */
window.glassBox = {
  scores: (pixels) => nets.map((net) => net.judge(Float32Array.from(pixels), epoch).layers.map(({ scores }) => Array.from(scores))),
  shown: () => ({
    pixels: state.pixels && Array.from(state.pixels),
    answers: judgements.map((judged) => judged.layers.map(({ answer }) => data.classes[answer])),
    milliseconds: state.milliseconds,
    epoch,
  }),
};
