// The chat page: conversations on the left, messages in the middle, memory on the right. This file
// joins the parts; each of them stands in a module of its own.

import { ApiError, get, send, setKey, streamChat } from './api.js';
import { openCompare } from './compare.js';
import * as talk from './conversation.js';
import { el, icon, iconButton, plural } from './dom.js';
import { work } from './markdown.js';
import { kTiers, MemoryPanel } from './memory.js';
import { grow, MessageView } from './messages.js';
import * as settings from './settings.js';
import * as kept from './store.js';
import { canTint, clearTint, TokenMap, tint } from './tint.js';

const $ = (id) => document.getElementById(id);

const state = {
  props: null,             // of the server
  conversations: [],
  current: null,           // the conversation that is shown
  views: new Map(),        // of its messages, by id
  running: null,           // {controller, conversation, node}: the answer that is being generated
  settings: settings.load(),
  tints: false,
  follows: true,           // the newest text stays in sight
};
const panel = new MemoryPanel($('memory'));
let nextTint = 0;       // when tokens may be tinted again
let tintLater = null;

globalThis.ebbChat = { work, state };  // for tests

// ---------------------------------------------------------------- the server

let waitsForServer = null;

function showNotice(text, isGood = false) {
  $('notice').textContent = text;
  $('notice').hidden = text === '';
  $('notice').classList.toggle('good', isGood);
}

// Asks the server again and again until it answers.
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
  $('dashboard-link').hidden = !props.ebb.dashboard;
  $('kept').textContent = props.ebb.sessions
    ? 'Kept in this browser, and as sessions of the server.' : 'Kept in this browser.';
  panel.t1 = props.ebb.tiers?.t1 ?? 'file';
  showSetting();
  showButtons();
  if (props.ebb.sessions) takeSessions().catch(() => {});
}

// ---------------------------------------------------------------- conversations

// Conversations of this server that another browser began.
async function takeSessions() {
  const { data } = await get('/v1/sessions');
  const known = new Set(state.conversations.flatMap(({ sessions }) => Object.keys(sessions)));
  for (const { id, last_used } of data.sort((a, b) => a.last_used - b.last_used)) {
    const of = talk.conversationOf(id);
    if (of === null || known.has(id)) continue;
    const messages = (await get(`/v1/sessions/${id}/messages`)).data;
    const conversation = state.conversations.find((one) => one.id === of) ?? { ...talk.newConversation(), id: of };
    talk.addSession(conversation, id, messages);
    conversation.changed = last_used * 1000;
    if (!state.conversations.includes(conversation)) state.conversations.push(conversation);
    await kept.save(conversation);
  }
  showConversations();
}

function showConversations() {
  state.conversations.sort((a, b) => b.changed - a.changed);
  $('conversations').replaceChildren(...state.conversations.map((conversation) => {
    const open = el('button', { type: 'button', class: 'row', onclick: () => openConversation(conversation),
                                'aria-current': conversation === state.current ? 'page' : null }, conversation.title || 'New chat');
    if (state.running?.conversation === conversation) open.append(el('i', { class: 'busy', title: 'Answering' }));
    return el('li', {}, open, iconButton('trash', `Delete “${conversation.title}”`, () => removeConversation(conversation)));
  }));
}

function openConversation(conversation) {
  state.current = conversation;
  state.follows = true;
  closeSidebar();
  showPath();
  showConversations();
  history.replaceState(null, '', `#${conversation.id}`);
}

function beginConversation() {
  state.current = talk.newConversation();
  state.follows = true;
  closeSidebar();
  showPath();
  showConversations();
  history.replaceState(null, '', '#');
  $('input').focus();
}

async function removeConversation(conversation) {
  if (!confirm(`Delete “${conversation.title}”?`)) return;
  if (state.running?.conversation === conversation) state.running.controller.abort();
  state.conversations = state.conversations.filter((other) => other !== conversation);
  conversation.isRemoved = true;
  if (conversation === state.current) beginConversation(); else showConversations();
  await kept.remove(conversation.id);
  for (const id of Object.keys(conversation.sessions)) send('DELETE', `/v1/sessions/${id}`).catch(() => {});
}

function keep(conversation) {
  if (conversation.isRemoved) return;
  conversation.changed = Date.now();
  if (!state.conversations.includes(conversation)) state.conversations.push(conversation);
  kept.save(conversation).catch(() => showNotice('This browser could not keep the conversation.'));
  showConversations();
}

// ---------------------------------------------------------------- messages

const actions = {
  edit: (node, text) => ask(text, node.parent),
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
      messages: talk.requestMessages(path, node.asked?.system ?? state.settings.system),
      keep: (other) => {
        talk.add(conversation, other);
        keep(conversation);
        showPath();
      },
    });
  },
  drawn: () => follow(),
};

function makeView(node) {
  const view = new MessageView(node, talk.siblingsOf(state.current, node), actions, panel.t1);
  state.views.set(node.id, view);
  return view;
}

