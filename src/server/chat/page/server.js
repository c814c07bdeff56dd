// Shows the tab "Server": the use of memory and the tiers of each request's tokens as they change.
// Text of models and clients becomes text nodes and canvas drawings only.

import { ask, streamEvents } from './api.js';
import { bytesText, countText, el } from './dom.js';
import { kTiers } from './memory.js';

const kKept = 480;        // snapshots, one each quarter of a second: two minutes
const kMostShown = 6000;  // tokens shown as text
// Holds the heights of a token's bar by tier, to tell tiers apart without colour.
const kHeights = [1, 0.72, 0.44, 0.16];

// Replaces characters that a page hides, or that reorder the words around them, by their numbers.
function visible(text) {
  const driving = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
  return text.replace(driving, (one) => `<U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}>`);
}

function secondsText(s) {
  if (s < 0.0995) return `${(s * 1000).toFixed(s < 0.01 ? 1 : 0)} ms`;
  if (s < 59.5) return `${s.toFixed(s < 9.95 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
}

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// ---------------------------------------------------------------- canvas

const probe = el('i', { hidden: true });

// Returns the current colour of a variable of the style sheets.
function colour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

const tierColours = () => kTiers.map((_, tier) => colour(`t${tier}-plain`));

// Returns the context of a canvas, cleared, in units of CSS pixels.
function areaOf(canvas) {
  const ratio = devicePixelRatio;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

const kFont = '11px system-ui, sans-serif';

// Draws stacked areas of `series`, an array of values from the oldest on for each tier, above an
// axis with figures; the newest is at the right edge. text(value): a figure of the axis. line: {value,
// name} of a dashed line, or nothing.
function drawAreas(canvas, series, numPlaces, most, { text, line = null }) {
  const { context, width: whole, height } = areaOf(canvas);
  if (most <= 0 || numPlaces < 2) return;
  context.font = kFont;
  const left = context.measureText(text(most)).width + 8, width = whole - left;
  const { length } = series[0];
  const x = (i) => whole - ((length - 1 - i) / (numPlaces - 1)) * width;
  const y = (value) => height - 1 - (value / most) * (height - 12);
  const colours = tierColours();
  const below = new Array(length).fill(0);
  series.forEach((values, tier) => {
    context.beginPath();
    for (let i = 0; i < length; ++i) context.lineTo(x(i), y(below[i] + values[i]));
    for (let i = length - 1; i >= 0; --i) context.lineTo(x(i), y(below[i]));
    context.closePath();
    context.fillStyle = colours[tier];
    context.fill();
    for (let i = 0; i < length; ++i) below[i] += values[i];
  });
  const mark = (value, name, dash, of, align) => {
    const at = Math.round(y(value)) - 0.5;
    context.strokeStyle = context.fillStyle = colour(of);
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(left, at);
    context.lineTo(whole, at);
    context.stroke();
    context.textAlign = align;
    context.textBaseline = align === 'right' ? 'middle' : 'bottom';
    context.fillText(name, align === 'right' ? left - 5 : left + 4, Math.max(6, Math.min(height - 6, at)));
  };
  for (const share of [0, 0.5, 1]) mark(most * share, text(most * share), [], 'soft', 'right');
  if (line !== null) mark(line.value, line.name, [5, 3], 'text', 'left');
  context.setLineDash([]);
}

function drawLine(canvas, values, numPlaces) {
  const { context, width, height } = areaOf(canvas);
  const most = Math.max(...values, 1);
  context.strokeStyle = colour('main');
  context.lineWidth = 1.5;
  context.beginPath();
  values.forEach((value, i) => context.lineTo(width - ((values.length - 1 - i) / (numPlaces - 1)) * width,
                                              height - 1 - (value / most) * (height - 3)));
  context.stroke();
}

// Draws the tiers. tiers: a character for each token, or for each part of the text.
function drawTiers({ context, width }, tiers, height) {
  const colours = tierColours();
  const numBins = Math.max(1, Math.min(tiers.length, Math.floor(width)));
  const gap = width / numBins > 4 ? 1 : -0.5;
  for (let bin = 0; bin < numBins; ++bin) {
    const begin = Math.floor((bin * tiers.length) / numBins);
    const end = Math.max(begin + 1, Math.floor(((bin + 1) * tiers.length) / numBins));
    const counts = [0, 0, 0, 0];
    for (let i = begin; i < end; ++i) ++counts[Number(tiers[i])];
    const tier = counts.indexOf(Math.max(...counts));
    const tall = Math.max(2, height * kHeights[tier]);
    context.fillStyle = colours[tier];
    context.globalAlpha = tier === 3 ? 0.55 : 1;
    context.fillRect((bin * width) / numBins, height - tall, width / numBins - gap, tall);
  }
  context.globalAlpha = 1;
}

// ---------------------------------------------------------------- figures

// Returns a text with the resource that a request waits for: "for 3.2 MiB of T0".
function waitText(wait) {
  switch (wait?.cause) {
    case 't0': case 't1': case 't2':
      return `for ${bytesText(wait.bytes)} of ${wait.cause.toUpperCase()}`;
    case 'running': return 'for a running one to end';
    case 'turn': return `for its turn, behind #${wait.behind}`;
    case 'stored_prompt': return 'for its prompt from the store';
    default: return '';
  }
}

