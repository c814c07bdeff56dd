// Tints each token in the drawn text by the tier of memory that holds it, and marks guessed tokens. The
// elements are not changed: ranges of text are added to the browser's highlights (ebb-t0 ... ebb-t3,
// ebb-math0 ... for formulas, in which an underline would change the meaning: = to ≡, and ebb-guessed).
//
// The drawn text lacks the marks of Markdown. Each word of it is therefore searched in the text
// that the model wrote, from the last found word on.

export const canTint = typeof Highlight === 'function' && CSS.highlights !== undefined;

const kNames = ['ebb-t0', 'ebb-t1', 'ebb-t2', 'ebb-t3', 'ebb-math0', 'ebb-math1', 'ebb-math2', 'ebb-math3',
                'ebb-guessed'];
const kMath = 4;
const kGuessed = 8;
const kWindow = 600;  // characters within which the next word is searched

// TokenMap holds the whole text of a sequence and the tier of each of its characters.
export class TokenMap {
  // texts: the texts of all tokens. tiers: see `ebb.memory` in docs/user/serve.md. guessed: numbers of
  // the tokens to mark as guessed by speculative decoding.
  constructor(texts, numTokens, tiers, guessed) {
    this.guessed = new Set(guessed);
    this.text = texts.join('');
    this.tierAt = new Uint8Array(this.text.length);
    this.begins = [];  // index of each token's first character
    let at = 0;
    texts.forEach((text, i) => {
      this.begins.push(at);
      const tier = Number(tiers[Math.min(tiers.length - 1, Math.floor(i * tiers.length / numTokens))] ?? 0);
      this.tierAt.fill(tier, at, at += text.length);
    });
    this.cursor = 0;
  }

  // Returns the number of the token that has the character at `at`.
  tokenAt(at) {
    let low = 0, high = this.begins.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.begins[middle] <= at) low = middle; else high = middle - 1;
    }
    return low;
  }

  // Returns the position of `text` after all texts found before; -1: not found.
  find(text) {
    const wanted = text.trim();
    const at = wanted === '' ? -1 : this.text.indexOf(wanted, this.cursor);
    if (at >= 0) this.cursor = at + wanted.length;
    return at;
  }
}

const kSkipped = '.code-head, .katex';

function* textNodes(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT, (node) => {
    if (node.nodeType === Node.TEXT_NODE) return NodeFilter.FILTER_ACCEPT;
    if (node.matches('.math')) return NodeFilter.FILTER_ACCEPT;
    return node.matches(kSkipped) ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_SKIP;
  });
  for (let node; (node = walker.nextNode()) !== null;) {
    if (node.nodeType === Node.TEXT_NODE && node.parentElement.closest('.math') !== null) continue;
    yield node;
  }
}

// Calls found(node, begin, end, at) for each piece of the text below `root` that is found in `map`
// from position `at` on. A formula is one piece with the node of its element.
function align(root, map, at, limit, found) {
  for (const node of textNodes(root)) {
    if (node.nodeType === Node.ELEMENT_NODE) {
      const place = map.text.indexOf(node.dataset.tex ?? '', at);
      if (place < 0 || place > at + kWindow) continue;
      found(node, 0, node.childNodes.length, place);
      at = place + node.dataset.tex.length;
      continue;
    }
    for (const match of node.data.matchAll(/\S+/g)) {
      const place = map.text.indexOf(match[0], at);
      if (place < 0 || place > Math.min(limit, at + kWindow)) continue;
      found(node, match.index, match.index + match[0].length, place);
      at = place + match[0].length;
    }
  }
}

let drawn = null;  // {pieces, map} of the last tint()

// Tints the parts {element, text, plain}, which are in the order of the conversation. Returns how
// many were found in `map`.
export function tint(parts, map) {
  clearTint();
  const ranges = kNames.map(() => []);
  const addRange = (name, node, begin, end) => ranges[name].push(
      new StaticRange({ startContainer: node, startOffset: begin, endContainer: node, endOffset: end }));
  const pieces = [];
  let numFound = 0;
  for (const part of parts) {
    const at = map.find(part.text);
    if (at < 0) continue;
    ++numFound;
    align(part.element, map, at, at + part.text.length, (node, begin, end, place) => {
      const before = pieces.at(-1);
      // Blanks between two words of a line get the tier of the first word.
      const is_next = before && before.node === node && node.nodeType === Node.TEXT_NODE;
      if (is_next && !node.data.slice(before.end, begin).includes('\n')) before.until = begin;
      pieces.push({ node, begin, end, place, until: end });
    });
  }
  for (const { node, begin, end, place, until } of pieces) {
    if (node.nodeType === Node.ELEMENT_NODE) {
      addRange(kMath + map.tierAt[place], node, begin, end);
      continue;
    }
    for (let from = begin; from < end;) {
      const tier = map.tierAt[place + from - begin];
      let to = from + 1;
      while (to < end && map.tierAt[place + to - begin] === tier) ++to;
      addRange(tier, node, from, to === end ? until : to);
      from = to;
    }
    if (map.guessed.size === 0) continue;
    for (let from = begin; from < end;) {
      const number = map.tokenAt(place + from - begin);
      const to = Math.min(end, begin + (map.begins[number + 1] ?? map.text.length) - place);
      if (map.guessed.has(number)) addRange(kGuessed, node, from, to);
      from = Math.max(to, from + 1);
    }
  }
  kNames.forEach((name, i) => CSS.highlights.set(name, new Highlight(...ranges[i])));
  drawn = { pieces, map };
  return numFound;
}

// Returns the number of the tinted token at a point of the window; -1: there is none.
export function tokenAtPoint(x, y) {
  const caret = document.caretPositionFromPoint?.(x, y) ?? document.caretRangeFromPoint?.(x, y);
  if (!caret || drawn === null) return -1;
  const { offsetNode = caret.startContainer, offset = caret.startOffset } = caret;
  const math = offsetNode.parentElement?.closest('.math');
  const piece = drawn.pieces.find(({ node, begin, until }) =>
    math ? node === math : node === offsetNode && offset >= begin && offset <= until);
  if (piece === undefined) return -1;
  return drawn.map.tokenAt(piece.place + (math ? 0 : Math.min(offset, piece.end - 1) - piece.begin));
}

// Marks a tinted token (highlight ebb-why), if it is in the drawn text.
export function markToken(number) {
  if (drawn === null) return;
  const { begins, text } = drawn.map;
  const begin = begins[number], end = begins[number + 1] ?? text.length;
  const ranges = drawn.pieces.filter(({ node, place, begin: from, end: to }) =>
    node.nodeType === Node.TEXT_NODE && place < end && place + to - from > begin).map((piece) =>
    new StaticRange({ startContainer: piece.node, startOffset: piece.begin + Math.max(0, begin - piece.place),
                      endContainer: piece.node, endOffset: Math.min(piece.end, piece.begin + end - piece.place) }));
  const mark = new Highlight(...ranges);
  mark.priority = 1;
  CSS.highlights.set('ebb-why', mark);
}

export function clearTint() {
  drawn = null;
  CSS.highlights?.delete('ebb-why');
  for (const name of kNames) CSS.highlights?.delete(name);
}
