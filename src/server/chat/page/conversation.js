// A conversation is a tree of messages: to edit a message, or to ask for another answer, adds a
// sibling, and `leaf` says which branch is shown. Plain objects, so that they can be stored as they
// are; no function here touches the page.
//
// A message: {id, parent, role, text}, and of an answer also {thought, thoughtTokens, tokens,
// finish, speed, seed, asked, session, trace, memory, error}.

export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(8))]
      .map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function newConversation() {
  return { id: newId(), title: '', changed: Date.now(), nodes: {}, leaf: null, sessions: {} };
}

export function add(conversation, message) {
  const node = { id: newId(), text: '', ...message };
  conversation.nodes[node.id] = node;
  conversation.leaf = node.id;
  conversation.changed = Date.now();
  return node;
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

export function siblingsOf(conversation, node) { return childrenOf(conversation, node.parent); }

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
