// Shows the list of conversations: a link for each, with a dot while it is being answered.

import { el, iconButton } from './dom.js';

export class ConversationList {
  // opened(): called when a link is followed. remove(conversation): called to delete one.
  constructor(element, { opened, remove }) {
    this.element = element;
    this.opened = opened;
    this.remove = remove;
    this.rows = new WeakMap();
  }

  rowOf(conversation) {
    const dot = el('i', { class: 'busy', role: 'img', 'aria-label': 'Answering', title: 'Answering' });
    const name = el('span');
    const link = el('a', { class: 'row', href: `#${conversation.id}`, onclick: this.opened }, dot, name);
    const trash = iconButton('trash', '', () => this.remove(conversation));
    return { dot, name, link, trash, item: el('li', {}, link, trash) };
  }

  // Existing rows keep their elements, so that the focus stays.
  show(conversations, current, isBusy) {
    const items = conversations.map((conversation) => {
      const row = this.rows.get(conversation) ?? this.rowOf(conversation);
      this.rows.set(conversation, row);
      row.name.textContent = conversation.title || 'New chat';
      row.dot.hidden = !isBusy(conversation);
      row.trash.ariaLabel = row.trash.title = `Delete “${conversation.title}”`;
      conversation === current ? row.link.setAttribute('aria-current', 'page') : row.link.removeAttribute('aria-current');
      return row.item;
    });
    const { element } = this;
    if (items.length === element.children.length && items.every((item, i) => item === element.children[i])) return;
    const focused = element.contains(document.activeElement) ? document.activeElement : null;
    element.replaceChildren(...items);
    if (focused?.isConnected) focused.focus();
  }
}
