"use strict";
// Everything that comes from the server becomes text nodes and canvas: what a model writes is hostile.

const KEPT = 480; // snapshots, a quarter of a second each: two minutes
const MOST_SHOWN = 6000; // tokens as text
const TIERS = ["T0", "T1", "T2", "T3"];
const TIER_NAMES = ["T0, fast memory", "T1, full precision", "T2, compressed", "T3, evicted"];
const HEIGHTS = [1, 0.72, 0.44, 0.16]; // of a token's bar in a strip: its shape beside its colour

const byId = (id) => document.getElementById(id);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const clear = (node) => node.replaceChildren();
function add(parent, tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  parent.append(node);
  return node;
}

// Characters that a page hides, or that reorder the words around them, by their numbers.
function visible(text) {
  const driving = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
  return text.replace(driving, (one) => `<U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}>`);
}

// ---- figures as text

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) { n /= 1024; ++unit; }
  return `${n >= 100 || unit === 0 ? n.toFixed(0) : n.toFixed(1)} ${units[unit]}`;
}
function seconds(s) {
  if (s < 0.0995) return `${(s * 1000).toFixed(s < 0.01 ? 1 : 0)} ms`;
  if (s < 59.5) return `${s.toFixed(s < 9.95 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
}
const count = (n) => n.toLocaleString("en");

// ---- canvas

// The context of a canvas, cleared, in units of CSS pixels.
function canvasOf(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

// series: [{colour, values}], one above the other; values from the oldest on. The newest is at the right edge.
function drawAreas(canvas, series, numPlaces, most) {
  const { context, width, height } = canvasOf(canvas);
  context.strokeStyle = colour("line");
  context.strokeRect(0.5, 0.5, width - 1, height - 1);
  if (most <= 0 || numPlaces < 2 || series.length === 0) return;
  const length = series[0].values.length;
  const x = (i) => width - ((length - 1 - i) / (numPlaces - 1)) * width;
  const y = (value) => height - 1 - (value / most) * (height - 3);
  const below = new Array(length).fill(0);
  for (const one of series) {
    context.beginPath();
    for (let i = 0; i < length; ++i) context.lineTo(x(i), y(below[i] + one.values[i]));
    for (let i = length - 1; i >= 0; --i) context.lineTo(x(i), y(below[i]));
    context.closePath();
    context.fillStyle = one.colour;
    context.fill();
    for (let i = 0; i < length; ++i) below[i] += one.values[i];
  }
}

function drawLine(canvas, values, numPlaces) {
  const { context, width, height } = canvasOf(canvas);
  const most = Math.max(...values, 1);
  context.strokeStyle = colour("main");
  context.lineWidth = 1.5;
  context.beginPath();
  values.forEach((value, i) => {
    context.lineTo(width - ((values.length - 1 - i) / (numPlaces - 1)) * width,
                   height - 1 - (value / most) * (height - 3));
  });
  context.stroke();
}

// A bar of one tier; T3's is hollow.
function drawBar(context, tier, x, width, top, height) {
  const tall = Math.max(2, height * HEIGHTS[tier]);
  context.fillStyle = colours[tier];
  if (tier === 3) context.globalAlpha = 0.55;
  context.fillRect(x, top + height - tall, width, tall);
  context.globalAlpha = 1;
}

// tiers: a character per token, or per part of the text.
function drawTiers(area, tiers, top, height, from, to) {
  const { context } = area;
  const span = to - from;
  const numBins = Math.max(1, Math.min(tiers.length, Math.floor(span)));
  for (let bin = 0; bin < numBins; ++bin) {
    const begin = Math.floor((bin * tiers.length) / numBins);
    const end = Math.max(begin + 1, Math.floor(((bin + 1) * tiers.length) / numBins));
    const counts = [0, 0, 0, 0];
    for (let i = begin; i < end; ++i) ++counts[tiers.charCodeAt(i) - 48];
    const tier = counts.indexOf(Math.max(...counts));
    const x = from + (bin * span) / numBins;
    const gap = span / numBins > 4 ? 1 : 0;
    drawBar(context, tier, x, span / numBins - gap + (gap ? 0 : 0.5), top, height);
  }
}
let colours = [];

// ---- the feed

let key = sessionStorage.getItem("ebb-key") || "";
const headers = () => (key ? { Authorization: `Bearer ${key}` } : {});
const lines = []; // snapshots of the last two minutes: {at, speed, tiers}
let status = null;
let before = null;

function tellLink(className, text) {
  byId("link").className = className;
  byId("link").textContent = text;
}

async function watch() {
  for (;;) {
    try {
      const answer = await fetch("/v1/ebb/events", { headers: headers(), cache: "no-store" });
      if (answer.status === 401 || answer.status === 403) {
        tellLink("lost", "a key is needed");
        byId("key-form").hidden = false;
        return;
      }
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      byId("key-form").hidden = true;
      await readEvents(answer.body.getReader());
    } catch (error) {
      tellLink("lost", "no connection");
    }
    await new Promise((resolve) => setTimeout(resolve, 1500));
  }
}

async function readEvents(reader) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) { tellLink("lost", "the server has closed the stream"); return; }
    text += decoder.decode(value, { stream: true });
    const events = text.split("\n\n");
    text = events.pop();
    // Several may come together; the last one is what is now.
    const data = events.filter((event) => event.startsWith("data: "));
    if (data.length > 0) take(JSON.parse(data[data.length - 1].slice(6)));
  }
}

function take(snapshot) {
  before = status;
  status = snapshot;
  const passed = before ? status.uptime_seconds - before.uptime_seconds : 0;
  if (before && passed < 0) { lines.length = 0; before = null; } // the server began anew
  const speed = before && passed > 0
    ? (status.generated_tokens - before.generated_tokens) / passed : 0;
  lines.push({ at: status.uptime_seconds, speed, used: status.tiers.map((tier) => tier.used_bytes) });
  if (lines.length > KEPT) lines.shift();
  tellLink("live", "live");
  draw();
}

// ---- what is drawn

// Over the last two seconds, since tokens come in steps.
function speedNow() {
  const recent = lines.filter((line) => line.at > status.uptime_seconds - 2);
  return recent.reduce((sum, line) => sum + line.speed, 0) / Math.max(1, recent.length);
}

const numPlaces = () => Math.max(2, lines.length);

function draw() {
  if (!status) return;
  colours = TIERS.map(colour);
  drawNumbers();
  drawMemory();
  drawRequests();
}

function drawNumbers() {
  const { requests } = status;
  byId("model").textContent = `${status.model}, up for ${seconds(status.uptime_seconds)}`;
  byId("speed").textContent = speedNow().toFixed(speedNow() < 10 ? 1 : 0);
  drawLine(byId("speed-chart"), lines.map((line) => line.speed), numPlaces());
  byId("decoding").textContent = requests.decoding;
  byId("reading").textContent = requests.reading > 0 ? `${requests.reading} more read their prompt` : "";
  byId("waiting").textContent = requests.waiting;
  byId("wait").textContent = status.predicted_wait_seconds > 0
    ? `about ${seconds(status.predicted_wait_seconds)} for a new one` : "a new one begins at once";
  byId("parked").textContent = requests.parked;
  byId("parks").textContent = status.parks > 0 ? `${count(status.parks)} times so far` : "never so far";
  byId("step").textContent = status.seconds_per_step > 0 ? seconds(status.seconds_per_step) : "–";
  byId("stall").textContent = `a prompt stalls answers ${seconds(status.max_stall_seconds)} at most`;
}

// Segments of a tier's bar, widths in bytes.
function segmentsOf(tier, index) {
  if (index === 0) {
    const floor = Math.min(status.t0_floor_bytes, tier.used_bytes);
    const elastic = Math.min(status.t0_elastic_bytes, tier.used_bytes - floor);
    return [["held", floor, 1], ["elastic", elastic, 0.55],
            ["other", tier.used_bytes - floor - elastic, 0.8], ["pledged", tier.pledged_bytes, 0.2]];
  }
  if (index === 1) {
    const parked = Math.min(status.parked_bytes, tier.used_bytes);
    return [["parked", parked, 0.55], ["held", tier.used_bytes - parked, 1]];
  }
  return [["held", tier.used_bytes, 1]];
}

function drawMemory() {
  const holder = byId("tiers");
  if (holder.childElementCount !== status.tiers.length) {
    clear(holder);
    for (const tier of status.tiers) {
      const row = add(holder, "div", undefined, "tier");
      add(row, "b", tier.name);
      const bar = add(row, "div", undefined, "bar");
      bar.setAttribute("role", "img");
      add(row, "div", undefined, "amount");
    }
    for (const [name, opacity] of [["held: floors of running requests", 1],
                                   ["elastic, given up first; in T1: parked", 0.55],
                                   ["kept for floors", 0.2]]) {
      const item = add(byId("memory-legend"), "span");
      const { context, width, height } = canvasOf(add(item, "canvas"));
      context.globalAlpha = opacity;
      context.fillStyle = colours[0];
      context.fillRect(0, 2, width, height - 4);
      item.append(name);
    }
  }
  // Without caps the bars share a scale, so that they can be compared.
  const largest = Math.max(1, ...status.tiers.map((tier) => Math.max(tier.used_bytes, tier.peak_bytes)));
  status.tiers.forEach((tier, index) => {
    const row = holder.children[index];
    const whole = tier.cap_bytes || largest;
    const segments = segmentsOf(tier, index);
    const bar = row.children[1];
    while (bar.childElementCount < segments.length) add(bar, "i");
    segments.forEach(([, size, opacity], i) => {
      const style = bar.children[i].style;
      style.width = `${Math.min(100, (size / whole) * 100)}%`;
      style.background = colours[index];
      style.opacity = opacity;
    });
    const amount = row.children[2];
    const ofCap = tier.cap_bytes ? `${bytes(tier.used_bytes)} of ${bytes(tier.cap_bytes)}` : bytes(tier.used_bytes);
    amount.textContent = ofCap;
    add(amount, "small", tier.cap_bytes ? `${count(tier.rows)} rows` : `${count(tier.rows)} rows, no cap`);
    bar.setAttribute("aria-label", `${tier.name}: ${ofCap}`);
  });
  const series = status.tiers.map((_, index) => (
    { colour: colours[index], values: lines.map((line) => line.used[index]) }));
  const most = Math.max(...lines.map((line) => line.used.reduce((a, b) => a + b, 0)));
  drawAreas(byId("memory-chart"), series, numPlaces(), most);
  byId("memory-since").textContent = `${seconds(status.uptime_seconds - lines[0].at)} ago`;
  byId("memory-most").textContent = `at most ${bytes(most)}`;
  byId("memory-chart").setAttribute("aria-label", `Bytes of all tiers of late, at most ${bytes(most)}`);
}

function stateOf(job) {
  if (job.state === "reading") {
    const read = job.prompt_tokens - job.prompt_left;
    return ["▸ reading", `${Math.floor((100 * read) / Math.max(1, job.prompt_tokens))} %`];
  }
  if (job.state === "waiting") return ["· waiting", `${count(job.prompt_tokens)} tokens`];
  if (job.state === "parked") return ["‖ parked", `${count(job.generated_tokens)} tokens`];
  return [job.in_thought ? "○ thinking" : "● answering", `${count(job.generated_tokens)} tokens`];
}

const rows = new Map(); // of requests, by id
let selected = null;

function rowOf(id) {
  if (rows.has(id)) return rows.get(id);
  const row = add(byId("requests"), "button", undefined, "request");
  row.type = "button";
  row.setAttribute("role", "listitem");
  add(row, "span", `#${id}`, "number-of");
  add(row, "span", undefined, "state");
  const strip = add(row, "span", undefined, "strip");
  add(strip, "canvas").setAttribute("role", "img");
  add(row, "span", undefined, "right share");
  add(row, "span", undefined, "right");
  add(row, "span", undefined, "right");
  row.addEventListener("click", () => select(selected === id ? null : id));
  rows.set(id, row);
  return row;
}