function stateOf(job) {
  if (job.state === 'reading') {
    const read = job.prompt_tokens - job.prompt_left;
    return ['▸ reading', `${Math.floor((100 * read) / Math.max(1, job.prompt_tokens))} %`];
  }
  if (job.state === 'waiting') return ['· waiting', waitText(job.waits_for) || `${countText(job.prompt_tokens)} tokens`];
  if (job.state === 'parked') return ['‖ parked', job.waits_for ? `waits ${waitText(job.waits_for)}` : `${countText(job.generated_tokens)} tokens`];
  return [job.in_thought ? '○ thinking' : '● answering', `${countText(job.generated_tokens)} tokens`];
}

// Returns the share of T0 in the rows that are not evicted.
const shareOfT0 = ({ rows }) => rows[0] / Math.max(1, rows[0] + rows[1] + rows[2]);

function speedText(job) {
  if (job.tokens_per_second <= 0) return '';
  const unread = job.samples > 0 ? job.sampled_unread_mass : job.unread_mass;
  const reads = job.rows_read_share < 1
    ? `, reads ${Math.round(100 * job.rows_read_share)} % of rows, ${Math.round(100 * (1 - unread))} % of attention` : '';
  return `${job.tokens_per_second.toFixed(1)} tok/s${reads}`;
}

// Returns the bytes of T0 that are kept for running requests and not in use yet.
const reservedOf = (status, tier) => Math.max(status.t0_reserved_bytes, tier.pledged_bytes);

// Returns the parts of a tier's bar: their bytes, and the class of their mark.
function segmentsOf(status, tier, index) {
  if (index === 0) {
    const floor = Math.min(status.t0_floor_bytes, tier.used_bytes);
    const elastic = Math.min(status.t0_elastic_bytes, tier.used_bytes - floor);
    return [[floor, ''], [tier.used_bytes - floor - elastic, 'shared'], [elastic, 'elastic'], [reservedOf(status, tier), 'reserved']];
  }
  const parked = index === 1 ? Math.min(status.parked_bytes, tier.used_bytes) : 0;
  return [[tier.used_bytes - parked, ''], [parked, 'elastic']];
}

function tierRow(status, tier, index, largest) {
  const whole = tier.cap_bytes || largest;
  const amount = tier.cap_bytes ? `${bytesText(tier.used_bytes)} of ${bytesText(tier.cap_bytes)}` : bytesText(tier.used_bytes);
  const bar = el('div', { class: 'bar', role: 'img', 'aria-label': `${tier.name}: ${amount}` });
  for (const [size, kind] of segmentsOf(status, tier, index)) {
    const part = el('i', { class: `t${index} ${kind}` });
    part.style.width = `${Math.min(100, (size / whole) * 100)}%`;
    if (size > 0) bar.append(part);
  }
  const reserved = index === 0 && reservedOf(status, tier) > 0 ? `, ${bytesText(reservedOf(status, tier))} reserved` : '';
  const rows = `${countText(tier.rows)} rows${tier.cap_bytes ? '' : ', no cap'}${reserved}`;
  return el('div', { class: 'tier-row' }, el('b', {}, tier.name), bar,
            el('div', { class: 'amount' }, amount, el('small', {}, rows)));
}

