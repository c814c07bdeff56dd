// Reads the text files that a message brings with it, and shows them.

import { bytesText, el, icon, iconButton } from './dom.js';

const kMostBytes = 2 << 20;
// A pasted text with more characters becomes a file.
export const kLongPaste = 4000;

// Returns {name, text} of a file. Errors: it is too large, or no text in UTF-8.
export async function readFile(file) {
  if (file.size > kMostBytes) throw new Error(`${file.name} has ${bytesText(file.size)}: at most ${bytesText(kMostBytes)} are read.`);
  let text;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
  } catch { /* not UTF-8 */ }
  if (text === undefined || text.includes('\0')) throw new Error(`${file.name} is no text. This page sends text files only.`);
  return { name: file.name, text };
}

// Returns a name for a pasted text that `files` do not have.
export function pastedName(files) {
  const isTaken = (name) => files.some((file) => file.name === name);
  for (let i = 1; ; ++i) {
    const name = i === 1 ? 'pasted text.txt' : `pasted text ${i}.txt`;
    if (!isTaken(name)) return name;
  }
}

const sizeOf = ({ text }) => bytesText(new Blob([text]).size);

// Makes the chips of a message that is being written.
export function chips(files, remove) {
  return files.map((file, i) => el('li', {}, icon('file'), el('span', { class: 'name' }, file.name),
    el('small', { class: 'soft' }, sizeOf(file)), iconButton('close', `Remove ${file.name}`, () => remove(i))));
}

// Makes the files of a message that was sent; the text is drawn once the reader opens it.
export function sentFiles(files) {
  return files.map((file) => {
    const text = el('pre', { class: 'plain', tabindex: 0 });
    return el('details', { class: 'file', ontoggle: () => { text.textContent = file.text; } },
              el('summary', {}, icon('file'), el('span', { class: 'name' }, file.name), el('small', { class: 'soft' }, sizeOf(file))), text);
  });
}

// Lets the browser save `text` as a file.
export function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el('a', { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