function drawRequests() {
  const there = new Set(status.jobs.map((job) => job.id));
  for (const [id, row] of rows) {
    if (there.has(id)) continue;
    row.remove();
    rows.delete(id);
  }
  byId("no-requests").hidden = there.size > 0;
  for (const job of status.jobs) {
    const row = rowOf(job.id);
    const [, state, strip, share, speed, age] = row.children;
    const [name, more] = stateOf(job);
    state.textContent = name;
    state.append(" ");
    add(state, "small", more);
    const canvas = strip.firstChild;
    canvas.className = job.strip ? "" : "none";
    const area = canvasOf(canvas);
    if (job.strip) drawTiers(area, job.strip, 0, area.height, 0, area.width);
    canvas.setAttribute("aria-label", `Tiers of the tokens of request ${job.id}`);
    share.textContent = job.state === "waiting" ? "" : `${Math.round(shareOfT0(job) * 100)} % T0`;
    const unread = job.samples > 0 ? job.sampled_unread_mass : job.unread_mass;
    const reads = job.rows_read_share < 1
      ? `, reads ${Math.round(100 * job.rows_read_share)} % of rows, ${Math.round(100 * (1 - unread))} % of attention` : "";
    speed.textContent = job.tokens_per_second > 0 ? `${job.tokens_per_second.toFixed(1)} tok/s${reads}` : "";
    age.textContent = seconds(job.age_seconds);
    row.setAttribute("aria-pressed", String(selected === job.id));
    row.setAttribute("aria-label", `Request ${job.id}, ${name.slice(2)}, ${more}`);
  }
  if (selected === null && status.jobs.length > 0 && !fate) select(status.jobs[0].id);
}