// Makes a figure with its name and a note below it.
function figure(name, id, ...more) {
  const value = el('b', { id }), note = el('small');
  return { value, note, element: el('div', { class: 'figure' }, el('span', {}, name), value, ...more, note) };
}

function caption(...texts) { return el('p', { class: 'caption' }, ...texts); }

function legend() {
  return el('p', { class: 'legend' }, ...kTiers.map(({ name, what }, tier) =>
    el('span', {}, el('i', { class: `mark t${tier}` }), `${name}, ${what}`)));
}

// ---------------------------------------------------------------- the tokens of one request

class FateView {
  constructor() {
    this.title = el('h2');
    this.what = el('p', { class: 'soft' });
    this.strip = el('canvas', { class: 'fate-strip', role: 'img' });
    this.slider = el('input', { type: 'range', min: 0, max: 0, value: 0, 'aria-label': 'Moment', oninput: () => this.draw() });
    this.moment = el('output');
    this.chart = el('canvas', { class: 'chart', role: 'img', 'aria-label': 'Rows by tier after each step' });
    this.rows = el('span');
    this.steps = el('span');
    this.noText = el('p', { id: 'fate-no-text', class: 'soft', hidden: true }, 'Text is not shown. ',
                     el('code', {}, 'ebb serve --dashboard text'), ' shows it to everybody who can open this page.');
    this.names = ['Prompt', 'Thought', 'Answer'].map((name) => el('summary', {}, name));
    this.texts = ['Prompt', 'Thought', 'Answer'].map((name) => el('div', { class: 'tokens', tabindex: 0, role: 'group', 'aria-label': name }));
    this.parts = this.names.map((name, i) => el('details', { open: i === 2 }, name, this.texts[i]));
    this.text = el('div', { id: 'fate-text', hidden: true }, ...this.parts);
    this.element = el('section', { hidden: true }, this.title,
      el('div', { class: 'card' }, this.what, this.strip, el('div', { class: 'scrub' }, 'Moment', this.slider, this.moment),
         this.chart, caption('first step', this.rows, this.steps), this.noText, this.text));
    this.fate = null;
  }

  show(id) {
    this.fate = id === null ? null : { id, texts: [], moments: [], history: [], steps: 0, over: false };
    this.element.hidden = id === null;
    this.spans = [];  // [tokens]: {node, tier, part}
    for (const holder of this.texts) holder.replaceChildren();
    this.slider.max = this.slider.value = 0;
  }

  // Polls the server while the request is shown. status(): returns the newest snapshot.
  async follow(status, signal) {
    const mine = this.fate;
    while (this.fate === mine && !mine.over && !signal.aborted) {
      const path = `/v1/ebb/requests/${mine.id}/tokens/${mine.texts.length}`;
      try {
        const fates = await (await ask(path, { cache: 'no-store', signal })).json();
        if (this.fate !== mine) return;
        this.take(mine, fates);
      } catch (error) {  // the feed shows that the connection is lost
        const isThere = status().jobs.some(({ id }) => id === mine.id);
        mine.over = error.status === 404 && (mine.moments.length > 0 || !isThere);
      }
      this.shows_text = status().shows_text;
      if (this.fate === mine) this.draw();
      await wait(400);
    }
  }

  take(mine, fates) {
    if (fates.texts && fates.from === mine.texts.length) mine.texts.push(...fates.texts);
    mine.history = fates.history;
    mine.steps = fates.steps;
    if (mine.moments.at(-1)?.tiers === fates.tiers) return;
    const isNow = this.slider.value === this.slider.max;
    mine.moments.push({ tiers: fates.tiers, prompt: fates.prompt_tokens, thought: fates.thought_tokens,
                        inThought: fates.in_thought, steps: fates.steps });
    // Drops every second moment of the older half, so that the slider covers all of a long answer.
    if (mine.moments.length > 600) mine.moments = mine.moments.filter((_, i) => i >= 300 || i % 2 === 0);
    this.slider.max = mine.moments.length - 1;
    if (isNow) this.slider.value = this.slider.max;
  }

