// Makes the elements of one message. MarkdownView draws a growing answer piece by piece; a thought
// is drawn only once the reader opens it.

import { contentOf } from './conversation.js';
import { copyText, el, icon, iconButton, plural, rateText } from './dom.js';
import { sentFiles } from './files.js';
import { MarkdownView } from './markdown.js';
import { bar, savedText } from './memory.js';
import { describe } from './settings.js';

const drawnOf = ({ text, thought, finish, error }, siblings) =>
  [text.length, thought?.length, finish, error, ...siblings.map(({ id }) => id)].join();

const kLongText = 4000;  // characters of a question that is shown in part

// actions: {edit, again, goOn, compare, show, drawn}.
export class MessageView {
  constructor(node, siblings, actions, t1) {
    this.node = node;
    this.actions = actions;
    this.t1 = t1;
    const is_user = node.role === 'user';
    this.element = el('article', { class: `message ${node.role}`, 'data-id': node.id,
                                   'aria-label': is_user ? 'You' : 'Model' });
    this.buttons = el('div', { class: 'buttons' });
    if (is_user) {
      this.text = el('div', { class: 'bubble', hidden: node.text === '' }, node.text);
      this.element.append(...sentFiles(node.files ?? []), this.text);
      if (node.text.length > kLongText) this.fold();
    } else {
      this.makeAnswer();
    }
    this.element.append(el('footer', {}, this.makeSwitch(siblings), this.buttons, this.facts ?? null));
    this.makeButtons();
    this.siblings = siblings;
    this.drawn = drawnOf(node, siblings);
  }

  // Returns whether the message still looks as drawn. A message that is being generated or edited
  // here keeps its element.
  shows(node, siblings) {
    const is_kept = this.isRunning || this.element.classList.contains('edited');
    return node === this.node && (is_kept || this.drawn === drawnOf(node, siblings));
  }

  // Shows the beginning of a long question, with a button for the rest.
  fold() {
    this.text.classList.add('folded');
    const button = el('button', { type: 'button', class: 'toggle small', 'aria-expanded': 'false', onclick: () => {
      const is_folded = this.text.classList.toggle('folded');
      button.textContent = is_folded ? 'Show all of it' : 'Show less';
      button.setAttribute('aria-expanded', !is_folded);
    } }, 'Show all of it');
    this.element.append(button);
  }

  makeAnswer() {
    const { node } = this;
    this.thoughtName = el('span');
    this.thoughtText = el('div', { class: 'text' });
    this.thought = el('details', { class: 'thought', hidden: !node.thought, ontoggle: () => this.openThought() },
                      el('summary', {}, this.thoughtName), this.thoughtText);
    this.thoughtView = null;
    this.wait = el('p', { class: 'wait', hidden: true }, el('i'), el('i'), el('i'), el('span'));
    this.text = el('div', { class: 'text' });
    this.view = new MarkdownView(this.text, () => this.actions.drawn(this));
    this.error = el('p', { class: 'error', hidden: true });
    this.facts = el('div', { class: 'facts soft' });
    this.element.append(this.thought, this.wait, this.text, this.error);
    if (node.text) {
      this.view.source = node.text;
      this.view.finish();
    }
    this.nameThought();
    this.showEnd();
  }

  makeSwitch(siblings) {
    if (siblings.length < 2) return null;
    const at = siblings.indexOf(this.node);
    const go = (step) => this.actions.show(siblings[at + step].id, step < 0 ? 'left' : 'right');
    return el('div', { class: 'switch', role: 'group', 'aria-label': 'Branches' },
              iconButton('left', 'Previous branch', () => go(-1), { disabled: at === 0, 'data-go': 'left' }),
              el('span', { 'aria-label': `Branch ${at + 1} of ${siblings.length}` }, `${at + 1} / ${siblings.length}`),
              iconButton('right', 'Next branch', () => go(1),
                         { disabled: at === siblings.length - 1, 'data-go': 'right' }));
  }

  makeButtons() {
    const { node, actions } = this;
    const copy = iconButton('copy', 'Copy', () => copyText(contentOf(node), copy));
    if (node.role === 'user') {
      this.buttons.replaceChildren(copy, iconButton('edit', 'Edit, and answer again', () => this.edit()));
      return;
    }
    this.buttons.hidden = this.isRunning === true;
    const goOn = node.cut && !node.refused ? iconButton('go', 'Continue this answer', () => actions.goOn(node)) : null;
    const compare = el('button', { type: 'button', class: 'toggle small', onclick: () => actions.compare(node),
                                   title: 'Answer the same message under another setting' }, icon('compare'), 'Compare');
    this.buttons.replaceChildren(...[
      copy, iconButton('again', 'Answer again', () => actions.again(node)), goOn,
      node.trace?.ids.length > 0 && !node.continued ? compare : null].filter(Boolean));
  }

