// Answers one message again with other settings, shows both answers next to each other, and marks
// the first token that differs.

import { streamChat } from './api.js';
import { countText, el, icon, plural, rateText } from './dom.js';
import { bar, savedText } from './memory.js';
import { SettingsForm, describe, presets, requestFields } from './settings.js';

// Side shows one answer's tokens as text: the tokens common to both sides, the first that differs,
// and the rest.
class Side {
  constructor(title) {
    this.ids = [];
    this.texts = [];
    this.differs = -1;
    this.name = el('p', { class: 'soft' });
    this.same = el('span', { class: 'same' });
    this.mark = el('mark', { hidden: true });
    this.rest = el('span');
    this.text = el('div', { class: 'plain', tabindex: 0 }, this.same, this.mark, this.rest);
    this.facts = el('div', { class: 'facts soft' });
    this.element = el('section', { class: 'side' }, el('h3', {}, title), this.name, this.text, this.facts);
  }

  add(id, text) {
    this.ids.push(id);
    this.texts.push(text);
    const part = this.differs < 0 ? this.same : this.rest;
    part.firstChild === null ? part.append(text) : part.firstChild.appendData(text);
  }

  fill(ids, texts) {
    this.ids = ids;
    this.texts = texts;
    this.same.textContent = texts.join('');
  }

  // Marks the token at index `at` as the first that differs; the answer may have ended before it.
  markAt(at) {
    if (this.differs >= 0) return;
    this.differs = at;
    this.same.textContent = this.texts.slice(0, at).join('');
    this.mark.hidden = false;
    const text = this.texts[at] ?? '∎';  // the answer has ended
    this.mark.textContent = /^\s+$/.test(text) ? text.replaceAll('\n', '↵').replaceAll(' ', '·') : text || '∅';
    this.rest.textContent = this.texts.slice(at + 1).join('');
  }

  showMemory(report, t1, speed) {
    this.facts.replaceChildren(el('span', {}, [plural(this.ids.length, 'token'),
      speed ? rateText(speed) : null].filter(Boolean).join(' · ')));
    if (report) this.facts.append(el('span', { class: 'where' }, bar(report, t1), savedText(report, t1)));
  }
}