// Counts the rows that are left.
function shareOfT0(job) {
  const left = job.rows[0] + job.rows[1] + job.rows[2];
  return left > 0 ? job.rows[0] / left : 0;
}

// ---- the tokens of one request

let fate = null; // {id, texts, moments: [{tiers, prompt, thought, steps}], history, steps, over}

function select(id) {
  selected = id;
  fate = id === null ? null : { id, texts: [], moments: [], history: [], steps: 0, over: false };
  byId("fate").hidden = fate === null;
  for (const holder of textHolders()) clear(holder);
  spans.length = 0;
  byId("moment").max = byId("moment").value = 0;
  if (fate) follow(fate);
  draw();
}

async function follow(mine) {
  while (fate === mine && !mine.over) {
    try {
      const answer = await fetch(`/v1/ebb/requests/${mine.id}/tokens/${mine.texts.length}`,
                                 { headers: headers(), cache: "no-store" });
      if (fate !== mine) return;
      const isThere = status.jobs.some((job) => job.id === mine.id);
      if (answer.status === 404 && (mine.moments.length > 0 || !isThere)) mine.over = true;
      else if (answer.ok) takeFates(mine, await answer.json());
    } catch (error) { /* the feed tells that the connection is gone */ }
    if (fate === mine) drawFate();
    await new Promise((resolve) => setTimeout(resolve, 400));
  }
}

