// Composer is the message field: its text, the files that go with it, and the draft of each chat,
// which this browser keeps until it is sent.

import { $, el } from './dom.js';
import { chips, kLongPaste, pastedName, readFile } from './files.js';
import { grow } from './messages.js';

// kText and kFiles are the keys of a draft's text and files, before the id of the chat; a new chat
// has none. The text is stored with each letter, the files, which may be large, when they change.
const kText = 'ebb-draft:';
const kFiles = 'ebb-draft-files:';

// Stores `text`, or removes the key if it is empty.
function store(key, text) {
  try {
    text === '' ? localStorage.removeItem(key) : localStorage.setItem(key, text);
  } catch { /* too large for this browser: it lasts as long as the page */ }
}

const kIdeas = [
  'How many primes are there below 50? Think step by step.',
  'Write a Python function that finds the longest palindrome in a text, and explain it.',
  'Derive the solution of a quadratic equation, with formulas.',
];

export class Composer {
  // submit({text, files}) sends a message and returns whether it did. changed(): the field has other
  // contents. say(text): shows an error of a file.
  constructor({ submit, changed, say }) {
    Object.assign(this, { submit, changed, say, files: [], chat: '' });
    this.input = $('input');
    this.input.addEventListener('input', () => this.edited());
    this.input.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    $('composer').addEventListener('submit', (event) => {
      event.preventDefault();
      this.send();
    });
    $('ideas').append(...kIdeas.map((text) => el('button', { type: 'button', onclick: () => this.write(text) }, text)));
    this.listenForFiles();
  }

  listenForFiles() {
    $('attach').addEventListener('click', () => $('picker').click());
    $('picker').addEventListener('change', () => {
      this.add([...$('picker').files]);
      $('picker').value = '';
    });
    this.input.addEventListener('paste', (event) => {
      const { files } = event.clipboardData;
      const text = event.clipboardData.getData('text/plain');
      if (files.length === 0 && text.length <= kLongPaste) return;
      event.preventDefault();
      if (text.length > kLongPaste) this.take({ name: pastedName(this.files), text });
      else this.add([...files]);
    });
    const main = document.querySelector('main');
    const brings = (event) => event.dataTransfer?.types.includes('Files') && !$('composer').hidden;
    main.addEventListener('dragover', (event) => {
      if (!brings(event)) return;
      event.preventDefault();
      main.classList.add('drop');
    });
    main.addEventListener('dragleave', (event) => {
      if (!main.contains(event.relatedTarget)) main.classList.remove('drop');
    });
    main.addEventListener('drop', (event) => {
      main.classList.remove('drop');
      if (!brings(event)) return;
      event.preventDefault();
      this.add([...event.dataTransfer.files]);
    });
  }

  get isEmpty() { return this.input.value.trim() === '' && this.files.length === 0; }

  async add(files) {
    for (const file of files) {
      try {
        this.take(await readFile(file));
      } catch (error) {
        this.say(error.message);
      }
    }
    this.input.focus();
  }

  take(file) { this.setFiles([...this.files, file]); }

  edited() {
    grow(this.input);
    store(kText + this.chat, this.input.value.trim() && this.input.value);
    this.changed();
  }

  setFiles(files) {
    store(kFiles + this.chat, files.length === 0 ? '' : JSON.stringify(files));
    this.showFiles(files);
  }

  showFiles(files) {
    this.files = files;
    $('files').replaceChildren(...chips(files, (i) => {
      this.setFiles(files.filter((file) => file !== files[i]));
      this.input.focus();
    }));
    $('files').hidden = files.length === 0;
    this.changed();
  }

  // Shows the draft of a chat ('': a new one).
  open(chat) {
    if (this.chat === chat && !this.isEmpty) return;
    this.chat = chat;
    let text = null, files = null;
    try {
      text = localStorage.getItem(kText + chat);
      files = JSON.parse(localStorage.getItem(kFiles + chat));
    } catch { /* there is none */ }
    this.input.value = text ?? '';
    grow(this.input);
    this.showFiles(files ?? []);
  }

  forget(chat) { for (const key of [kText, kFiles]) store(key + chat, ''); }

  write(text) {
    this.input.value = text;
    this.edited();
    this.input.focus();
  }

  send() {
    if (this.isEmpty) return;
    const { chat, files, input: { value } } = this;
    if (!this.submit({ text: value.trim(), files })) return;
    this.forget(chat);
    this.input.value = '';
    this.edited();
    this.setFiles([]);
  }
}