// Draws the branch that is shown.
function showPath() {
  state.views.clear();
  const path = talk.activePath(state.current);
  $('messages').replaceChildren(...path.map((node) => makeView(node).element));
  const { running } = state;
  if (running?.conversation === state.current) state.views.get(running.node.id)?.begin();
  $('empty').hidden = path.length > 0;
  document.body.classList.toggle('is-empty', path.length === 0);
  $('title').textContent = state.current.title || 'New chat';
  document.title = state.current.title ? `${state.current.title} – ebb` : 'ebb';
  showMemory();
  showButtons();
  follow();
}

function newestAnswer() { return talk.activePath(state.current).findLast((node) => node.memory); }

function showMemory() {
  panel.show(newestAnswer()?.memory ?? null);
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
  const map = new TokenMap([...node.prompt, ...node.trace.texts], node.memory.tokens, node.memory.tiers);
  const numFound = tint(parts, map);
  $('legend-note').textContent = numFound < parts.length ? 'Text without a tint is not in the cache.' : '';
  nextTint = performance.now() + Math.max(400, 8 * (performance.now() - now));
}

function follow() {
  const box = $('scroll');
  if (state.follows) box.scrollTop = box.scrollHeight;
  retint();
}

function showButtons() {
  const is_running = state.running !== null;
  const had_focus = document.activeElement === $('send') || document.activeElement === $('stop');
  $('send').hidden = is_running;
  $('stop').hidden = !is_running;
  $('send').disabled = state.props === null || $('input').value.trim() === '';
  if (had_focus && document.activeElement === document.body) $(is_running ? 'stop' : 'input').focus();
}

function showSetting() {
  const { system, ...rest } = state.settings;
  $('setting').textContent = [system ? 'system prompt' : '', settings.describe(rest)].filter(Boolean).join(' · ');
}

// ---------------------------------------------------------------- asking

function ask(text, parent) {
  if (state.running !== null || state.props === null) return;
  const conversation = state.current;
  const node = talk.add(conversation, { role: 'user', parent, text });
  if (conversation.title === '') conversation.title = talk.titleOf(text);
  state.follows = true;
  answer(conversation, node);
}

// The session of the server that an answer goes into, copied where it has to be.
async function openSession(conversation, path) {
  if (!state.props.ebb.sessions) return undefined;
  const { id, from } = talk.sessionFor(conversation, path);
  if (from !== undefined) await send('POST', `/v1/sessions/${from}/fork`, { id }).catch(() => {});
  return id;
}

