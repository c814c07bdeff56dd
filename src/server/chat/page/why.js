// Shows why a token is in its tier, from the server's answer about each of its rows.

import { get } from './api.js';
import { countText, el, plural } from './dom.js';

const kUnknown = 'Only its tier is known: the server has the cache of a finished answer no more. With ' +
  '“ebb serve --sessions file:FOLDER” it keeps it for some minutes; while an answer is being generated, it is always there.';

// Returns the server's answer about the token at `position` of the answer `node`. Errors: ApiError.
export function askWhy(node, position, isRunning) {
  if (isRunning && node.request) return get(`/v1/requests/${encodeURIComponent(node.request)}/tokens/${position}`);
  if (node.session) return get(`/v1/sessions/${encodeURIComponent(node.session)}/tokens/${position}`);
  return Promise.reject(new Error(kUnknown));
}

const placeOf = ({ layer, kv_head }) =>
  layer === undefined ? 'all layers' : kv_head === undefined ? `layer ${layer}` : `layer ${layer}, head ${kv_head}`;

// WhyView is a form that asks for a token by its number, and the answer.
export class WhyView {
  // ask(position): returns a promise of {token, tier, reasons}.
  constructor(ask) {
    this.ask = ask;
    this.number = el('input', { type: 'number', min: 1, step: 1, required: true, 'aria-label': 'Number of the token' });
    this.form = el('form', { onsubmit: (event) => {
      event.preventDefault();
      this.show(Number(this.number.value) - 1);
    } }, el('span', {}, 'Token'), this.number, el('button', { type: 'submit' }, 'Why here?'));
    this.answer = el('div', { class: 'answer', role: 'status' });
    this.element = el('section', { class: 'why', 'aria-label': 'Why is a token in its tier?' }, this.form, this.answer);
  }

  setCount(count) { this.number.max = count; }

  clear() { this.answer.replaceChildren(); }

  // position: of the token, from 0 on. The page counts tokens from 1 on.
  async show(position) {
    const mine = this.asked = {};
    this.number.value = position + 1;
    const { token, tier, reasons } = this.ask(position);
    const head = el('p', { class: 'token' }, el('b', {}, `Token ${countText(position + 1)} `), el('code', {}, JSON.stringify(token).slice(1, -1)),
                    tier === undefined ? '' : ` in T${tier}`);
    this.answer.replaceChildren(head);
    try {
      const { groups } = await reasons;
      if (mine === this.asked) this.answer.append(...this.drawReasons(groups));
    } catch (error) {
      if (mine === this.asked) this.answer.append(el('p', { class: 'soft note' }, error.status === 404 ? kUnknown : error.message));
    }
  }

  drawReasons(groups) {
    if (groups.length === 0) return [el('p', { class: 'note' }, 'The policy of this chat moves nothing: each token stays where it was written.')];
    const byTier = new Map();
    for (const one of groups) byTier.has(one.tier) ? byTier.get(one.tier).push(one) : byTier.set(one.tier, [one]);
    const tiers = [...byTier].sort((a, b) => b[1].length - a[1].length);
    const what = groups[0].layer === undefined ? 'decision' : groups[0].kv_head === undefined ? 'layer' : 'head';
    const parts = tiers.map(([tier, some]) => {
      const share = groups.length === 1 ? '' : `${countText(some.length)} of ${plural(groups.length, what)}`;
      const first = groups.length === 1 ? some[0].why : `${placeOf(some[0])}: ${some[0].why}`;
      return el('p', { class: `note tier t${tier[1]}` }, el('i'), el('b', {}, tier), ` ${share}`, el('small', {}, `By the rule now: ${first}`));
    });
    if (groups.length === 1) return parts;
    const all = el('details', {}, el('summary', {}, `All ${plural(groups.length, what)}`),
                   el('ul', { tabindex: 0 }, ...groups.map((one) => el('li', {}, `${placeOf(one)}: ${one.tier}. ${one.why}`))));
    return [...parts, all];
  }
}
