// Runs the chat page: conversations on the left, messages in the middle, memory on the right. This
// file connects the other modules.

import { get, send, setKey } from './api.js';
import { kKeepEvery, take, usageOf } from './answer.js';
import { openCompare } from './compare.js';
import { Composer } from './composer.js';
import * as talk from './conversation.js';
import { $, el, icon, plural } from './dom.js';
import { ConversationList, closeSidebar, listenToSidebar } from './list.js';
import { work } from './markdown.js';
import { kTiers, MemoryPanel } from './memory.js';
import { MessageView } from './messages.js';
import { ServerView } from './server.js';
import * as settings from './settings.js';
import * as kept from './store.js';
import { canTint, clearTint, markToken, TokenMap, tint, tokenAtPoint } from './tint.js';
import { openTransfer } from './transfer.js';
import { askWhy } from './why.js';

const state = {
  props: null,             // of the server
  conversations: [],
  current: null,           // the conversation that is shown
  views: new Map(),        // views of its messages, by message id
  removed: new Set(),      // ids of conversations deleted in this browser
  // Holds the answers being generated in this tab: {controller, conversation, node, times} by
  // conversation id. `times` are those at which the newest tokens came, [time, number of tokens].
  runs: new Map(),
  // Holds timers by the ids of conversations that other tabs answer; a timer ends when a tab is
  // silent.
  elsewhere: new Map(),
  settings: settings.load(),
  tints: false,
  follows: true,           // keeps scrolling to the newest text
};
const panel = new MemoryPanel($('memory'), whyOf);
const server = new ServerView($('server'), askForKey);
const list = new ConversationList($('conversations'), { opened: closeSidebar, rename, remove: removeConversation });
const composer = new Composer({ submit: (message) => canAsk() && ask(message, state.current.leaf), changed: showButtons, say });
let nextTint = 0;       // the earliest time to tint tokens again
let tintLater = null;

const runOf = (conversation) => state.runs.get(conversation.id);

globalThis.ebbChat = { work, state, get running() { return runOf(state.current); } };  // for tests

// ---------------------------------------------------------------- the server

let waitsForServer = null;

function showNotice(text, isGood = false) {
  $('notice').textContent = text;
  $('notice').hidden = text === '';
  $('notice').classList.toggle('good', isGood);
}

// Shows a notice for six seconds, unless one about the server is shown.
function say(text) {
  if (waitsForServer !== null) return;
  showNotice(text);
  setTimeout(() => { if ($('notice').textContent === text) showNotice(''); }, 6000);
}

// Polls the server until it answers.
function awaitServer() {
  waitsForServer ??= (async () => {
    showNotice('The server does not answer. Waiting for it to come back…');
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, 1000));
      try {
        if ((await fetch('/health', { cache: 'no-store' })).ok) break;
      } catch { /* not yet */ }
    }
    waitsForServer = null;
    await connect();
    showNotice('The server is back.', true);
    setTimeout(() => { if (waitsForServer === null) showNotice(''); }, 4000);
  })();
}

function askForKey() {
  const dialog = $('key-dialog');
  if (dialog.open) return;
  dialog.showModal();
  $('key-form').onsubmit = () => {
    setKey($('key').value);
    connect();
    showTab();
  };
}

async function connect() {
  try {
    state.props = await get('/props');
  } catch (error) {
    if (error.status === 401) return askForKey();
    return error.status === 0 ? awaitServer() : showNotice(error.message);
  }
  const { props } = state;
  $('model').textContent = props.model_alias;
  $('empty-model').textContent = `${props.model_alias} answers on this machine. Nothing that you write leaves it.`;
  $('server-link').hidden = !props.ebb.dashboard;
  document.body.classList.toggle('server-alone', !props.ebb.chat_page);
  $('kept').textContent = `Kept in this browser${props.ebb.sessions ? ', and as sessions of the server' : ''}.`;
  server.context = props.default_generation_settings.n_ctx;
  panel.t1 = props.ebb.tiers?.t1 ?? 'file';
  showSetting();
  showButtons();
  if (props.ebb.sessions) takeSessions().catch(() => {});
}

// ---------------------------------------------------------------- conversations