function takeFates(mine, fates) {
  if (fates.texts && fates.from === mine.texts.length) mine.texts.push(...fates.texts);
  mine.history = fates.history;
  mine.steps = fates.steps;
  const last = mine.moments[mine.moments.length - 1];
  if (last && last.tiers === fates.tiers) return;
  const slider = byId("moment");
  const isNow = slider.value === slider.max;
  mine.moments.push({ tiers: fates.tiers, prompt: fates.prompt_tokens, thought: fates.thought_tokens,
                      inThought: fates.in_thought, steps: fates.steps });
  // Every second one of the older half goes, so that all of a long answer stays within reach.
  if (mine.moments.length > 600) mine.moments = mine.moments.filter((_, i) => i >= 300 || i % 2 === 0);
  slider.max = mine.moments.length - 1;
  if (isNow) slider.value = slider.max;
}

function drawFate() {
  const mine = fate;
  if (!mine) return;
  colours = TIERS.map(colour);
  byId("fate-title").textContent = `Tokens of request #${mine.id}`;
  const slider = byId("moment");
  const now = mine.moments[mine.moments.length - 1];
  const moment = mine.moments[Number(slider.value)];
  if (!moment) {
    byId("fate-what").textContent = mine.over ? "It is over." : "It has not begun.";
    return;
  }
  const counts = [0, 0, 0, 0];
  for (const tier of moment.tiers) ++counts[tier];
  byId("fate-what").textContent =
    `${count(moment.tiers.length)} tokens: ` +
    counts.map((n, tier) => (n > 0 ? `${count(n)} in ${TIERS[tier]}` : "")).filter(Boolean).join(", ") +
    (mine.over ? ". It is over; this is how it was last seen." : ".");
  byId("moment-name").textContent = moment === now ? (mine.over ? "last seen" : "now") : `step ${count(moment.steps)}`;
  drawStrip(moment);
  const series = [0, 1, 2, 3].map((tier) => (
    { colour: colours[tier], values: mine.history.map((step) => step[tier]) }));
  const most = Math.max(0, ...mine.history.map((step) => step.reduce((a, b) => a + b, 0)));
  drawAreas(byId("fate-chart"), series, mine.history.length, most);
  byId("fate-rows").textContent = `rows by tier, ${count(most)} in all`;
  byId("fate-steps").textContent = `step ${count(mine.steps)}`;
  byId("fate-chart").setAttribute("aria-label", "Rows by tier after each step");
  drawTexts(mine, moment, now);
}

