// Shows the memory panel: the tier of each of the conversation's tokens, and what the tiers save
// against a full cache.

import { bytesText, countText, el } from './dom.js';
import { WhyView } from './why.js';

export const kTiers = [
  { name: 'T0', what: 'fast memory, full precision' },
  { name: 'T1', what: 'the same bits' },
  { name: 'T2', what: 'compressed' },
  { name: 'T3', what: 'evicted' },
];
const kT1 = { file: 'in a file, the same bits', host: 'in host memory, the same bits' };

// Returns the numbers to show of a report `ebb.memory`.
export function summary(report, t1 = 'file') {
  const rows = report.rows;
  const total = rows.reduce((sum, some) => sum + some, 0) || 1;
  const inMemory = report.bytes[0] + report.bytes[2] + (t1 === 'file' ? 0 : report.bytes[1]);
  // Pages have free slots for later rows and may exceed full_bytes; the saving is then 0.
  const saved = Math.max(0, report.full_bytes - inMemory);
  return {
    shares: rows.map((some) => some / total),
    saved,
    savedShare: report.full_bytes > 0 ? saved / report.full_bytes : 0,
    inMemory,
  };
}

export function savedText(report, t1) {
  const { saved, savedShare, shares } = summary(report, t1);
  if (savedShare < 0.005) return shares[0] === 1 ? 'all rows in fast memory' : 'nothing saved yet';
  return `${bytesText(saved)} saved (${Math.round(savedShare * 100)} %)`;
}

// Makes a bar of the tiers' shares.
export function bar(report, t1) {
  const { shares } = summary(report, t1);
  const label = shares.map((share, tier) => `${kTiers[tier].name} ${Math.round(share * 100)} %`).join(', ');
  const element = el('div', { class: 'bar', role: 'img', 'aria-label': `Rows by tier: ${label}` });
  shares.forEach((share, tier) => {
    if (share === 0) return;
    const part = el('i', { class: `t${tier}` });
    part.style.flexGrow = share;
    element.append(part);
  });
  return element;
}

