// Shows the list of conversations: a link for each, with a dot while it is being answered, and
// buttons to rename and to delete it. On a phone, the sidebar with this list slides over the page.

import { $, el, iconButton } from './dom.js';

function openSidebar() {
  document.body.classList.add('with-sidebar');
  document.querySelector('main').inert = $('memory').inert = true;
  $('open-sidebar').setAttribute('aria-expanded', 'true');
  $('shade').hidden = false;
  $('close-sidebar').focus();
}

export function closeSidebar() {
  if (!document.body.classList.contains('with-sidebar')) return;
  document.body.classList.remove('with-sidebar');
  document.querySelector('main').inert = $('memory').inert = false;
  $('open-sidebar').setAttribute('aria-expanded', 'false');
  $('shade').hidden = true;
  $('open-sidebar').focus();
}

export function listenToSidebar() {
  $('open-sidebar').addEventListener('click', openSidebar);
  $('close-sidebar').addEventListener('click', closeSidebar);
  $('shade').addEventListener('click', closeSidebar);
}

export class ConversationList {
  // opened(): called when a link is followed. rename(conversation, title), remove(conversation).
  constructor(element, { opened, rename, remove }) {
    Object.assign(this, { element, opened, rename, remove });
    this.rows = new WeakMap();
  }

  rowOf(conversation) {
    const dot = el('i', { class: 'busy', role: 'img', 'aria-label': 'Answering', title: 'Answering' });
    const name = el('span');
    const link = el('a', { class: 'row', href: `#${conversation.id}`, onclick: this.opened }, dot, name);
    const row = { dot, name, link };
    row.edit = iconButton('edit', '', () => this.askForTitle(conversation, row));
    row.trash = iconButton('trash', '', () => this.remove(conversation));
    row.item = el('li', {}, link, row.edit, row.trash);
    return row;
  }

  askForTitle(conversation, { link, item, edit }) {
    const field = el('input', { class: 'title', 'aria-label': 'Title of the chat', maxlength: 120 });
    field.value = conversation.title;
    let is_over = false;  // removing the field takes the focus from it, which ends the edit too
    const end = (isKept) => {
      if (is_over) return;
      is_over = true;
      const had_focus = field === document.activeElement;
      field.replaceWith(link);
      if (isKept && field.value.trim() !== '') this.rename(conversation, field.value.trim());
      if (had_focus) edit.focus();
    };
    field.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' && event.key !== 'Escape') return;
      event.stopPropagation();
      end(event.key === 'Enter');
    });
    field.addEventListener('blur', () => end(true));
    link.replaceWith(field);
    field.select();
    field.focus();
  }

  // Existing rows keep their elements, so that the focus stays.
  show(conversations, current, isBusy) {
    const items = conversations.map((conversation) => {
      const row = this.rows.get(conversation) ?? this.rowOf(conversation);
      this.rows.set(conversation, row);
      row.name.textContent = conversation.title || 'New chat';
      row.dot.hidden = !isBusy(conversation);
      row.edit.ariaLabel = row.edit.title = `Rename “${conversation.title}”`;
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
