// A conversation is a tree of messages: to edit a message, or to ask for another answer, adds a
// sibling, and `leaf` says which branch is shown. Plain objects, so that they can be stored as they
// are; no function here touches the page.
//
// A message: {id, parent, role, text}, and of an answer also {thought, thoughtTokens, tokens,
// finish, speed, seed, asked, session, trace, memory, error, continued}. One page writes it, and no
// other changes it later: pages that show the same conversation only add messages.

export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(8))]
      .map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function newConversation() {
  return { id: newId(), title: '', changed: Date.now(), nodes: {}, leaf: null, sessions: {} };
}

const written = new WeakSet();  // messages of this page, newer here than where they are stored

export function add(conversation, message) {
  const node = { id: newId(), text: '', ...message };
  written.add(node);
  put(conversation, node);
  conversation.leaf = node.id;
  return node;
}

function put(conversation, node) {
  conversation.nodes[node.id] = node;
  if (node.session) conversation.sessions[node.session] = node.id;
  // The newest answer tells of all tokens before it.
  for (const earlier of pathTo(conversation, node.parent)) delete earlier.prompt;
}

// Adds the messages `nodes` of this page, and those that are missing there, to the stored
// conversation (null: it is not stored yet).
export function merged(stored, own, nodes) {
  const all = stored ?? { ...own };
  for (const node of Object.values(own.nodes)) {
    if (nodes.includes(node) || !(node.id in all.nodes)) put(all, node);
  }
  all.title ||= own.title;
  all.leaf = own.leaf;
  all.changed = Math.max(all.changed, own.changed);
  return all;
}

// Brings what other pages stored into the conversation of this page. The branch that is shown stays,
// and goes on to what was added behind it.
export function follow(own, stored) {
  const nodes = {};
  for (const node of Object.values(stored.nodes)) {
    const here = own.nodes[node.id];
    nodes[node.id] = written.has(here) ? here : Object.assign(here ?? {}, node);
  }
  own.nodes = { ...nodes, ...own.nodes };
  Object.assign(own.sessions, stored.sessions);
  own.title ||= stored.title;
  own.changed = Math.max(own.changed, stored.changed);
  show(own, own.leaf);
}

// The messages from the first to `id`.
export function pathTo(conversation, id) {
  const path = [];
  for (let node = conversation.nodes[id]; node; node = conversation.nodes[node.parent]) {
    path.unshift(node);
  }
  return path;
}

export function activePath(conversation) { return pathTo(conversation, conversation.leaf); }

export function childrenOf(conversation, parent) {
  return Object.values(conversation.nodes).filter((node) => node.parent === parent);
}

// The branches at `node`. An answer that was continued is a branch of its own only where the
// conversation went on from it, or where it has more text than its continuation began with.
export function siblingsOf(conversation, node) {
  const all = childrenOf(conversation, node.parent);
  const isContained = (one) => childrenOf(conversation, one.id).length === 0 && all.some(
      ({ continued, text, thought }) => continued === one.id && text.startsWith(one.text) && thought.startsWith(one.thought));
  return all.filter((one) => one === node || !isContained(one));
}

// Shows the branch of `id`, down to its newest leaf.
export function show(conversation, id) {
  let last = id;
  for (let children; (children = childrenOf(conversation, last)).length > 0;) {
    last = children.at(-1).id;
  }
  conversation.leaf = last;
}

// The messages as a request has them. Thoughts are left out, as chat templates do.
export function requestMessages(path, system) {
  const messages = path.filter((node) => node.text || node.role === 'user')
      .map((node) => ({ role: node.role, content: node.text }));
  if (system) messages.unshift({ role: 'system', content: system });
  return messages;
}

export function titleOf(text) {
  const line = text.trim().split('\n', 1)[0];
  return line.length > 60 ? line.slice(0, 59).trimEnd() + '…' : line;
}

// The conversation that a session of the server belongs to; null: this page did not begin it.
export function conversationOf(session) { return /^chat-([\da-f]{16})-/.exec(session)?.[1] ?? null; }

// Adds the messages of a session as a branch, or finds them where they are.
export function addSession(conversation, session, messages) {
  if (session in conversation.sessions) return conversation;
  let parent = null;
  for (const { role, content, reasoning_content } of messages) {
    if (role === 'system') continue;
    const is_alike = (node) => node.role === role && node.text.trim() === content.trim();
    const node = childrenOf(conversation, parent).find(is_alike) ??
      add(conversation, { role, parent, text: content, ...(role === 'assistant' && { thought: reasoning_content ?? '' }) });
    parent = node.id;
  }
  const last = conversation.nodes[parent];
  if (last?.role === 'assistant') Object.assign(last, { session, finish: last.finish ?? 'stop' });
  conversation.sessions[session] = parent;
  conversation.leaf = parent;
  conversation.title ||= titleOf(messages.find(({ role }) => role === 'user')?.content ?? '');
  return conversation;
}

// A session goes on behind an answer that ended, and not behind one that was stopped or lost.
const isWhole = (node) => ['stop', 'length'].includes(node.finish);

// Which session of the server the answer to the last message of `path` belongs to:
// {id}, or {id, from}: a copy of the session `from`, which goes back by one turn.
export function sessionFor(conversation, path) {
  const fresh = () => `chat-${conversation.id}-${newId().slice(0, 6)}`;
  const before = path.at(-2);
  if (before?.session && isWhole(before) && path.at(-1).role === 'user') {
    const newest = conversation.sessions[before.session];
    if (newest === before.id) return { id: before.session };
    const tip = conversation.nodes[newest];
    const asked = tip && conversation.nodes[tip.parent];
    const is_next = asked && asked.parent === before.id && asked.text !== path.at(-1).text;
    if (is_next && isWhole(tip)) return { id: fresh(), from: before.session };
  }
  return { id: fresh() };
}