// Adds conversations that another browser began on this server, and deletes the sessions of
// conversations that were deleted in this browser.
async function takeSessions() {
  const { data } = await get('/v1/sessions');
  const known = new Set(state.conversations.flatMap(({ sessions }) => Object.keys(sessions)));
  for (const { id, last_used } of data.sort((a, b) => a.last_used - b.last_used)) {
    const of = talk.conversationOf(id);
    if (state.removed.has(of)) send('DELETE', `/v1/sessions/${id}`).catch(() => {});
    if (of === null || known.has(id) || state.removed.has(of)) continue;
    const messages = (await get(`/v1/sessions/${id}/messages`)).data;
    takeIn(await kept.update(of, (stored) => {
      const conversation = talk.addSession(stored ?? { ...talk.newConversation(), id: of, changed: 0 }, id, messages);
      conversation.changed = Math.max(conversation.changed, last_used * 1000);
      return conversation;
    }));
  }
  if (location.hash.length > 1 && location.hash.slice(1) !== state.current.id) {
    showNotice('');
    route();
  }
}

// Updates the page from a conversation that this tab or another has stored.
function takeIn(stored) {
  if (stored.removed) return forget(stored.id);
  const own = state.conversations.find(({ id }) => id === stored.id);
  own ? talk.follow(own, stored) : state.conversations.push(stored);
  const path = talk.activePath(state.current);
  if (own === state.current && numShown(path) < Math.max(path.length, state.views.size)) showPath();
  if (own === state.current && !isOnServer()) showTitle();
  showSetting();
  showConversations();
}

// Handles a change that another tab announces.
async function hear({ id, is_busy }) {
  clearTimeout(state.elsewhere.get(id));
  state.elsewhere.delete(id);
  const end = () => {
    state.elsewhere.delete(id);
    showConversations();
    showButtons();
  };
  if (is_busy) state.elsewhere.set(id, setTimeout(end, 3 * kKeepEvery));
  const stored = await kept.load(id);
  if (stored) takeIn(stored);
  showButtons();
}

function showConversations() {
  state.conversations.sort((a, b) => b.changed - a.changed);
  const words = $('search').value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = state.conversations.filter((one) => talk.hasWords(one, words));
  $('none-found').hidden = words.length === 0 || found.length > 0;
  list.show(found, state.current, ({ id }) => state.runs.has(id) || state.elsewhere.has(id));
}

function rename(conversation, title) {
  Object.assign(conversation, { title, titled: Date.now() });
  save(conversation);
  showConversations();
  if (conversation === state.current) showTitle();
}

// Keeps imported chats. One that was deleted here comes back under another id.
async function takeImported(chats) {
  for (const chat of chats) {
    if (state.removed.has(chat.id)) chat.id = talk.newId();
    takeIn(await kept.update(chat.id, (stored) => talk.merged(stored, chat, [])));
  }
}

// Shows the conversation named by the address, or a new one.
function route() {
  const id = location.hash.slice(1);
  const conversation = state.conversations.find((one) => one.id === id);
  state.current = conversation ?? talk.newConversation();
  state.follows = true;
  closeSidebar();
  composer.open(conversation?.id ?? '');
  showPath();
  showConversations();
  showSetting();
  showTab();
  if (conversation === undefined && !isOnServer()) $('input').focus();
  if (conversation === undefined && id !== '') say('This browser does not have that chat.');
}

// The tab "Server" has its own address.
const isOnServer = () => location.pathname === '/dashboard' && location.hash === '';

function showTab() {
  const on_server = isOnServer();
  document.body.classList.toggle('on-server', on_server);
  $('server').hidden = !on_server;
  $('scroll').hidden = $('composer').hidden = on_server;
  on_server ? $('server-link').setAttribute('aria-current', 'page') : $('server-link').removeAttribute('aria-current');
  if (!on_server) return server.stop();
  $('title').textContent = 'Server';
  document.title = 'ebb';
  server.start();
}

function beginConversation() {
  if (isOnServer() || location.hash !== '') history.pushState(null, '', '/');
  route();
}

function removeConversation({ id, title }) {
  if (!confirm(`Delete “${title}”?`)) return;
  state.removed.add(id);
  forget(id);
  composer.forget(id);
  kept.remove(id).catch(() => showNotice('This browser could not delete the conversation.'));
  if (state.props?.ebb.sessions) takeSessions().catch(() => {});
}

// Removes a conversation that was deleted, here or in another tab, from the page.
function forget(id) {
  const is_here = state.removed.has(id);
  state.removed.add(id);
  state.runs.get(id)?.controller.abort();
  state.conversations = state.conversations.filter((other) => other.id !== id);
  if (state.current.id !== id) return showConversations();
  history.replaceState(null, '', '/');
  route();
  if (!is_here) say('This chat was deleted in another tab.');
}

// Stores the messages `nodes` of this page and which branch is shown.
async function save(conversation, ...nodes) {
  if (state.removed.has(conversation.id)) return;
  if (!state.conversations.includes(conversation)) state.conversations.push(conversation);
  try {
    takeIn(await kept.update(conversation.id, (stored) => talk.merged(stored, conversation, nodes),
                             { is_busy: state.runs.has(conversation.id) }));
  } catch {
    showNotice('This browser could not keep the conversation.');
  }
}