  draw() {
    const mine = this.fate;
    if (mine === null) return;
    this.title.textContent = `Tokens of request #${mine.id}`;
    const now = mine.moments.at(-1);
    const moment = mine.moments[Number(this.slider.value)];
    if (!moment) {
      this.what.textContent = mine.over ? 'It is over.' : 'It has not begun.';
      return;
    }
    const counts = [0, 0, 0, 0];
    for (const tier of moment.tiers) ++counts[Number(tier)];
    const places = counts.map((n, tier) => (n > 0 ? `${countText(n)} in ${kTiers[tier].name}` : '')).filter(Boolean);
    this.what.textContent = `${countText(moment.tiers.length)} tokens: ${places.join(', ')}` +
      (mine.over ? '. It is over; this is how it was last seen.' : '.');
    this.moment.textContent = moment === now ? (mine.over ? 'last seen' : 'now') : `step ${countText(moment.steps)}`;
    this.drawStrip(moment);
    const most = Math.max(0, ...mine.history.map(sum));
    drawAreas(this.chart, kTiers.map((_, tier) => mine.history.map((step) => step[tier])), mine.history.length, most,
              { text: (value) => countText(Math.round(value)) });
    this.rows.textContent = 'rows by tier';
    this.steps.textContent = `step ${countText(mine.steps)}`;
    this.drawTexts(mine, moment, now);
  }

  // Draws bars by tier, and below them the part of the text to which each token belongs.
  drawStrip(moment) {
    const area = areaOf(this.strip);
    const { context, width, height } = area;
    const bars = height - 18, total = Math.max(1, moment.tiers.length);
    drawTiers(area, moment.tiers, bars);
    context.font = kFont;
    context.textBaseline = 'top';
    let begin = 0;
    for (const [name, of, until] of [['prompt', 'soft', moment.prompt],
                                     ['thought', 'thought', moment.prompt + moment.thought], ['answer', 'main', total]]) {
      const end = Math.min(until, total);
      if (end <= begin) continue;
      const x = (begin / total) * width, w = ((end - begin) / total) * width;
      context.fillStyle = colour(of);
      context.fillRect(x, bars + 3, Math.max(1, w - 1), 2);
      if (w > context.measureText(name).width + 2) context.fillText(name, x, bars + 6);
      begin = end;
    }
    this.strip.setAttribute('aria-label', this.what.textContent);
  }

  drawTexts(mine, moment, now) {
    const shown = mine.texts.length > 0;
    this.text.hidden = !shown;
    this.noText.hidden = this.shows_text;
    if (!shown) return;
    const ends = [now.prompt, now.prompt + now.thought];
    const first = Math.max(0, mine.texts.length - kMostShown);
    for (let i = this.spans.length; i < mine.texts.length; ++i) {
      const node = i < first ? null : el('span', { title: `token ${i}` }, visible(mine.texts[i]));
      this.spans.push({ node, tier: '', part: -1 });
    }
    this.spans.forEach((span, i) => {
      if (!span.node) return;
      const tier = i < moment.tiers.length ? `t${moment.tiers[i]}` : 'later';
      if (span.tier !== tier) span.node.className = span.tier = tier;
      const part = i < ends[0] ? 0 : i < ends[1] || now.inThought ? 1 : 2;
      if (span.part === part) return;
      const holder = this.texts[part];
      const atEnd = holder.scrollHeight - holder.scrollTop - holder.clientHeight < 40;
      holder.append(span.node);
      span.part = part;
      if (atEnd) holder.scrollTop = holder.scrollHeight;
    });
    const numThought = this.spans.filter(({ part }) => part === 1).length;
    this.names[0].textContent = `Prompt, ${countText(ends[0])} tokens`;
    this.names[1].textContent = `Thought, ${countText(numThought)} tokens`;
    this.parts[1].hidden = numThought === 0;
  }
}

// ---------------------------------------------------------------- the tab

