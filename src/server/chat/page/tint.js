// Tints each token by the tier of memory that holds it, where it stands in the drawn text. The
// elements stay as they are: ranges of text are put into the browser's highlights (ebb-t0 ... ebb-t3, and
// ebb-math0 ... for formulas, which a line would change: = to ≡).
//
// A drawn text lacks the marks of Markdown, so each word of it is looked up in the text that the
// model wrote, from the last one found on.

export const canTint = typeof Highlight === 'function' && CSS.highlights !== undefined;

const kNames = ['ebb-t0', 'ebb-t1', 'ebb-t2', 'ebb-t3', 'ebb-math0', 'ebb-math1', 'ebb-math2', 'ebb-math3'];
const kMath = 4;
const kWindow = 600;  // characters in which the next word is looked for

// The whole text of a sequence, and the tier of each of its characters.
export class TokenMap {
  // texts: of all tokens. tiers: see `ebb.memory` in docs/user/serve.md.
  constructor(texts, numTokens, tiers) {
    this.text = texts.join('');
    this.tierAt = new Uint8Array(this.text.length);
    let at = 0;
    texts.forEach((text, i) => {
      const tier = Number(tiers[Math.min(tiers.length - 1, Math.floor(i * tiers.length / numTokens))] ?? 0);
      this.tierAt.fill(tier, at, at += text.length);
    });
    this.cursor = 0;
  }

  // Where `text` stands behind all that was asked for before; -1: it is not there.
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

// Calls found(node, begin, end, at) for pieces of the text below `root` that stand in `map` from
// `at` on; a formula is a piece with the node of its element.
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

// parts: {element, text, plain}, in the order of the conversation. Returns how many have their place.
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
      // Blanks between two words of a line take the tier of the first.
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
  }
  kNames.forEach((name, i) => CSS.highlights.set(name, new Highlight(...ranges[i])));
  return numFound;
}

export function clearTint() {
  for (const name of kNames) CSS.highlights?.delete(name);
}
