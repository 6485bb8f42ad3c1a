"use strict";
// The page holds its data as JSON: one view for each position of the slider. Nothing is fetched.

const data = JSON.parse(document.getElementById("data").textContent);
const views = data.views;
const element = (id) => document.getElementById(id);
const percent = (fraction) => `${(100 * fraction).toFixed(1)} %`;

// --- Charts

const left = 44, right = 350, top_ = 10, bottom = 168; // of the axes, in units of the viewBox

function logarithmic(values, from, to) {
  // A function from values to places on a logarithmic axis that just holds all values.
  const low = Math.log(Math.min(...values)), high = Math.log(Math.max(...values));
  return (value) => from + ((to - from) * (Math.log(value) - low)) / (high - low || 1);
}

function draw(svg, kind, attributes, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  svg.append(node);
  return node;
}

function drawAxes(svg, xTicks, yTicks, xTitle) {
  // Ticks are pairs of a place and a text.
  for (const [y, text] of yTicks) {
    draw(svg, "line", { class: "axis", x1: left, x2: right, y1: y, y2: y });
    draw(svg, "text", { x: left - 6, y: y + 4, "text-anchor": "end" }, text);
  }
  for (const [x, text] of xTicks) {
    draw(svg, "text", { x, y: bottom + 15, "text-anchor": "middle" }, text);
  }
  draw(svg, "text", { x: (left + right) / 2, y: bottom + 30, "text-anchor": "middle" }, xTitle);
}

function apart(ticks, gap) {
  // The ticks that do not run into the one before.
  const kept = [];
  for (const tick of ticks) {
    if (!kept.length || Math.abs(tick[0] - kept.at(-1)[0]) >= gap) kept.push(tick);
  }
  return kept;
}

function errorChart(svg) {
  // Both errors over the bound; returns a function that marks one view.
  const names = ["sparsification", "reconstruction"];
  const x = logarithmic(views.map((view) => view.bound), left + 6, right - 6);
  const largest = Math.max(...views.flatMap((view) => names.map((name) => view[name])));
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find((each) => largest / each <= 5) || 1;
  const highest = step * Math.max(1, Math.ceil(largest / step)); // errors may be zero
  const y = (error) => bottom + ((top_ - bottom) * error) / highest;
  const rows = Array.from({ length: Math.round(highest / step) + 1 }, (_, i) => i * step);
  drawAxes(
    svg,
    apart(views.map((view) => [x(view.bound), view.bound]), 26),
    rows.map((error) => [y(error), `${Math.round(100 * error)} %`]),
    "bound κ",
  );
  const now = draw(svg, "line", { class: "now", y1: top_, y2: bottom });
  const marks = names.map((name, i) => {
    const colour = ["one", "two"][i];
    const points = views.map((view) => `${x(view.bound)},${y(view[name])}`).join(" ");
    draw(svg, "polyline", { class: `curve ${colour}`, points });
    return views.map((view) => {
      const at = { class: `mark ${colour}`, transform: `translate(${x(view.bound)},${y(view[name])})` };
      return draw(svg, "path", { ...at, d: shape(i, 3.2) });
    });
  });
  return (number) => {
    const place = x(views[number].bound);
    now.setAttribute("x1", place);
    now.setAttribute("x2", place);
    marks.forEach((row, i) =>
      row.forEach((mark, j) => mark.setAttribute("d", shape(i, j === number ? 6.5 : 3.2))));
    svg.setAttribute("aria-label",
      `Errors over the bound. At κ ≤ ${views[number].bound}: ` +
      names.map((name) => `${name} ${percent(views[number][name])}`).join(", ") + ".");
  };
}

function shape(kind, size) {
  // A disc or a square: colours alone do not tell curves apart for everybody.
  if (kind === 1) return `M${-size},${-size}h${2 * size}v${2 * size}h${-2 * size}z`;
  return `M${-size},0a${size},${size} 0 1,0 ${2 * size},0a${size},${size} 0 1,0 ${-2 * size},0z`;
}