function keep(conversation, ...nodes) {
  conversation.changed = Date.now();
  save(conversation, ...nodes);
  showConversations();
}

// ---------------------------------------------------------------- messages

const actions = {
  edit: (node, text) => ask({ text, files: node.files ?? [] }, node.parent),
  again: (node) => answer(state.current, state.current.nodes[node.parent]),
  goOn: (node) => answer(state.current, state.current.nodes[node.parent], node),
  show: (id, side) => {
    talk.show(state.current, id);
    showPath();
    keep(state.current);
    const shown = document.querySelector(`[data-id="${CSS.escape(id)}"] [data-go=${side}]`);
    (shown?.disabled ? shown.parentElement.querySelector('button:enabled') : shown)?.focus();
  },
  compare: (node) => {
    const path = talk.pathTo(state.current, node.parent);
    const conversation = state.current;
    openCompare($('compare'), {
      node, props: state.props, t1: panel.t1,
      messages: talk.requestMessages(path, node.asked?.system ?? settingsOf(conversation).system),
      keep: (other) => {
        keep(conversation, talk.add(conversation, other));
        showPath();
      },
    });
  },
  drawn: () => follow(),
};

function makeView(node) {
  const view = new MessageView(node, talk.siblingsOf(state.current, node), actions, panel.t1);
  state.views.set(node.id, view);
  if (runOf(state.current)?.node === node) view.begin();
  return view;
}

// Counts the messages, from the first one on, whose drawn elements are still right.
function numShown(path) {
  const views = [...state.views.values()];
  const at = path.findIndex((node, i) => !views[i]?.shows(node, talk.siblingsOf(state.current, node)));
  return at < 0 ? path.length : at;
}

// Draws the branch that is shown. Unchanged messages keep their elements, and with them the focus
// and a text that the user is editing.
function showPath() {
  const path = talk.activePath(state.current);
  const same = numShown(path);
  for (const view of [...state.views.values()].slice(same)) {
    view.element.remove();
    state.views.delete(view.node.id);
  }
  $('messages').append(...path.slice(same).map((node) => makeView(node).element));
  $('empty').hidden = path.length > 0;
  document.body.classList.toggle('is-empty', path.length === 0);
  if (isOnServer()) return;
  showTitle();
  showMemory();
  showUsage();
  showButtons();
  follow();
}

function showTitle() {
  $('title').textContent = state.current.title || 'New chat';
  document.title = state.current.title ? `${state.current.title} – ebb` : 'ebb';
}

function newestAnswer() { return talk.activePath(state.current).findLast((node) => node.memory); }

function showMemory() {
  panel.show(newestAnswer()?.memory ?? null, newestAnswer()?.id);
  retint(true);
}

function retint(isSure = false) {
  if (!state.tints) return;
  const now = performance.now();
  if (!isSure && now < nextTint) {
    tintLater ??= setTimeout(() => {
      tintLater = null;
      retint(true);
    }, nextTint - now);
    return;
  }
  clearTint();
  const node = newestAnswer();
  if (!node?.prompt || !node.memory.tiers) {
    $('legend-note').textContent = node ? 'The tokens of this answer are not known here any more; the next answer brings them.' : '';
    return;
  }
  const parts = talk.pathTo(state.current, node.id).flatMap((one) => state.views.get(one.id)?.parts() ?? []);
  const guessed = $('mark-guessed').checked ? node.trace.guessed ?? [] : [];
  const map = new TokenMap([...node.prompt, ...node.trace.texts], node.memory.tokens, node.memory.tiers,
                           guessed.map((number) => node.prompt.length + number));
  const numFound = tint(parts, map);
  $('legend-note').textContent = numFound < parts.length ? 'Text without a tint is not in the cache.' : '';
  nextTint = performance.now() + Math.max(400, 8 * (performance.now() - now));
}

// Returns what WhyView shows of a token of the newest answer.
function whyOf(position) {
  const node = newestAnswer();
  const { tokens, tiers } = node.memory;
  markToken(position);
  const texts = node.prompt ? [...node.prompt, ...node.trace.texts] : [];
  return { token: texts[position] ?? '', tier: tiers?.[Math.floor(position * tiers.length / tokens)],
           reasons: askWhy(node, position, runOf(state.current)?.node === node) };
}

