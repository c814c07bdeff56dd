// A conversation is a tree of messages. Editing a message, or asking for another answer, adds a
// sibling; `leaf` says which branch is shown. Conversations are plain objects, so that they can be
// stored as they are. No function here touches the page.
//
// A message is {id, parent, role, text}; a question also has its text files {name, text} as
// `files`; an answer also has {thought, thoughtTokens, tokens, finish, speed, seed, asked, session,
// request, trace, memory, error, continued}. Only the page that adds a message writes it: pages that
// show the same conversation only add messages.
//
// `titled` and `set` are the times at which a user last changed the title and `settings`, the
// conversation's own (null: those of all chats); of two pages, the later change counts.

export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(8))]
      .map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function newConversation() {
  return { id: newId(), title: '', changed: Date.now(), nodes: {}, leaf: null, sessions: {},
           settings: null, titled: 0, set: 0 };
}

const written = new WeakSet();  // messages of this page, newer here than in the database

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
  // The newest answer holds the texts of all tokens before it, so older answers need not.
  for (const earlier of pathTo(conversation, node.parent)) delete earlier.prompt;
}

// Copies the title and the settings of `from` to `to` if they were changed later there.
function takeChanges(to, from) {
  if ((from.titled ?? 0) > (to.titled ?? 0)) Object.assign(to, { title: from.title, titled: from.titled });
  if ((from.set ?? 0) > (to.set ?? 0)) Object.assign(to, { settings: from.settings, set: from.set });
  to.title ||= from.title;
}

// Returns the stored conversation (null: not stored yet) with the messages `nodes` of this page and
// all messages that it lacks.
export function merged(stored, own, nodes) {
  const all = stored ?? { ...own };
  for (const node of Object.values(own.nodes)) {
    if (nodes.includes(node) || !(node.id in all.nodes)) put(all, node);
  }
  takeChanges(all, own);
  all.leaf = own.leaf;
  all.changed = Math.max(all.changed, own.changed);
  return all;
}

// Merges the stored conversation into that of this page. The shown branch stays, and extends to
// messages that were added after it.
export function follow(own, stored) {
  const nodes = {};
  for (const node of Object.values(stored.nodes)) {
    const here = own.nodes[node.id];
    nodes[node.id] = written.has(here) ? here : Object.assign(here ?? {}, node);
  }
  own.nodes = { ...nodes, ...own.nodes };
  Object.assign(own.sessions, stored.sessions);
  takeChanges(own, stored);
  own.changed = Math.max(own.changed, stored.changed);
  show(own, own.leaf);
}

// Returns the messages from the first one to `id`.
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

// Returns `node` and its siblings, which are the branches at this point. An answer that was
// continued counts as a branch only if the conversation has messages after it, or if it has more
// text than its continuation began with.
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

// Returns a message as the model reads it: each file with its name, in a fence that its text does
// not contain, and then the text.
export function contentOf({ text, files = [] }) {
  const parts = files.map((file) => {
    const longest = Math.max(2, ...[...file.text.matchAll(/`+/g)].map(([run]) => run.length));
    const fence = '`'.repeat(longest + 1);
    return `${file.name}:\n${fence}\n${file.text.trimEnd()}\n${fence}`;
  });
  return [...parts, text].filter(Boolean).join('\n\n');
}

// Returns the messages in the form of a request, without thoughts, as chat templates omit them too.
export function requestMessages(path, system) {
  const messages = path.filter((node) => node.text || node.role === 'user')
      .map((node) => ({ role: node.role, content: contentOf(node) }));
  if (system) messages.unshift({ role: 'system', content: system });
  return messages;
}

// Returns whether each of the words, in lower case, is in the title or in a message.
export function hasWords({ title, nodes }, words) {
  if (words.length === 0) return true;
  const texts = [title, ...Object.values(nodes).map(contentOf)].map((text) => text.toLowerCase());
  return words.every((word) => texts.some((text) => text.includes(word)));
}

export function titleOf(text) {
  const line = text.trim().split('\n', 1)[0];
  return line.length > 60 ? line.slice(0, 59).trimEnd() + '…' : line;
}

// Returns the id of the conversation to which a session of the server belongs; null: no page made
// the session.
export function conversationOf(session) { return /^chat-([\da-f]{16})-/.exec(session)?.[1] ?? null; }

// Adds the messages of a session as a branch, or finds them if they are there.
export function addSession(conversation, session, messages) {
  if (session in conversation.sessions) return conversation;
  let parent = null;
  for (const { role, content, reasoning_content } of messages) {
    if (role === 'system') continue;
    const is_alike = (node) => node.role === role && contentOf(node).trim() === content.trim();
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

// Returns whether an answer is complete: a session continues only after a complete answer, not
// after one that was stopped or lost.
const isWhole = (node) => ['stop', 'length'].includes(node.finish);

// Returns the session of the server for the answer to the last message of `path`: {id}, or {id,
// from} for a fork of the session `from`, which is then rolled back by one turn.
export function sessionFor(conversation, path) {
  const fresh = () => `chat-${conversation.id}-${newId().slice(0, 6)}`;
  const before = path.at(-2);
  if (before?.session && isWhole(before) && path.at(-1).role === 'user') {
    const newest = conversation.sessions[before.session];
    if (newest === before.id) return { id: before.session };
    const tip = conversation.nodes[newest];
    const asked = tip && conversation.nodes[tip.parent];
    const is_next = asked && asked.parent === before.id && contentOf(asked) !== contentOf(path.at(-1));
    if (is_next && isWhole(tip)) return { id: fresh(), from: before.session };
  }
  return { id: fresh() };
}