export class ServerView {
  // needsKey(): called when the feeds refuse the key or need one.
  constructor(element, needsKey) {
    this.needsKey = needsKey;
    this.link = el('p', { id: 'server-state', class: 'waits', role: 'status' }, 'connecting');
    this.about = el('p', { class: 'soft' });
    this.speedChart = el('canvas', { class: 'line', role: 'img', 'aria-label': 'Tokens per second of late' });
    this.figures = {
      speed: figure('tokens per second', 'speed', this.speedChart), decoding: figure('answering', 'decoding'),
      waiting: figure('waiting'), parked: figure('parked'), step: figure('time of a step'),
    };
    this.tiers = el('div');
    this.memoryChart = el('canvas', { class: 'chart', role: 'img' });
    this.since = el('span');
    this.requests = el('ul', { class: 'requests', 'aria-label': 'Requests', hidden: true });
    this.none = el('p', { class: 'soft' }, 'There are no requests. New requests appear here, with the tiers of their tokens.');
    this.fate = new FateView();
    const kinds = [['', 'needed by running requests'], ['shared', 'prompts kept for later requests'],
                   ['elastic', 'given up first; in T1: of parked requests'], ['reserved', 'reserved for running requests, not in use yet']];
    element.append(
      el('div', { class: 'about' }, this.about, this.link),
      el('section', { class: 'figures', 'aria-label': 'Now' }, ...Object.values(this.figures).map((one) => one.element)),
      el('section', {}, el('h2', {}, 'Memory'), el('div', { class: 'card' }, this.tiers,
        el('p', { class: 'legend' }, ...kinds.map(([kind, name]) => el('span', {}, el('i', { class: `mark t0 ${kind}` }), name))),
        this.memoryChart, caption(this.since, 'now'))),
      el('section', {}, el('h2', {}, 'Requests'), el('div', { class: 'card' }, legend(), this.requests, this.none)),
      this.fate.element, probe);
    this.status = null;
    this.lines = [];       // snapshots of the last two minutes: {at, speed, used}
    this.rows = new Map();  // rows of requests, by id
    this.selected = null;
    this.watching = null;  // an AbortController
    this.context = 0;      // tokens that a request may have; 0: not known yet
    new ResizeObserver(() => this.draw()).observe(element);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
  }

  // Shows the server's state as it changes, until stop().
  async start() {
    if (this.watching !== null) return;
    const { signal } = this.watching = new AbortController();
    if (this.selected !== null) this.fate.follow(() => this.status, signal);
    while (!signal.aborted) {
      try {
        for await (const snapshot of streamEvents('/v1/ebb/events', { cache: 'no-store', signal })) this.take(snapshot);
      } catch (error) {
        if (error.status === 401 || error.status === 403) {
          this.stop();
          this.tell('lost', 'an admin key is needed');
          return this.needsKey();
        }
        if (!signal.aborted) this.tell('lost', error.message);
      }
      await wait(1500);
    }
  }

  stop() {
    this.watching?.abort();
    this.watching = null;
  }

  tell(className, text) {
    this.link.className = className;
    this.link.textContent = text;
  }

  take(snapshot) {
    const before = this.status;
    this.status = snapshot;
    const passed = before ? snapshot.uptime_seconds - before.uptime_seconds : 0;
    if (passed < 0) this.lines.length = 0;  // the server was restarted
    const speed = passed > 0 ? (snapshot.generated_tokens - before.generated_tokens) / passed : 0;
    this.lines.push({ at: snapshot.uptime_seconds, speed, used: snapshot.tiers.map((tier) => tier.used_bytes) });
    if (this.lines.length > kKept) this.lines.shift();
    this.tell('live', 'live');
    this.draw();
  }

  draw() {
    if (this.status === null || this.watching === null) return;
    this.drawFigures();
    this.drawMemory();
    this.drawRequests();
    this.fate.draw();
  }