function showUsage() {
  const run = runOf(state.current);
  const { text, isNearlyFull } = usageOf(run?.node ?? newestAnswer(), run, state.props?.default_generation_settings.n_ctx);
  $('usage').textContent = text;
  $('usage').classList.toggle('nearly', isNearlyFull);
}

function follow() {
  const box = $('scroll');
  if (!$('empty').hidden) box.scrollTop = 0;
  else if (state.follows) box.scrollTop = box.scrollHeight;
  retint();
}

function showButtons() {
  const is_running = runOf(state.current) !== undefined;
  const had_focus = document.activeElement === $('send') || document.activeElement === $('stop');
  $('send').hidden = is_running;
  $('stop').hidden = !is_running;
  $('send').disabled = state.props === null || composer.isEmpty || state.elsewhere.has(state.current.id);
  if (had_focus && document.activeElement === document.body) $(is_running ? 'stop' : 'input').focus();
}

const settingsOf = (conversation) => conversation.settings ?? state.settings;

function showSetting() {
  const { system, ...rest } = settingsOf(state.current);
  $('setting').textContent = [state.current.settings ? 'this chat' : '', system ? 'system prompt' : '', settings.describe(rest)].filter(Boolean).join(' · ');
}

const useSettings = (changed) => {
  state.settings = changed;
  showSetting();
};

// Gives the chat that is shown settings of its own; null: none. A new chat keeps them once it is stored.
function useOwnSettings(own) {
  Object.assign(state.current, { settings: own, set: Date.now() });
  if (state.conversations.includes(state.current)) save(state.current);
  showSetting();
}

// ---------------------------------------------------------------- asking

// Returns whether the shown chat can be answered now; tells the user why if it cannot.
function canAsk() {
  const { id } = state.current;
  if (state.elsewhere.has(id)) say('This chat is being answered in another tab.');
  else if (state.runs.has(id)) say('This chat is being answered: stop the answer, or wait for its end.');
  else return state.props !== null;
  return false;
}

// Sends a message {text, files} below the message `parent`. Returns whether it was sent.
function ask({ text, files }, parent) {
  if (!canAsk()) return false;
  const conversation = state.current;
  const node = talk.add(conversation, { role: 'user', parent, text, ...(files.length > 0 && { files }) });
  conversation.title ||= talk.titleOf(text || files[0].name);
  history.replaceState(null, '', `#${conversation.id}`);
  composer.chat = conversation.id;
  state.follows = true;
  answer(conversation, node);
  return true;
}

// Returns the id of the server's session for the answer, after forking another session if needed.
async function openSession(conversation, path) {
  if (!state.props.ebb.sessions) return undefined;
  const { id, from } = talk.sessionFor(conversation, path);
  if (from !== undefined) await send('POST', `/v1/sessions/${from}/fork`, { id }).catch(() => {});
  return id;
}

// Returns what take() calls as an answer grows; nothing of it is drawn while another chat is shown.
const pageOf = ({ conversation, node }) => {
  const isShown = () => conversation === state.current;
  return {
    view: () => isShown() ? state.views.get(node.id) : undefined,
    grown: () => isShown() && showUsage(),
    moved: () => isShown() && panel.show(node.memory, node.id),
    save: () => save(conversation, node),
  };
};

// Generates the answer to `asked`, or continues the answer `begun`.
async function answer(conversation, asked, begun = null) {
  if (!canAsk()) return;
  const path = talk.pathTo(conversation, asked.id);
  const { system, ...own } = settingsOf(conversation);
  const node = talk.add(conversation, {
    role: 'assistant', parent: asked.id, text: begun?.text ?? '', thought: begun?.thought ?? '',
    thoughtTokens: begun?.thoughtTokens, asked: { ...own, system }, error: '', cut: true, continued: begun?.id,
    trace: { ids: [], texts: [] },
  });
  const controller = new AbortController();
  const run = { controller, conversation, node, times: [] };
  state.runs.set(conversation.id, run);
  showPath();
  keep(conversation, asked, node);
  $('status').textContent = 'The model answers.';

  const messages = talk.requestMessages(path, system);
  if (begun !== null) {
    const last = { role: 'assistant', content: begun.text };
    if (begun.text === '') Object.assign(last, { content: '', reasoning_content: begun.thought });
    messages.push(last);
  }
  const body = { messages, return_progress: true, ...settings.requestFields(own) };
  if (begun === null) body.ebb.session = await openSession(conversation, path);
  try {
    await take(body, run, pageOf(run));
  } catch (error) {
    // The session was made with other settings, or does not know this branch: a new session is
    // used.
    const is_other = ['session_conflict', 'session_mismatch', 'session_corrupt'].includes(error.code);
    if (is_other && body.ebb.session && node.text === '') {
      const path_alone = [...path.slice(0, -2), path.at(-1)];
      body.ebb.session = talk.sessionFor({ ...conversation, sessions: {} }, path_alone.slice(-1)).id;
      await take(body, run, pageOf(run)).catch((again) => fail(node, again));
    } else {
      fail(node, error);
    }
  }
  if (node.text === '' && !node.thought && node.error) node.refused = true;
  state.runs.delete(conversation.id);
  state.views.get(node.id)?.end();
  const of = conversation === state.current ? '' : ` to “${conversation.title}”`;
  $('status').textContent = node.error ? `The answer${of} ended with an error.`
    : `The answer${of} is complete: ${plural(node.tokens ?? node.trace.ids.length, 'token')}.`;
  keep(conversation, node);
  showButtons();
  if (conversation !== state.current) return;
  showMemory();
  showUsage();
  follow();
}