function spectrumChart(svg) {
  // Singular values of one view; axes are the same for all views, so that they can be compared.
  const n = views[0].spectrum.length;
  const all = views.flatMap((view) => view.spectrum);
  const x = (i) => left + 6 + ((right - left - 12) * i) / Math.max(1, n - 1);
  const y = logarithmic([...all, 0.8, 1.25], bottom - 6, top_ + 4);
  const low = Math.min(...all, 0.8), high = Math.max(...all, 1.25);
  const round = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50];
  const yTicks = round.filter((value) => value >= low && value <= high).map((value) => [y(value), value]);
  const places = [1, ...[0.25, 0.5, 0.75, 1].map((fraction) => Math.round(fraction * n))];
  drawAxes(svg, places.map((i) => [x(i - 1), i]), apart(yTicks.reverse(), 14), "number, largest first");
  const band = draw(svg, "rect", { class: "band", x: left, width: right - left });
  const line = draw(svg, "polyline", { class: "curve one" });
  const dots = views[0].spectrum.map((_, i) => draw(svg, "circle", { class: "dot", r: 2.4, cx: x(i) }));
  return (number) => {
    const { bound, spectrum } = views[number];
    const ceiling = y(spectrum[0]), floor = y(spectrum[0] / bound);
    band.setAttribute("y", ceiling - 1);
    band.setAttribute("height", floor - ceiling + 2);
    line.setAttribute("points", spectrum.map((value, i) => `${x(i)},${y(value)}`).join(" "));
    spectrum.forEach((value, i) => dots[i].setAttribute("cy", y(value)));
    svg.setAttribute("aria-label",
      `${n} singular values at κ ≤ ${bound}, from ${spectrum[0].toFixed(3)} ` +
      `down to ${spectrum.at(-1).toFixed(3)}.`);
  };
}

// --- One view at a time

const markErrors = errorChart(element("errors"));
const showSpectrum = spectrumChart(element("spectrum"));
const ticks = [...document.querySelectorAll(".ticks span")];

function chosenAfter() {
  return document.querySelector("input[name=after]:checked").value;
}

function showPicture(view) {
  const kind = chosenAfter();
  const how = kind === "denoised" ? "denoised" : `reconstructed from ${data.kept}`;
  element("after").src = view[kind];
  element("after").alt = `The image ${how}, with κ ≤ ${view.bound}.`;
  element("after-tag").textContent = `${kind}, κ ≤ ${view.bound}`;
  element("picture-note").textContent = data.notes[kind];
}

function showNumbers(view) {
  const rows = Object.entries(view.numbers).map(([name, value]) => {
    const [row, term, number] = ["div", "dt", "dd"].map((kind) => document.createElement(kind));
    term.textContent = name;
    number.textContent = value;
    row.append(term, number);
    return row;
  });
  element("numbers").replaceChildren(...rows);
}

function show(number) {
  const view = views[number];
  element("bound-shown").textContent = `κ ≤ ${view.bound}`;
  element("bound").setAttribute("aria-valuetext",
    `κ at most ${view.bound}, reconstruction error ${percent(view.reconstruction)}`);
  ticks.forEach((tick, i) => tick.classList.toggle("now", i === number));
  showPicture(view);
  showNumbers(view);
  element("atoms").src = view.atoms;
  element("atoms").alt = `The ${view.spectrum.length} atoms of the transform with κ ≤ ${view.bound}.`;
  markErrors(number);
  showSpectrum(number);
}

// --- What the reader does

const bound = element("bound"), swipe = element("swipe"), box = element("swipe-box");

function moveEdge(value) {
  swipe.value = value;
  box.style.setProperty("--edge", `${swipe.value}%`);
}

function followPointer(event) {
  const { left: start, width } = box.getBoundingClientRect();
  moveEdge((100 * (event.clientX - start)) / width);
}

bound.addEventListener("input", () => show(bound.valueAsNumber));
element("best").addEventListener("click", () => {
  bound.value = data.best;
  show(data.best);
});
for (const choice of document.querySelectorAll("input[name=after]")) {
  choice.addEventListener("change", () => showPicture(views[bound.valueAsNumber]));
}
swipe.addEventListener("input", () => moveEdge(swipe.value));
box.addEventListener("pointerdown", (event) => {
  box.setPointerCapture(event.pointerId);
  followPointer(event);
});
box.addEventListener("pointermove", (event) => {
  if (box.hasPointerCapture(event.pointerId)) followPointer(event);
});

const ready = []; // images that are decoded already: the slider then answers at once

async function decodeAll() {
  for (const kind of ["denoised", "atoms", "reconstructed"]) {
    for (const view of views) {
      const image = new Image();
      image.src = view[kind];
      ready.push(image);
      await image.decode();
    }
  }
}

show(bound.valueAsNumber);
moveEdge(swipe.value);
decodeAll();