  drawFigures() {
    const { status, lines, figures } = this;
    const { requests } = status;
    const show = ({ value, note }, text, more) => {
      value.textContent = text;
      note.textContent = more;
    };
    this.about.textContent = `${status.model}${this.context ? `, context ${countText(this.context)} tokens` : ''}, up for ${secondsText(status.uptime_seconds)}`;
    // Averages over two seconds, since tokens come in steps.
    const recent = lines.filter(({ at }) => at > status.uptime_seconds - 2);
    const speed = sum(recent.map((line) => line.speed)) / Math.max(1, recent.length);
    const fastest = Math.max(...lines.map((line) => line.speed));
    show(figures.speed, speed.toFixed(speed < 10 ? 1 : 0), fastest > 0 ? `at most ${fastest.toFixed(fastest < 10 ? 1 : 0)} of late` : '');
    drawLine(this.speedChart, lines.map((line) => line.speed), Math.max(2, lines.length));
    show(figures.decoding, requests.decoding, requests.reading > 0 ? `${requests.reading} more read their prompt` : '');
    show(figures.waiting, requests.waiting, status.predicted_wait_seconds > 0
      ? `about ${secondsText(status.predicted_wait_seconds)} for a new one` : 'a new one begins at once');
    show(figures.parked, requests.parked, status.parks === 0 ? 'never so far' : status.parks === 1 ? 'once so far' : `${countText(status.parks)} times so far`);
    show(figures.step, status.seconds_per_step > 0 ? secondsText(status.seconds_per_step) : '–',
         `a prompt stalls answers ${secondsText(status.max_stall_seconds)} at most`);
  }

  drawMemory() {
    const { status, lines } = this;
    // Without caps, all bars use one scale, so that they can be compared.
    const largest = Math.max(1, ...status.tiers.map((tier) => Math.max(tier.used_bytes, tier.peak_bytes)));
    this.tiers.replaceChildren(...status.tiers.map((tier, index) => tierRow(status, tier, index, largest)));
    const most = Math.max(...lines.map(({ used }) => sum(used)));
    // The cap of T0, whose area is the lowest, is drawn if it does not flatten the areas.
    const cap = status.tiers[0].cap_bytes;
    const has_line = cap > 0 && cap < 4 * most;
    drawAreas(this.memoryChart, status.tiers.map((_, index) => lines.map(({ used }) => used[index])),
              Math.max(2, lines.length), has_line ? Math.max(most, cap) : most,
              { text: bytesText, line: has_line ? { value: cap, name: 'cap of T0' } : null });
    this.since.textContent = `${secondsText(status.uptime_seconds - lines[0].at)} ago`;
    this.memoryChart.setAttribute('aria-label', `Bytes of all tiers of late, at most ${bytesText(most)}`);
  }

  rowOf(id) {
    if (this.rows.has(id)) return this.rows.get(id);
    const row = { state: el('span', { class: 'state' }), canvas: el('canvas', { role: 'img', 'aria-label': `Tiers of the tokens of request ${id}` }),
                  share: el('span', { class: 'right share' }), speed: el('span', { class: 'right' }), age: el('span', { class: 'right' }) };
    row.button = el('button', { type: 'button', class: 'request', onclick: () => this.select(this.selected === id ? null : id) },
                     el('span', { class: 'number-of' }, `#${id}`), row.state, el('span', { class: 'strip' }, row.canvas),
                     row.share, row.speed, row.age);
    row.element = el('li', {}, row.button);
    this.requests.append(row.element);
    this.rows.set(id, row);
    return row;
  }

  drawRequests() {
    const { jobs } = this.status;
    for (const [id, row] of this.rows) {
      if (jobs.some((job) => job.id === id)) continue;
      row.element.remove();
      this.rows.delete(id);
    }
    this.none.hidden = jobs.length > 0;
    this.requests.hidden = jobs.length === 0;
    for (const job of jobs) {
      const row = this.rowOf(job.id);
      const [name, more] = stateOf(job);
      row.state.replaceChildren(`${name} `, el('small', {}, more));
      row.canvas.hidden = !job.strip;
      const area = areaOf(row.canvas);
      if (job.strip) drawTiers(area, job.strip, area.height);
      row.share.textContent = job.state === 'waiting' ? '' : `${Math.round(shareOfT0(job) * 100)} % T0`;
      row.speed.textContent = speedText(job);
      row.age.textContent = secondsText(job.age_seconds);
      row.button.setAttribute('aria-pressed', this.selected === job.id);
      row.button.setAttribute('aria-label', `Request ${job.id}, ${name.slice(2)}, ${more}`);
    }
    if (this.selected === null && jobs.length > 0 && this.fate.fate === null) this.select(jobs[0].id);
  }

  select(id) {
    this.selected = id;
    this.fate.show(id);
    if (id !== null) this.fate.follow(() => this.status, this.watching.signal);
    this.draw();
  }
}