function fail(node, error) {
  node.tokens = node.trace.ids.length;
  if (error.name === 'AbortError') {
    node.finish = 'stopped';
    return;
  }
  node.error = error.message;
  if (error.status === 0) awaitServer();
  if (error.status === 401) askForKey();
}

// ---------------------------------------------------------------- the page

function setTints(on) {
  state.tints = on;
  $('tint').setAttribute('aria-pressed', on);
  $('legend').hidden = !on;
  on ? retint(true) : clearTint();
}

function dress() {
  for (const button of document.querySelectorAll('[data-icon]')) button.append(icon(button.dataset.icon));
  $('legend').append(...kTiers.map(({ name, what }, tier) => el('span', { class: `tier t${tier}` }, el('u', {}, name), ` ${what}`)),
                     el('label', { class: 'guessed', title: 'Tokens of the newest answer that speculative decoding guessed: they took no step of their own' },
                        el('input', { type: 'checkbox', id: 'mark-guessed' }), ' ', el('u', {}, 'guessed')),
                     el('span', { id: 'legend-note' }));
  $('tint').hidden = !canTint;
}

function listen() {
  const onLink = (link, act) => link.addEventListener('click', (event) => { event.preventDefault(); act(); });
  $('stop').addEventListener('click', () => runOf(state.current)?.controller.abort());
  $('new').addEventListener('click', beginConversation);
  listenToSidebar();
  onLink($('server-link'), () => {
    if (!isOnServer()) history.pushState(null, '', '/dashboard');
    route();
  });
  onLink(document.querySelector('.brand .name'), beginConversation);
  onLink(document.querySelector('.skip'), () => $('input').focus());
  addEventListener('popstate', route);
  kept.listen(hear);
  settings.listen(useSettings);
  $('tint').addEventListener('click', () => setTints(!state.tints));
  $('mark-guessed').addEventListener('change', () => retint(true));
  $('open-settings').addEventListener('click', () => {
    if (state.props === null) return;
    settings.openSettings($('settings'), state.props,
                          { own: state.current.settings ?? null, changed: useSettings, setOwn: useOwnSettings });
  });
  $('search').addEventListener('input', showConversations);
  $('open-transfer').addEventListener('click', () => openTransfer($('transfer'), {
    conversations: state.conversations, take: takeImported,
    current: talk.activePath(state.current).length > 0 ? state.current : null,
  }));
  $('messages').addEventListener('click', ({ target, clientX, clientY }) => {
    if (!state.tints || !getSelection().isCollapsed || target.closest('a, button, summary, input, textarea')) return;
    const position = tokenAtPoint(clientX, clientY);
    if (position >= 0) panel.showWhy(position);
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && document.querySelector('dialog[open]') === null) {
      if (document.body.classList.contains('with-sidebar')) closeSidebar();
      else runOf(state.current)?.controller.abort();
    }
    if ((event.ctrlKey || event.metaKey) && event.shiftKey && event.key.toLowerCase() === 'o') {
      event.preventDefault();
      beginConversation();
    }
  });
  const box = $('scroll');
  box.addEventListener('scroll', () => {
    const left = box.scrollHeight - box.scrollTop - box.clientHeight;
    state.follows = left < 60;
    $('to-end').hidden = state.follows;
  }, { passive: true });
  $('to-end').addEventListener('click', () => {
    state.follows = true;
    follow();
  });
  new ResizeObserver(follow).observe($('messages'));
}

async function begin() {
  settings.applyTheme();
  dress();
  listen();
  const stored = await kept.all();
  state.removed = new Set(stored.filter(({ removed }) => removed).map(({ id }) => id));
  state.conversations = stored.filter(({ removed }) => !removed);
  route();
  await connect();
}

begin();