// Opens the dialog. node: the answer. messages: the chat before it. keep(answer): adds the other
// answer as a branch.
export function openCompare(dialog, { node, messages, props, t1, keep }) {
  const here = new Side('This answer');
  here.fill(node.trace.ids, node.trace.texts);
  here.name.textContent = describe({ ...node.asked, system: undefined }) || 'the server’s settings';
  here.showMemory(node.memory, t1, node.speed);
  const there = new Side('Under another setting');
  const base = { ...node.asked };
  if (node.seed !== undefined) base.seed = String(node.seed);
  const form = new SettingsForm(base, props);
  let controller = null;
  let answer = null;

  const verdict = el('p', { class: 'verdict', role: 'status' }, 'Choose a setting.');
  const choose = el('div', { class: 'presets', role: 'group', 'aria-label': 'Settings to compare with' });
  for (const [name, settings] of presets(props.ebb)) {
    choose.append(el('button', { type: 'button', class: 'toggle', onclick: () => {
      form.clear();
      form.fill({ ...base, ...settings });
      run(name);
    } }, name));
  }
  const more = el('details', {}, el('summary', {}, 'Other settings'), form.element,
    el('div', { class: 'actions' }, el('button', { type: 'button', class: 'primary', onclick: () => run() }, 'Answer under these')));
  const stop = el('button', { type: 'button', hidden: true, onclick: () => controller?.abort() }, 'Stop');
  const again = el('button', { type: 'button', hidden: true, onclick: () => reset() }, 'Another setting');
  const keepButton = el('button', { type: 'button', hidden: true, onclick: () => {
    keep(answer);
    dialog.close();
  } }, 'Keep as a branch');
  const setup = el('div', { class: 'setup' }, choose, more);
  there.text.hidden = true;
  there.element.insertBefore(setup, there.text);

  const differsAt = () => {
    const length = Math.min(here.ids.length, there.ids.length);
    const from = Math.max(0, there.checked ?? 0);
    for (let i = from; i < length; ++i) if (here.ids[i] !== there.ids[i]) return i;
    there.checked = length;
    return there.ids.length > here.ids.length ? here.ids.length : -1;
  };
  const check = () => {
    if (there.differs >= 0) return;
    const at = differsAt();
    if (at < 0) {
      verdict.textContent = `The same so far: ${plural(there.ids.length, 'token')}.`;
      return;
    }
    here.markAt(at);
    there.markAt(at);
    verdict.textContent = `The same for ${plural(at, 'token')}; token ${countText(at + 1)} differs.`;
    verdict.className = 'verdict differs';
    for (const side of [here, there]) side.mark.scrollIntoView({ block: 'nearest' });
  };

  const reset = () => {
    here.differs = -1;
    here.mark.hidden = true;
    here.rest.textContent = '';
    here.fill(here.ids, here.texts);
    setup.hidden = false;
    there.text.hidden = again.hidden = keepButton.hidden = true;
    there.name.textContent = '';
    there.facts.replaceChildren();
    verdict.className = 'verdict';
    verdict.textContent = 'Choose a setting.';
    choose.firstElementChild.focus();
  };

  // name: of the preset, if one was chosen.
  async function run(name = '') {
    const settings = form.values();
    Object.assign(there, { ids: [], texts: [], differs: -1, checked: 0 });
    there.same.textContent = there.rest.textContent = '';
    there.mark.hidden = true;
    there.name.textContent = [name, describe(settings) || 'the server’s settings'].filter(Boolean).join(': ');
    setup.hidden = true;
    there.text.hidden = stop.hidden = false;
    stop.focus();
    verdict.className = 'verdict';
    verdict.textContent = 'Reading the prompt…';
    controller = new AbortController();
    answer = { role: 'assistant', parent: node.parent, text: '', thought: '', asked: settings, trace: { ids: [], texts: [] } };
    let report = null;
    try {
      for await (const event of streamChat({ messages, ...requestFields(settings) }, controller.signal)) {
        const delta = event.choices[0]?.delta ?? {};
        answer.thought += delta.reasoning_content ?? '';
        answer.text += delta.content ?? '';
        for (const { id, text } of event.ebb?.tokens ?? []) there.add(id, text);
        if (event.ebb?.prompt) answer.prompt = event.ebb.prompt;
        if (event.ebb?.memory) {
          report = event.ebb.memory;
          there.showMemory(report, t1);
        }
        if (event.ebb?.seed !== undefined) answer.seed = event.ebb.seed;
        if (event.choices[0]?.finish_reason) {
          answer.finish = event.choices[0].finish_reason;
          answer.speed = event.timings?.predicted_per_second;
        }
        if (event.usage) {
          answer.tokens = event.usage.completion_tokens;
          answer.thoughtTokens = event.usage.completion_tokens_details.reasoning_tokens;
        }
        if (event.ebb?.tokens) check();
      }
      if (there.differs < 0) {
        if (there.ids.length === here.ids.length) {
          verdict.textContent = `The same answer: all ${plural(there.ids.length, 'token')}.`;
          verdict.className = 'verdict alike';
        } else {
          here.markAt(there.ids.length);
          there.markAt(there.ids.length);
          verdict.textContent = `The same for ${plural(there.ids.length, 'token')}, where this one ends.`;
          verdict.className = 'verdict differs';
        }
      }
      if (node.promptTokens !== undefined && answer.prompt && answer.prompt.length !== node.promptTokens) {
        verdict.textContent += ' The prompts differ: the session of this answer keeps earlier thoughts.';
      }
      keepButton.hidden = false;
    } catch (error) {
      verdict.className = 'verdict error';
      verdict.textContent = error.name === 'AbortError' ? `${verdict.textContent} Stopped.` : error.message;
    }
    answer.trace = { ids: there.ids, texts: there.texts };
    answer.memory = report;
    there.showMemory(report, t1, answer.speed);
    stop.hidden = true;
    again.hidden = false;
    again.focus();
  }

  dialog.onclose = () => controller?.abort();
  dialog.replaceChildren(
    el('div', { class: 'head' }, el('h2', { id: 'compare-title' }, 'Compare'), verdict, el('span', { class: 'grow' }),
       keepButton, again, stop,
       el('button', { type: 'button', class: 'icon', 'aria-label': 'Close', onclick: () => dialog.close() }, icon('close'))),
    el('div', { class: 'sides' }, here.element, there.element));
  dialog.showModal();
  choose.firstElementChild.focus();
}