// Bars by tier, and below them which part of the text each token belongs to.
function drawStrip(moment) {
  const area = canvasOf(byId("fate-strip"));
  const { context, width, height } = area;
  const bars = height - 18;
  const total = Math.max(1, moment.tiers.length);
  drawTiers(area, moment.tiers, 0, bars, 0, width);
  const ends = [moment.prompt, moment.prompt + moment.thought, total];
  const parts = [["prompt", "soft"], ["thought", "thought"], ["answer", "main"]];
  let begin = 0;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "top";
  parts.forEach(([name, of], i) => {
    const end = Math.min(ends[i], total);
    if (end <= begin) return;
    const x = (begin / total) * width, w = ((end - begin) / total) * width;
    context.fillStyle = colour(of);
    context.fillRect(x, bars + 3, Math.max(1, w - 1), 2);
    if (w > context.measureText(name).width + 2) context.fillText(name, x, bars + 6);
    begin = end;
  });
  byId("fate-strip").setAttribute("aria-label", byId("fate-what").textContent);
}

const textHolders = () => [...document.querySelectorAll("#fate-text .text")];
const spans = []; // of tokens: {node, tier, later}

function drawTexts(mine, moment, now) {
  const shown = mine.texts.length > 0;
  byId("fate-text").hidden = !shown;
  byId("fate-no-text").hidden = status === null || status.shows_text;
  if (!shown) return;
  const holders = textHolders();
  const ends = [now.prompt, now.prompt + now.thought];
  const partOf = (i) => (i < ends[0] ? 0 : i < ends[1] || now.inThought ? 1 : 2);
  const first = Math.max(0, mine.texts.length - MOST_SHOWN);
  for (let i = spans.length; i < mine.texts.length; ++i) {
    const node = i < first ? null : document.createElement("span");
    if (node) {
      node.textContent = visible(mine.texts[i]);
      node.title = `token ${i}`;
    }
    spans.push({ node, tier: "", part: -1 });
  }
  spans.forEach((span, i) => {
    if (!span.node) return;
    const tier = i < moment.tiers.length ? `t${moment.tiers[i]}` : "later";
    if (span.tier !== tier) { span.node.className = tier; span.tier = tier; }
    const part = partOf(i);
    if (span.part === part) return;
    const holder = holders[part];
    const atEnd = holder.scrollHeight - holder.scrollTop - holder.clientHeight < 40;
    holder.append(span.node);
    span.part = part;
    if (atEnd) holder.scrollTop = holder.scrollHeight;
  });
  const sizes = [0, 0, 0];
  for (const span of spans) if (span.part >= 0) ++sizes[span.part];
  byId("fate-prompt").firstElementChild.textContent = `Prompt, ${count(ends[0])} tokens`;
  byId("fate-thought").firstElementChild.textContent = `Thought, ${count(sizes[1])} tokens`;
  byId("fate-thought").hidden = sizes[1] === 0;
}

// ---- begin

function drawLegend() {
  colours = TIERS.map(colour);
  clear(byId("tier-legend"));
  TIER_NAMES.forEach((name, tier) => {
    const item = add(byId("tier-legend"), "span");
    const canvas = add(item, "canvas");
    const { context, width, height } = canvasOf(canvas);
    drawBar(context, tier, 0, width, 0, height);
    item.append(name);
  });
}

byId("moment").addEventListener("input", drawFate);
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = byId("key").value;
  sessionStorage.setItem("ebb-key", key);
  watch();
});
const redraw = () => { drawLegend(); draw(); drawFate(); };
window.addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
drawLegend();
watch();
