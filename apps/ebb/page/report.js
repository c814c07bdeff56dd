"use strict";
// What the pages of reports share. A page's own script comes behind it, and ends with show(draw, name).
const data = JSON.parse(document.getElementById("data").textContent);
const number = (x, digits = 3) => x === null ? "–" :
  Number(x).toLocaleString("en", { maximumSignificantDigits: digits });
const short = (x) => x === null ? "–" :
  Number(x).toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
const percent = (x) => x === null ? "–" : (100 * x).toFixed(1) + " %";
const cssColour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const charts = [];
// Names of series that do not show.
const hidden = new Set();

// How the series of these names look, each as far from the others as can be.
function looks(names, palette, shapes) {
  const dashes = [[], [6, 4], [2, 3], [10, 3, 2, 3]];
  return (name) => {
    const i = names.indexOf(name);
    return { colour: palette[i % palette.length],
      dash: dashes[Math.floor(i / palette.length) % dashes.length],
      shape: shapes[i % shapes.length] };
  };
}

// An empty figure: the frame that a chart, or words, go into. The caption may be empty.
function addFigure(place, title, caption) {
  const box = document.createElement("figure");
  const head = document.createElement("h3");
  head.textContent = title;
  const frame = document.createElement("div");
  box.append(head, frame);
  if (caption) {
    const text = document.createElement("figcaption");
    text.textContent = caption;
    box.append(text);
  }
  document.getElementById(place).append(box);
  return frame;
}

function addChart(place, title, caption, config) {
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", caption ? title + ". " + caption : title);
  addFigure(place, title, caption).append(canvas);
  for (const set of config.data.datasets) set.hidden = hidden.has(set.label);
  charts.push(new Chart(canvas, config));
}

function button(content, pressed, onClick) {
  const made = document.createElement("button");
  made.type = "button";
  made.setAttribute("aria-pressed", String(pressed));
  made.append(...content);
  made.addEventListener("click", onClick);
  return made;
}

// A line and a point, as a series has them.
function sample({ colour, dash, shape }) {
  const canvas = document.createElement("canvas");
  canvas.width = 60;
  canvas.height = 28;
  const ctx = canvas.getContext("2d");
  ctx.scale(2, 2);
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.lineWidth = 2;
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.moveTo(0, 7);
  ctx.lineTo(30, 7);
  ctx.stroke();
  ctx.setLineDash([]);
  Chart.helpers.drawPoint(ctx, { pointStyle: shape, radius: 4.5, borderWidth: 2 }, 15, 7);
  return canvas;
}

// One for all charts: beside each of them, many names would leave no room for the points. A name
// hides and shows its own.
function drawLegend(names, look, draw) {
  const legend = document.getElementById("legend");
  legend.replaceChildren(...names.map((name, i) =>
    button([sample(look(name)), name], !hidden.has(name), () => {
      if (!hidden.delete(name)) hidden.add(name);
      const top = scrollY;
      draw();
      scrollTo(scrollX, top);
      legend.children[i].focus({ preventScroll: true });
    })));
}

// Columns: a title, what a record has there, and a class or none.
function fillTable(id, columns, records) {
  const table = document.getElementById(id);
  const row = (kind, contentOf) => {
    const tr = document.createElement("tr");
    for (const column of columns) {
      const cell = document.createElement(kind);
      cell.append(contentOf(column));
      cell.className = column[2] || "";
      tr.append(cell);
    }
    table.append(tr);
  };
  table.textContent = "";
  row("th", ([name]) => name);
  for (const record of records) row("td", ([, of]) => of(record));
  return table;
}

const samplingText = (run) => run.temperature === 0 ? "greedy" :
  `temperature ${number(run.temperature)}, top-k ${run.top_k}, top-p ${number(run.top_p)}, ` +
  `min-p ${number(run.min_p)}`;

// Before a page is drawn, or drawn again.
function clear(places) {
  for (const chart of charts.splice(0)) chart.destroy();
  for (const id of places) document.getElementById(id).textContent = "";
  Chart.defaults.color = cssColour("--soft");
  Chart.defaults.borderColor = cssColour("--line");
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
}

// Draws the page, and again when the colours change; its figures are saved under this name.
function show(draw, name) {
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  document.getElementById("save").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(data)], { type: "application/json" }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  });
}
