// Converts the Markdown of a model to elements. The model's text is untrusted, so no HTML is ever
// parsed: marked splits the text into tokens, and this module makes elements from them. HTML is
// shown as text, images become links, and only http, https and mailto addresses are kept.
//
// MarkdownView draws a text that grows. Complete blocks are drawn once. Only the last block, which
// may still change, is drawn again; the longer drawing takes, the less often it is repeated.

import { copyText, el, icon } from './dom.js';

// Counts work since the page was loaded, for tests: characters parsed and blocks drawn.
export const work = { characters: 0, blocks: 0, renders: 0 };

// Match a formula between \( \), \[ \], $$ $$ or, if it does not look like money, $ $.
const kBlockMath = /^ {0,3}(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n|$)/;
const kInlineMath =
    /^(?:\$\$([^$]+?)\$\$|\\\[([\s\S]+?)\\\]|\\\(([\s\S]+?)\\\)|\$((?:[^$\s\\]|\\[^\n])(?:[^$\n]*?(?:[^$\s\\]|\\[^\n]))??)\$(?!\d))/;

const mathBlock = {
  name: 'mathBlock',
  level: 'block',
  start: (source) => source.match(/(?:^|\n) {0,3}(?:\$\$|\\\[)/)?.index,
  tokenizer(source) {
    const match = kBlockMath.exec(source);
    if (match === null) return undefined;
    return { type: 'mathBlock', raw: match[0], tex: match[1] ?? match[2] };
  },
};
const mathInline = {
  name: 'mathInline',
  level: 'inline',
  start: (source) => source.match(/\$|\\\(|\\\[/)?.index,
  tokenizer(source) {
    const match = kInlineMath.exec(source);
    if (match === null) return undefined;
    const display = match[1] ?? match[2];
    return { type: 'mathInline', raw: match[0], tex: display ?? match[3] ?? match[4], display };
  },
};

// Matches a footnote, "[^1]: its text", and a reference to one.
const kNote = /^\[\^([^\]\s]{1,32})\]:[ \t]+([^\n]+(?:\n(?![ \t]*\n|\[\^)[^\n]+)*)(?:\n|$)/;
const kNoteMark = /^\[\^([^\]\s]{1,32})\](?!:)/;
const note = {
  name: 'note',
  level: 'block',
  start: (source) => source.match(/(?:^|\n)\[\^/)?.index,
  tokenizer(source) {
    const match = kNote.exec(source);
    if (match === null) return undefined;
    return { type: 'note', raw: match[0], mark: match[1], tokens: this.lexer.inlineTokens(match[2]) };
  },
};
const noteMark = {
  name: 'noteMark',
  level: 'inline',
  start: (source) => source.match(/\[\^/)?.index,
  tokenizer(source) {
    const match = kNoteMark.exec(source);
    return match === null ? undefined : { type: 'noteMark', raw: match[0], mark: match[1] };
  },
};

let ready = false;
function configure() {
  if (ready) return;
  ready = true;
  marked.use({ gfm: true, extensions: [mathBlock, mathInline, note, noteMark] });
}

const kEntities = { amp: '&', lt: '<', gt: '>', quot: '"', nbsp: '\u00a0', '#39': "'" };
const kReference = /&(?:(amp|lt|gt|quot|nbsp|#39)|#(\d{1,6})|#x([\da-f]{1,5}));/gi;

// Returns the text of a token with the character references resolved by which marked escapes HTML.
function plain(text) {
  return text.replace(kReference, (whole, name, decimal, hexadecimal) => {
    if (name) return kEntities[name.toLowerCase()];
    const code = decimal ? Number(decimal) : parseInt(hexadecimal, 16);
    return code > 0 && code < 0x110000 && (code < 0xd800 || code > 0xdfff) ? String.fromCodePoint(code) : whole;
  });
}

// Matches tags without attributes that only mark up text.
const kHarmless = /^<(br|sub|sup|kbd|u|b|i|em|strong|s)\s*\/?>$/i;

// Makes the elements of tokens within a line.
function drawInline(tokens, into) {
  const open = [into];  // open harmless tags
  const add = (node) => open.at(-1).append(node);
  for (const token of tokens) {
    switch (token.type) {
      case 'strong': case 'em': case 'del':
        add(drawInline(token.tokens, el(token.type)));
        break;
      case 'codespan':
        add(el('code', {}, plain(token.text)));
        break;
      case 'br':
        add(el('br'));
        break;
      case 'link':
        add(drawLink(token.href, drawInline(token.tokens, el('a'))));
        break;
      case 'image':
        add(drawLink(token.href, el('a', { class: 'image' }, plain(token.text) || token.href)));
        break;
      case 'noteMark':
        add(el('sup', {}, token.mark));
        break;
      case 'mathInline':
        add(drawMath(el('span', { class: token.display === undefined ? 'math' : 'math display' }), token.tex));
        break;
      case 'html': {
        const name = kHarmless.exec(token.raw)?.[1]?.toLowerCase();
        const is_end = open.length > 1 && token.raw.toLowerCase() === `</${open.at(-1).localName}>`;
        if (is_end) {
          open.pop();
        } else if (name === undefined) {
          add(token.raw);
        } else {
          add(el(name));
          if (name !== 'br') open.push(open.at(-1).lastChild);
        }
        break;
      }
      default:
        if (token.tokens) drawInline(token.tokens, open.at(-1));
        else add(plain(token.text ?? token.raw));
    }
  }
  return into;
}

function drawLink(href, link) {
  let url = null;
  try {
    url = new URL(plain(href));
  } catch { /* not a whole address: it would lead into this server */ }
  if (url === null || !['http:', 'https:', 'mailto:'].includes(url.protocol)) return link;
  link.href = url.href;
  link.target = '_blank';
  link.rel = 'noopener noreferrer nofollow';
  return link;
}

function drawList(token) {
  const list = el(token.ordered ? 'ol' : 'ul', { start: token.ordered && token.start !== 1 ? token.start : null });
  for (const item of token.items) {
    const line = el('li', { class: item.task ? 'task' : null });
    if (item.task) line.append(item.checked ? '☑ ' : '☐ ');
    for (const part of item.tokens) {
      // Items without blank lines between them are not paragraphs.
      if (part.type === 'text' && !item.loose) drawInline(part.tokens ?? [part], line);
      else drawBlock(part, line);
    }
    list.append(line);
  }
  return list;
}

// Matches a number with its sign, exponent and unit, which must not break between lines.
const kNumber = /^[\s~≈<>≤≥$€£]*[-+−±]?[\d.,\u202f]+(?:e[-+−]?\d+)?\s*\S{0,6}$/i;
function drawTable(token) {
  const row = (cells, name) => el('tr', {}, ...cells.map((cell, i) => drawInline(
      cell.tokens, el(name, { align: token.align[i], class: kNumber.test(cell.text) ? 'number' : null }))));
  return el('div', { class: 'table', tabindex: 0 },
            el('table', {}, el('thead', {}, row(token.header, 'th')),
               el('tbody', {}, ...token.rows.map((cells) => row(cells, 'td')))));
}

function drawBlock(token, into) {
  switch (token.type) {
    case 'space': case 'def':
      return;
    case 'heading':
      return into.append(drawInline(token.tokens, el(`h${token.depth}`)));
    case 'hr':
      return into.append(el('hr'));
    case 'code':
      return into.append(drawCode(token));
    case 'blockquote': {
      const quote = el('blockquote');
      for (const part of token.tokens) drawBlock(part, quote);
      return into.append(quote);
    }
    case 'list':
      return into.append(drawList(token));
    case 'table':
      return into.append(drawTable(token));
    case 'note':
      return into.append(drawInline(token.tokens, el('p', { class: 'footnote' }, el('sup', {}, token.mark), ' ')));
    case 'mathBlock':
      return into.append(drawMath(el('div', { class: 'math' }), token.tex));
    case 'html':
      return into.append(el('p', {}, token.raw.trimEnd()));
    default:
      into.append(drawInline(token.tokens ?? [token], el('p')));
  }
}

// Loads scripts from this server only. The page's policy allows no other way to make elements from
// text.
const loading = {};
const scripts = globalThis.trustedTypes?.createPolicy('ebb', { createScriptURL: (name) => `/chat/lib/${name}.js` });
function loadScript(name) {
  return loading[name] ??= new Promise((resolve, reject) => {
    const script = el('script', { onload: resolve, onerror: reject });
    script.src = scripts?.createScriptURL(name) ?? `/chat/lib/${name}.js`;
    document.head.append(script);
  });
}

function drawMath(element, tex) {
  tex = tex.trim();
  element.dataset.tex = element.textContent = tex;
  loading.style ??= document.head.appendChild(el('link', { rel: 'stylesheet', href: '/chat/lib/katex.css' }));
  const displayMode = element.matches('div, .display');
  if (displayMode) element.tabIndex = 0;  // scrollable by keyboard: it may be wider than the page
  const render = () => {
    try {
      katex.render(tex, element, { displayMode, throwOnError: true, trust: false, maxSize: 20, maxExpand: 500 });
    } catch (error) {  // the formula stays as it was written
      element.textContent = tex;
      element.classList.add('broken');
      element.title = `This formula cannot be drawn: ${error.message}`;
    }
  };
  if (globalThis.katex) render();
  else loadScript('katex').then(render).catch(() => {});
  return element;
}

const kMostHighlighted = 60_000;  // characters
// Limits the characters of an open block of code that is drawn again; a longer one only gets text
// appended.
const kMostDrawnAgain = 2000;
function highlight(code, language, text) {
  if (text.length > kMostHighlighted) return;
  const render = () => {
    if (code.textContent !== text || !hljs.getLanguage(language)) return;
    // Accepts only spans around escaped text from the highlighter.
    const open = [document.createDocumentFragment()];
    for (const [, name, end, part] of hljs.highlight(language, text, true).value
           .matchAll(/<span class="([^"]*)">|(<\/span>)|([^<]+)/g)) {
      if (end) {
        open.pop();
      } else if (part) {
        open.at(-1).append(plain(part.replaceAll('&#x27;', "'")));
      } else {
        open.push(el('span', { class: name }));
        open.at(-2).append(open.at(-1));
      }
    }
    if (open[0].textContent === text) code.replaceChildren(open[0]);
  };
  if (globalThis.hljs) render();
  else loadScript('highlight').then(render).catch(() => {});
}

function drawCode(token) {
  const { text } = token;
  const language = /^[\w+#.-]+/.exec(token.lang ?? '')?.[0] ?? '';
  const code = el('code', {}, text);
  const copy = el('button', { type: 'button', class: 'icon', 'aria-label': 'Copy code', title: 'Copy code' }, icon('copy'));
  copy.addEventListener('click', () => copyText(code.textContent, copy));
  const grows = token.isOpen && text.length >= kMostDrawnAgain;
  if (language && !grows) highlight(code, language.toLowerCase(), text);
  return el('div', { class: 'code' },
            el('div', { class: 'code-head' }, el('span', {}, language || 'text'), copy),
            el('pre', { tabindex: 0 }, code));
}

// Makes the elements of blocks.
function draw(tokens) {
  ++work.blocks;
  const fragment = document.createDocumentFragment();
  for (const token of tokens) drawBlock(token, fragment);
  return fragment;
}

const kShareOfTime = 8;  // after a drawing, the view pauses this many times as long

export class MarkdownView {
  // `drawn` is called after each drawing.
  constructor(element, drawn = () => {}) {
    configure();
    this.element = element;
    this.drawn = drawn;
    this.source = '';
    this.settled = 0;       // characters whose blocks are complete
    this.links = {};        // link definitions, which later blocks may refer to
    this.open = [];         // nodes of the last block, which may still change
    this.openCode = null;   // text node of an open block of code
    this.next = 0;          // earliest time of the next drawing
    this.waits = false;
  }

  append(text) {
    this.source += text;
    if (this.waits) return;
    this.waits = true;
    const later = () => requestAnimationFrame(() => {
      if (!this.waits) return;
      this.waits = false;
      this.render(false);
    });
    const pause = this.next - performance.now();
    pause > 16 ? setTimeout(later, pause) : later();
  }

  // Draws all text so far. More may follow if an answer is continued.
  finish() {
    this.waits = false;
    this.render(true);
  }

  render(is_all) {
    const begin = performance.now();
    const rest = this.source.slice(this.settled);
    const lexer = new marked.Lexer();
    lexer.tokens.links = this.links;
    // marked recognizes a block of code that is still open only after a complete line.
    const tokens = lexer.lex(rest + '\n');
    ++work.renders;
    work.characters += rest.length;
    let last = tokens.length;
    do --last; while (last > 0 && tokens[last].type === 'space');
    last = Math.max(0, last);
    const open = tokens.slice(last);
    if (!is_all && last === 0 && this.growCode(open)) return this.end(begin);
    for (const node of this.open) node.remove();
    this.openCode = null;
    for (const token of tokens.slice(0, last)) {
      this.settled += token.raw.length;
      if (token.type !== 'space') this.element.append(draw([token]));
    }
    if (open.length > 0) open[0].isOpen = !is_all;
    const fragment = open.length === 0 ? null : draw(open);
    this.open = fragment === null ? [] : [...fragment.childNodes];
    if (fragment !== null) this.element.append(fragment);
    if (open[0]?.type === 'code') this.openCode = this.open[0]?.querySelector?.('pre code')?.firstChild ?? null;
    this.end(begin);
  }

  // Appends the new text of a block of code that is still open, instead of drawing it again.
  growCode(open) {
    const node = this.openCode;
    if (node === null || open[0]?.type !== 'code' || !node.isConnected || open[0].text.length < kMostDrawnAgain) return false;
    if (node.nodeType !== Node.TEXT_NODE || !open[0].text.startsWith(node.data)) return false;
    node.appendData(open[0].text.slice(node.data.length));
    return true;
  }

  end(begin) {
    const now = performance.now();
    this.next = now + kShareOfTime * (now - begin);
    this.drawn();
  }
}