// Generates the answer to `asked`, or goes on with the answer `begun`.
async function answer(conversation, asked, begun = null) {
  if (state.running !== null) return;
  const path = talk.pathTo(conversation, asked.id);
  const { system, ...own } = state.settings;
  const node = begun ?? talk.add(conversation, { role: 'assistant', parent: asked.id, text: '', thought: '' });
  conversation.leaf = node.id;
  Object.assign(node, { asked: { ...own, system }, error: '', cut: true, finish: undefined, refused: false,
                        continued: begun !== null || undefined, session: undefined, trace: { ids: [], texts: [] } });
  // The newest answer tells of all tokens before it.
  for (const earlier of path) delete earlier.prompt;
  const controller = new AbortController();
  const run = state.running = { controller, conversation, node };
  showPath();
  keep(conversation);
  $('status').textContent = 'The model answers.';

  const messages = talk.requestMessages(path, system);
  if (begun !== null) {
    const last = { role: 'assistant', content: begun.text };
    if (begun.text === '') Object.assign(last, { content: '', reasoning_content: begun.thought });
    messages.push(last);
  }
  const body = { messages, return_progress: true, ...settings.requestFields(own) };
  if (begun === null) body.session_id = await openSession(conversation, path);
  try {
    await take(body, run);
  } catch (error) {
    // Another setting, or a branch that the session does not know: a session of its own.
    const is_other = ['session_conflict', 'session_mismatch', 'session_corrupt'].includes(error.code);
    if (is_other && body.session_id && node.text === '') {
      const path_alone = [...path.slice(0, -2), path.at(-1)];
      body.session_id = talk.sessionFor({ ...conversation, sessions: {} }, path_alone.slice(-1)).id;
      await take(body, run).catch((again) => fail(node, again));
    } else {
      fail(node, error);
    }
  }
  if (node.text === '' && !node.thought && node.error) node.refused = true;
  state.running = null;
  state.views.get(node.id)?.end();
  $('status').textContent = node.error ? 'The answer ended with an error.'
    : `The answer is complete: ${plural(node.tokens ?? node.trace.ids.length, 'token')}.`;
  keep(conversation);
  showButtons();
  if (conversation === state.current) showMemory();
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

const kKeepEvery = 2000;  // ms: a page that is closed loses no more of an answer

// Takes the events of an answer.
async function take(body, { controller, conversation, node }) {
  const before = node.thoughtTokens ?? 0;
  let thoughtTokens = 0;
  let kept_at = performance.now();
  for await (const event of streamChat(body, controller.signal)) {
    const view = state.current === conversation ? state.views.get(node.id) : undefined;
    const choice = event.choices[0];
    const { delta = {}, finish_reason } = choice ?? {};
    const own = event.ebb ?? {};
    if (event.prompt_progress) {
      const { total, processed } = event.prompt_progress;
      if (processed < total) view?.showWait(`Reading ${Math.round(100 * processed / total)} % of ${plural(total, 'token')}`);
    }
    if (own.prompt) {
      node.prompt = own.prompt;
      node.promptTokens = own.prompt.length;
    }
    for (const { id, text } of own.tokens ?? []) {
      node.trace.ids.push(id);
      node.trace.texts.push(text);
    }
    const thought = delta.reasoning_content ?? '';
    if (thought !== '') {
      thoughtTokens += own.tokens?.length ?? 0;
      node.thoughtTokens = before + thoughtTokens;
      node.thought += thought;
      view?.addThought(thought);
    }
    if (delta.content) {
      node.text += delta.content;
      view?.addText(delta.content);
    }
    if (own.memory) {
      node.memory = own.memory;
      if (conversation === state.current) panel.show(own.memory);
    }
    if (finish_reason) {
      node.finish = finish_reason;
      node.cut = finish_reason === 'length';
      node.speed = event.timings?.predicted_per_second;
      if (own.seed !== undefined) node.seed = own.seed;
      if (own.session) {
        node.session = own.session.id;
        conversation.sessions[own.session.id] = node.id;
      }
    }
    if (performance.now() - kept_at > kKeepEvery) {
      kept_at = performance.now();
      if (!conversation.isRemoved) kept.save(conversation).catch(() => {});
    }
    if (event.usage) {
      node.tokens = event.usage.completion_tokens;
      node.thoughtTokens = before + event.usage.completion_tokens_details.reasoning_tokens;
    }
  }
}

// ---------------------------------------------------------------- the page

function openSidebar() {
  document.body.classList.add('with-sidebar');
  document.querySelector('main').inert = $('memory').inert = true;
  $('open-sidebar').setAttribute('aria-expanded', 'true');
  $('shade').hidden = false;
  $('close-sidebar').focus();
}

function closeSidebar() {
  if (!document.body.classList.contains('with-sidebar')) return;
  document.body.classList.remove('with-sidebar');
  document.querySelector('main').inert = $('memory').inert = false;
  $('open-sidebar').setAttribute('aria-expanded', 'false');
  $('shade').hidden = true;
  $('open-sidebar').focus();
}

function setTints(on) {
  state.tints = on;
  $('tint').setAttribute('aria-pressed', on);
  $('legend').hidden = !on;
  on ? retint(true) : clearTint();
}

const kIdeas = [
  'How many primes are there below 50? Think step by step.',
  'Write a Python function that finds the longest palindrome in a text, and explain it.',
  'Derive the solution of a quadratic equation, with formulas.',
];

function dress() {
  for (const [id, name] of [['close-sidebar', 'close'], ['open-sidebar', 'menu'], ['open-settings', 'settings'],
                            ['send', 'send'], ['stop', 'stop'], ['to-end', 'down']]) $(id).append(icon(name));
  $('ideas').append(...kIdeas.map((text) => el('button', { type: 'button', onclick: () => {
    $('input').value = text;
    $('input').dispatchEvent(new Event('input'));
    $('input').focus();
  } }, text)));
  $('legend').append(...kTiers.map(({ name, what }, tier) => el('span', { class: `tier t${tier}` }, el('u', {}, name), ` ${what}`)),
                     el('span', { id: 'legend-note' }));
  $('tint').hidden = !canTint;
}

function listen() {
  const input = $('input');
  input.addEventListener('input', () => {
    grow(input);
    showButtons();
  });
  const submit = () => {
    const text = input.value.trim();
    if (text === '' || state.running !== null || state.props === null) return;
    input.value = '';
    grow(input);
    ask(text, state.current.leaf);
  };
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    }
  });
  $('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    submit();
  });
  $('stop').addEventListener('click', () => state.running?.controller.abort());
  $('new').addEventListener('click', beginConversation);
  $('open-sidebar').addEventListener('click', openSidebar);
  $('close-sidebar').addEventListener('click', closeSidebar);
  $('shade').addEventListener('click', closeSidebar);
  $('tint').addEventListener('click', () => setTints(!state.tints));
  $('open-settings').addEventListener('click', () => {
    if (state.props === null) return;
    settings.openSettings($('settings'), state.props, (changed) => {
      state.settings = changed;
      showSetting();
    });
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && document.querySelector('dialog[open]') === null) {
      if (document.body.classList.contains('with-sidebar')) closeSidebar();
      else state.running?.controller.abort();
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
  state.conversations = await kept.all();
  const wanted = state.conversations.find(({ id }) => id === location.hash.slice(1));
  wanted ? openConversation(wanted) : beginConversation();
  showConversations();
  await connect();
}

begin();