export class MemoryPanel {
  // ask(position): see WhyView.
  constructor(element, ask) {
    this.element = element;
    this.why = new WhyView(ask);
    this.t1 = 'file';
    this.amount = el('b', { class: 'amount' });
    this.against = el('span', { class: 'soft' });
    this.barBox = el('div');
    this.list = el('dl');
    this.canvas = el('canvas', { role: 'img' });
    this.mapNote = el('p', { class: 'soft note' });
    this.details = el('div', { class: 'details' }, this.list, el('h3', {}, 'Token by token'), this.canvas, this.mapNote,
                      this.why.element);
    this.canvas.addEventListener('click', (event) => this.whyAt(event.offsetX, event.offsetY));
    this.toggle = el('button', { type: 'button', class: 'summary', 'aria-expanded': 'false',
                                 onclick: () => this.expand() },
                     el('span', { class: 'name' }, 'Memory'), this.amount, this.against);
    this.filled = el('div', { class: 'filled', hidden: true }, this.toggle, this.barBox, this.details);
    element.append(el('h2', {}, 'Memory'), this.filled);
    this.report = null;
    new ResizeObserver(() => this.drawMap()).observe(element);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.drawMap());
  }

  expand() {
    const is_open = this.element.classList.toggle('open');
    this.toggle.setAttribute('aria-expanded', is_open);
    this.drawMap();
  }

  // Requests the reason why the token of the cell at this place of the map is in its tier.
  whyAt(x, y) {
    const { report, cells } = this;
    if (!report?.tiers || !cells) return;
    const i = Math.floor(y / cells.size) * cells.columns + Math.floor(x / cells.size);
    if (i < cells.count) this.why.show(Math.min(report.tokens - 1, Math.floor(i * report.tokens / cells.count)));
  }

  // Shows the answer for the token at `position`, and opens the panel if it is folded.
  async showWhy(position) {
    if (this.details.clientHeight === 0) this.expand();
    await this.why.show(position);
    this.element.scrollTop = this.element.scrollHeight;
  }

  // Shows the report of the answer with the id `of`.
  show(report, of) {
    if (of !== this.of) this.why.clear();
    this.of = of;
    this.why.setCount(report?.tokens ?? 0);
    this.report = report;
    this.filled.hidden = report === null;
    this.element.classList.toggle('none', report === null);
    if (report === null) return;
    const { saved, savedShare, shares, inMemory } = summary(report, this.t1);
    const is_less = savedShare >= 0.005;
    this.amount.textContent = is_less ? `${Math.round(savedShare * 100)} % saved` : bytesText(inMemory);
    this.against.textContent = is_less
      ? `${bytesText(inMemory)} of memory instead of ${bytesText(report.full_bytes)}, ${bytesText(saved)} less than a full cache`
      : `${countText(report.tokens)} tokens, ` +
        (shares[0] === 1 ? 'all in fast memory' : 'in pages that are not full yet: a full cache would take as much');
    this.barBox.replaceChildren(bar(report, this.t1));
    this.list.replaceChildren(...shares.flatMap((share, tier) => {
      const what = tier === 1 ? kT1[this.t1] ?? kTiers[1].what : kTiers[tier].what;
      const amount = tier === 3 ? `${Math.round(share * 100)} %`
                                : `${bytesText(report.bytes[tier])} · ${Math.round(share * 100)} %`;
      return [el('dt', { class: `t${tier}` }, el('i'), kTiers[tier].name, el('small', {}, what)), el('dd', {}, amount)];
    }));
    this.drawMap();
  }

  // Draws one cell for each token, or for several tokens if there is no room, from left to right
  // and down.
  drawMap() {
    const { report, canvas } = this;
    const tiers = report?.tiers;
    this.mapNote.hidden = this.canvas.hidden = !tiers;
    if (!tiers || canvas.clientWidth === 0) return;
    const scale = devicePixelRatio;
    const width = canvas.clientWidth, kMostHeight = 260;
    let cell = 8;
    const rowsOf = (size) => Math.ceil(tiers.length / Math.floor(width / size));
    while (cell > 2 && rowsOf(cell) * cell > kMostHeight) --cell;
    const columns = Math.floor(width / cell);
    const per = Math.max(1, Math.ceil(tiers.length / (columns * Math.floor(kMostHeight / cell))));
    const numCells = Math.ceil(tiers.length / per);
    const height = Math.ceil(numCells / columns) * cell;
    this.cells = { size: cell, columns, count: numCells };
    canvas.style.height = `${height}px`;
    canvas.width = width * scale;
    canvas.height = height * scale;
    const context = canvas.getContext('2d');
    context.scale(scale, scale);
    const style = getComputedStyle(this.element);
    const colours = [0, 1, 2, 3].map((tier) => style.getPropertyValue(`--t${tier}-plain`) || '#888');
    const is_dark = matchMedia('(prefers-color-scheme: dark)').matches;
    for (let i = 0; i < numCells; ++i) {
      context.fillStyle = colours[Number(tiers[i * per])];
      context.globalAlpha = tiers[i * per] === '3' ? 0.45 : is_dark ? 0.9 : 1;
      const gap = cell > 3 ? 1 : 0;
      context.fillRect((i % columns) * cell, Math.floor(i / columns) * cell, cell - gap, cell - gap);
    }
    const each = report.tokens / numCells;
    this.mapNote.textContent = each > 1.5
      ? `${countText(report.tokens)} tokens, ${Math.round(each)} in each cell`
      : `${countText(report.tokens)} tokens, the first at the top left`;
    const counts = [0, 0, 0, 0];
    for (const tier of tiers) ++counts[Number(tier)];
    canvas.setAttribute('aria-label', 'Tokens by the tier that most of their rows lie in: ' +
      counts.map((count, tier) => `${kTiers[tier].name} ${Math.round(count * 100 / tiers.length)} %`).join(', '));
  }
}
