// Makes elements. Text is always set as text, never parsed.

export const $ = (id) => document.getElementById(id);

export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, '');
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

const kIcons = {
  close: 'M6 6l12 12M18 6L6 18',
  menu: 'M4 7h16M4 12h16M4 17h16',
  settings: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M8 8h8v8H8z',
  down: 'M12 5v14M6 13l6 6 6-6',
  copy: 'M9 9h10v10H9zM5 15V5h10',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  edit: 'M4 20l1-4L16.5 4.5l3 3L8 19z',
  again: 'M19 8a8 8 0 1 0 1 6M20 4v5h-5',
  compare: 'M4 5h6v14H4zM14 5h6v14h-6z',
  left: 'M14 6l-6 6 6 6',
  right: 'M10 6l6 6-6 6',
  trash: 'M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13',
  file: 'M6 3h8l4 4v14H6zM14 3v4h4',
  attach: 'M20 11l-8 8a5 5 0 0 1-7-7l8.5-8.5a3.4 3.4 0 0 1 4.8 4.8L10 16.6a1.7 1.7 0 0 1-2.4-2.4L15 7',
  go: 'M8 5l10 7-10 7z',
};

export function icon(name) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  path.setAttribute('d', kIcons[name]);
  svg.append(path);
  return svg;
}

export function iconButton(name, label, onclick, attributes = {}) {
  return el('button', { type: 'button', class: 'icon', 'aria-label': label, title: label, onclick,
                        ...attributes }, icon(name));
}

const kUnits = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
export function bytesText(bytes) {
  let unit = 0;
  for (; bytes >= 1024 && unit < kUnits.length - 1; ++unit) bytes /= 1024;
  return `${unit === 0 || bytes >= 100 ? Math.round(bytes) : bytes.toFixed(1)} ${kUnits[unit]}`;
}

const kCount = new Intl.NumberFormat('en');
export function countText(count) { return kCount.format(count); }

export function plural(count, word) { return `${countText(count)} ${word}${count === 1 ? '' : 's'}`; }

export function rateText(speed) { return `${speed.toFixed(speed < 20 ? 1 : 0)} tokens/s`; }

async function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  // A page loaded over plain HTTP from another machine has no navigator.clipboard.
  const area = el('textarea', { class: 'skip' });
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
}

export async function copyText(text, button) {
  await toClipboard(text);
  button.replaceChildren(icon('check'));
  button.classList.add('done');
  setTimeout(() => {
    button.replaceChildren(icon('copy'));
    button.classList.remove('done');
  }, 1500);
}
