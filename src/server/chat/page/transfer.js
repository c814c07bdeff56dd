// Exports chats as JSON or Markdown, and imports chats from JSON: from this page's exports, from
// llama-server's, and a plain list of messages {role, content}.

import { activePath, add, contentOf, newConversation, newId, titleOf } from './conversation.js';
import { el } from './dom.js';
import { download } from './files.js';

const kFormat = 'ebb-chats';
// Lists the members of a message that are exported: its text and the details shown below it.
const kMembers = { id: 'string', parent: 'string', role: 'string', text: 'string', thought: 'string', thoughtTokens: 'number',
                   tokens: 'number', finish: 'string', speed: 'number', seed: 'number', error: 'string', continued: 'string' };

// Returns those members of a message that have their type, and its files.
function cleaned(node) {
  const clean = { parent: null };
  for (const [key, type] of Object.entries(kMembers)) if (typeof node[key] === type) clean[key] = node[key];
  const isFile = (file) => typeof file?.name === 'string' && typeof file.text === 'string';
  if (Array.isArray(node.files)) clean.files = node.files.filter(isFile).map(({ name, text }) => ({ name, text }));
  return clean;
}

function toJson(conversations) {
  const chats = conversations.map(({ id, title, changed, leaf, settings, nodes }) =>
    ({ id, title, changed, leaf, settings, messages: Object.values(nodes).map(cleaned) }));
  return JSON.stringify({ format: kFormat, version: 1, chats }, null, 1);
}

// Returns the branch that is shown. Thoughts are folded.
function toMarkdown(conversation) {
  const parts = activePath(conversation).map((node) => {
    if (node.role === 'user') return `## You\n\n${contentOf(node)}`;
    const thought = node.thought ? `<details><summary>Thought</summary>\n\n${node.thought.trim()}\n\n</details>\n\n` : '';
    return `## Model\n\n${thought}${node.text.trim()}`;
  });
  return `# ${conversation.title || 'Chat'}\n\n${parts.join('\n\n')}\n`;
}

const isRole = (role) => role === 'user' || role === 'assistant';

function fromExport({ id, title, changed, leaf, settings, messages }) {
  const isId = typeof id === 'string' && /^[\da-f]{16}$/.test(id);
  const chat = { ...newConversation(), id: isId ? id : newId(), title: String(title ?? ''), changed: Number(changed) || Date.now() };
  if (settings && typeof settings === 'object') Object.assign(chat, { settings, set: 1 });
  for (const node of messages.map(cleaned)) {
    if (node.id && isRole(node.role) && typeof node.text === 'string') chat.nodes[node.id] = node;
  }
  // A message whose parent is missing, or that is below itself, cannot be shown.
  const isRooted = (node) => {
    for (let depth = Object.keys(chat.nodes).length; node && depth >= 0; --depth) {
      if (node.parent === null) return true;
      node = chat.nodes[node.parent];
    }
    return false;
  };
  for (const node of Object.values(chat.nodes)) if (!isRooted(node)) delete chat.nodes[node.id];
  chat.leaf = leaf in chat.nodes ? leaf : Object.keys(chat.nodes).at(-1) ?? null;
  return chat;
}

function fromMessages(messages, title) {
  const chat = newConversation();
  const textOf = ({ content, text }) => typeof content === 'string' ? content
    : Array.isArray(content) ? content.map((part) => part.text ?? '').join('') : text ?? '';
  for (const message of messages) {
    if (!isRole(message?.role)) continue;
    add(chat, { role: message.role, parent: chat.leaf, text: String(textOf(message)),
                ...(message.role === 'assistant' && { thought: String(message.reasoning_content ?? ''), finish: 'stop' }) });
  }
  chat.title = title || titleOf(Object.values(chat.nodes)[0]?.text ?? '');
  return chat;
}

// Returns the conversations in a file's text. Errors: it is not JSON, or has none.
function fromJson(text) {
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    throw new Error('The file is not JSON.');
  }
  const isList = (value) => Array.isArray(value) && value.length > 0;
  let chats = [];
  if (json?.format === kFormat && isList(json.chats)) {
    chats = json.chats.filter((chat) => isList(chat?.messages)).map(fromExport);
  } else if (isList(json) && json[0]?.role) {
    chats = [fromMessages(json)];
  } else {
    // llama-server writes {conv, messages}, or a list of these.
    chats = (Array.isArray(json) ? json : [json]).filter((one) => isList(one?.messages))
        .map(({ messages, conv, title }) => fromMessages(messages, String(conv?.name ?? title ?? '')));
  }
  chats = chats.filter(({ nodes }) => Object.keys(nodes).length > 0);
  if (chats.length === 0) throw new Error('There is no chat in the file.');
  return chats;
}

const fileName = (title) => (title || 'chat').replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, 60).replace(/^-|-$/g, '') || 'chat';

function saveJson(conversations, name) { download(`${fileName(name)}.json`, 'application/json', toJson(conversations)); }

function saveMarkdown(conversation) { download(`${fileName(conversation.title)}.md`, 'text/markdown', toMarkdown(conversation)); }

// Opens the dialog. current: the chat that is shown; null: it is empty. take(chats): keeps imported
// chats.
export function openTransfer(dialog, { conversations, current, take }) {
  const result = el('p', { class: 'note', role: 'status' });
  const picker = el('input', { type: 'file', accept: '.json,application/json', hidden: true, 'aria-label': 'File of chats' });
  picker.addEventListener('change', async () => {
    try {
      const chats = fromJson(await picker.files[0].text());
      await take(chats);
      result.textContent = chats.length === 1 ? `Imported: “${chats[0].title}”.` : `Imported: ${chats.length} chats.`;
    } catch (error) {
      result.textContent = error.message;
    }
    picker.value = '';
  });
  const button = (text, onclick, disabled = false) => el('button', { type: 'button', onclick, disabled }, text);
  const group = (title, note, ...buttons) => el('fieldset', {}, el('legend', {}, title), el('p', { class: 'soft note' }, note),
                                                el('div', { class: 'choices' }, ...buttons));
  dialog.replaceChildren(
    el('h2', { id: 'transfer-title' }, 'Export and import'),
    group('This chat', 'Markdown has the branch that is shown, JSON all branches.',
          button('As Markdown', () => saveMarkdown(current), current === null),
          button('As JSON', () => saveJson([current], current.title), current === null)),
    group('All chats', 'For another browser, or to keep them.',
          button('As JSON', () => saveJson(conversations, `ebb-chats-${new Date().toISOString().slice(0, 10)}`), conversations.length === 0)),
    group('Import', 'JSON of this page or of llama-server, or a list of messages with role and content. Chats that are here already get the messages that they lack.',
          button('Choose a file…', () => picker.click()), picker),
    result, el('div', { class: 'actions' }, el('button', { type: 'button', class: 'primary', onclick: () => dialog.close() }, 'Close')));
  dialog.showModal();
}