  edit() {
    const area = el('textarea', { 'aria-label': 'Edit the message', rows: 1 });
    area.value = this.node.text;
    const end = () => {
      form.remove();
      this.element.classList.remove('edited');
      this.buttons.querySelector('[aria-label^=Edit]').focus();
    };
    const submit = (event) => {
      event?.preventDefault();
      const text = area.value.trim();
      if (text !== '' || this.node.files?.length > 0) this.actions.edit(this.node, text);
    };
    const form = el('form', { class: 'edit', onsubmit: submit }, area, el('div', { class: 'actions' },
      el('span', { class: 'soft grow' }, 'The message as it was stays as a branch.'),
      el('button', { type: 'button', onclick: end }, 'Cancel'), el('button', { type: 'submit', class: 'primary' }, 'Send')));
    area.addEventListener('keydown', (event) => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        end();
      }
      if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) submit(event);
    });
    this.element.classList.add('edited');
    this.element.prepend(form);
    grow(area);
    area.addEventListener('input', () => grow(area));
    area.focus();
  }

  // Marks the answer as running, when it begins or is continued.
  begin() {
    this.isRunning = true;
    this.element.setAttribute('aria-busy', 'true');
    this.buttons.hidden = true;
    this.error.hidden = true;
    this.showWait('');
  }

  showWait(text) {
    this.wait.hidden = false;
    this.wait.lastElementChild.textContent = text;
  }

  addThought(text) {
    this.wait.hidden = true;
    this.thought.hidden = false;
    this.element.classList.add('thinking');
    this.thoughtView?.append(text);
    this.nameThought();
  }

  addText(text) {
    this.wait.hidden = true;
    if (this.element.classList.contains('thinking')) {
      this.element.classList.remove('thinking');
      this.thoughtView?.finish();
      this.nameThought();
    }
    this.view.append(text);
  }

  end() {
    this.isRunning = false;
    this.element.removeAttribute('aria-busy');
    this.element.classList.remove('thinking');
    this.wait.hidden = true;
    this.thoughtView?.finish();
    this.view.finish();
    this.nameThought();
    this.makeButtons();
    this.showEnd();
    this.drawn = drawnOf(this.node, this.siblings);
  }

  nameThought() {
    const { thoughtTokens } = this.node;  // unknown for a session of another browser
    const count = thoughtTokens === undefined ? '' : plural(thoughtTokens, 'token');
    const is_thinking = this.element.classList.contains('thinking');
    this.thoughtName.textContent = is_thinking ? `Thinking, ${count}` : count === '' ? 'Thought' : `Thought for ${count}`;
  }

  openThought() {
    if (!this.thought.open || this.thoughtView !== null) return;
    this.thoughtView = new MarkdownView(this.thoughtText, () => this.actions.drawn(this));
    this.thoughtView.append(this.node.thought ?? '');
    if (!this.isRunning) this.thoughtView.finish();
  }

  showEnd() {
    const { node } = this;
    this.error.hidden = !node.error;
    this.error.textContent = node.error ?? '';
    const facts = [];
    if (node.tokens) facts.push(plural(node.tokens, 'token'));
    if (node.cachedTokens) facts.push(`${plural(node.cachedTokens, 'prompt token')} from the cache`);
    if (node.speed) facts.push(rateText(node.speed));
    if (node.finish === 'length') facts.push('cut off at the most tokens');
    if (node.finish === 'stopped') facts.push('stopped');
    const asked = describe({ ...node.asked, system: undefined });
    if (asked) facts.push(asked);
    this.facts.replaceChildren(el('span', {}, facts.join(' · ')));
    if (node.memory) {
      this.facts.append(el('span', { class: 'where' }, bar(node.memory, this.t1), savedText(node.memory, this.t1)));
    }
  }

  // Returns the drawn parts of the message, for tint().
  parts() {
    const { node } = this;
    if (node.role === 'user') return [{ element: this.text, text: node.text }];
    const parts = [];
    if (node.thought && this.thoughtView !== null) parts.push({ element: this.thoughtText, text: node.thought });
    if (node.text) parts.push({ element: this.text, text: node.text });
    return parts;
  }
}

// Makes a text field as high as its text.
export function grow(area) {
  area.style.height = 'auto';
  area.style.height = `${Math.min(area.scrollHeight + 2, innerHeight * 0.4)}px`;
}
