// Holds the settings of answers: the fields of a request that this server supports according to
// /props.

import { el } from './dom.js';

const kStored = 'ebb-chat-settings';
const kTheme = 'ebb-theme';

export function load() {
  try {
    return JSON.parse(localStorage.getItem(kStored)) ?? {};
  } catch {
    return {};
  }
}

// Stores the values that differ from those in `before`, and returns all settings: another tab may
// have changed others meanwhile.
function store(before, values) {
  const settings = load();
  for (const key of Object.keys({ ...before, ...values })) if (before[key] !== values[key]) settings[key] = values[key];
  try {
    localStorage.setItem(kStored, JSON.stringify(settings));
  } catch { /* they last as long as the page */ }
  return settings;
}

// Calls changed(settings) when another tab has stored settings.
export function listen(changed) {
  addEventListener('storage', ({ key }) => {
    if (![kStored, kTheme, null].includes(key)) return;  // null: all was deleted
    applyTheme();
    changed(load());
  });
}

export function applyTheme(theme = localStorage.getItem(kTheme) ?? 'auto') {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem(kTheme, theme);
  return theme;
}

// Formats a float32 as a person would write it: 0.8 rather than 0.800000011920929.
const shown = (value) => typeof value === 'number' ? Number(value.toPrecision(6)) : value ?? '';

// Lists the numbers of sampling: the key of the setting, its label, its name in summaries (null:
// describe() has its own words), the attributes of its field, and a note. `field` is the name in a
// request and in `params` of /props, where it is not the key.
const kSampling = [
  { key: 'temperature', label: 'Temperature', name: 'temperature', input: { min: 0, max: 2, step: 0.05 } },
  { key: 'top_p', label: 'Top p', name: 'top p', input: { min: 0, max: 1, step: 0.01 } },
  { key: 'top_k', label: 'Top k', name: 'top k', input: { min: 0, max: 1000, step: 1 } },
  { key: 'min_p', label: 'Min p', name: 'min p', input: { min: 0, max: 1, step: 0.01 } },
  { key: 'repetition_penalty', label: 'Repetition penalty', name: 'repetition penalty', field: 'repeat_penalty',
    input: { min: 0.1, max: 2, step: 0.05 } },
  { key: 'presence_penalty', label: 'Presence penalty', name: 'presence penalty', input: { min: -2, max: 2, step: 0.05 } },
  { key: 'frequency_penalty', label: 'Frequency penalty', name: 'frequency penalty', input: { min: -2, max: 2, step: 0.05 } },
  { key: 'seed', label: 'Seed', name: 'seed', input: { min: -1, step: 1 } },
  { key: 'max_tokens', label: 'Most tokens', name: null, input: { min: 1, step: 1 } },
];
const kMoreSampling = [
  { key: 'dry_multiplier', label: 'DRY penalty', name: 'DRY penalty', input: { min: 0, step: 0.05 },
    note: 'For tokens that repeat a passage. 0: off' },
  { key: 'dry_base', label: 'DRY base', name: 'DRY base', input: { min: 1, step: 0.05 },
    note: 'Growth of the penalty with each further token' },
  { key: 'dry_allowed_length', label: 'DRY free length', name: 'DRY free length', input: { min: 0, step: 1 },
    note: 'Tokens that may repeat without a penalty' },
  { key: 'dry_penalty_last_n', label: 'DRY window', name: 'DRY window', input: { min: -1, step: 1 },
    note: 'Newest tokens that are searched. -1: all' },
  { key: 'xtc_probability', label: 'XTC probability', name: 'XTC probability', input: { min: 0, max: 1, step: 0.05 },
    note: 'How often all good tokens but the least likely are left out. 0: off' },
  { key: 'xtc_threshold', label: 'XTC threshold', name: 'XTC threshold', input: { min: 0, max: 1, step: 0.01 },
    note: 'Probability from which a token is good' },
  { key: 'typical_p', label: 'Typical p', name: 'typical p', input: { min: 0, max: 1, step: 0.01 },
    note: 'Keeps tokens about as surprising as expected. 1: off' },
  { key: 'top_n_sigma', label: 'Top n sigma', name: 'top n sigma', input: { min: -1, step: 0.05 },
    note: 'Keeps logits so many standard deviations below the largest. -1: off' },
  { key: 'dynatemp_range', label: 'Temperature range', name: 'temperature range', input: { min: 0, step: 0.05 },
    note: 'Raises the temperature where the model is unsure, and lowers it elsewhere. 0: off' },
  { key: 'dynatemp_exponent', label: 'Range exponent', name: 'range exponent', input: { min: 0, step: 0.05 },
    note: 'Above 1, only great doubt raises it' },
  { key: 'mirostat_tau', label: 'Mirostat target', name: 'Mirostat target', input: { min: 0, step: 0.05 },
    note: 'The surprise of a token, in bits' },
  { key: 'mirostat_eta', label: 'Mirostat rate', name: 'Mirostat rate', input: { min: 0, step: 0.01 },
    note: 'How fast it nears the target' },
];
const kMirostat = [['0', 'Off'], ['1', 'Version 1'], ['2', 'Version 2']];

const kShares = ['t0', 'evict'];
const isGiven = (value) => value !== undefined && value !== null && value !== '';

// Returns the request fields for these settings.
export function requestFields(settings) {
  const fields = {};
  for (const { key, field = key } of [...kSampling, ...kMoreSampling]) {
    if (isGiven(settings[key])) fields[field] = Number(settings[key]);
  }
  if (isGiven(settings.mirostat)) fields.mirostat = Number(settings.mirostat);
  if (isGiven(settings.samplers)) fields.samplers = String(settings.samplers).split(';').map((name) => name.trim()).filter(Boolean);
  if (settings.thinking === 'off') fields.reasoning_effort = 'none';
  if (isGiven(settings.thinking_budget)) fields.thinking_token_budget = Number(settings.thinking_budget);
  const own = { memory: true };
  if (isGiven(settings.policy)) own.policy = settings.policy;
  if (isGiven(settings.budget)) own.budget = String(settings.budget);
  for (const key of kShares) if (isGiven(settings[key])) own[key] = `${settings[key]}%`;
  if (isGiven(settings.t2)) own.t2 = settings.t2;
  if (isGiven(settings.lossless)) own.lossless = settings.lossless === 'on';
  return { ...fields, ebb: own };
}

// Returns a text about the tokens that a value of the option --t2 compresses: "old:int8",
// "50%:int4", "0%".
function t2Text(value) {
  const [, what, bits = '8'] = /^(old|[\d.]+%)(?::int(\d))?/.exec(value) ?? [];
  if (what === undefined) return value;
  if (parseFloat(what) === 0) return 'nothing compressed';
  return what === 'old' ? `old tokens in ${bits} bits` : `${parseFloat(what)} % in ${bits} bits`;
}

function t0Text(share) { return Number(share) === 100 ? 'all in fast memory' : `${share} % in fast memory`; }

function evictText(share) { return Number(share) === 0 ? 'nothing evicted' : `${share} % evicted`; }

// Describes the settings, such as "20 % in fast memory, lossless"; empty if nothing is set.
export function describe(settings) {
  const parts = [];
  const add = (key, name) => { if (isGiven(settings[key])) parts.push(`${name} ${settings[key]}`); };
  for (const { key, name } of [...kSampling, ...kMoreSampling]) if (name) add(key, name);
  if (isGiven(settings.mirostat)) parts.push(settings.mirostat === '0' ? 'no Mirostat' : `Mirostat ${settings.mirostat}`);
  add('samplers', 'samplers');
  add('policy', 'policy');
  add('budget', 'rows kept:');
  if (isGiven(settings.max_tokens)) parts.push(`at most ${settings.max_tokens} tokens`);
  if (isGiven(settings.thinking_budget)) parts.push(`at most ${settings.thinking_budget} tokens of thought`);
  if (isGiven(settings.t0)) parts.push(t0Text(settings.t0));
  if (isGiven(settings.t2)) parts.push(t2Text(settings.t2));
  if (isGiven(settings.evict)) parts.push(evictText(settings.evict));
  if (settings.lossless === 'on') parts.push('lossless');
  if (settings.lossless === 'off') parts.push('not lossless');
  if (settings.thinking === 'off') parts.push('no thoughts');
  return parts.join(' · ');
}

// Returns settings that show what this server's cache can do, for a comparison.
export function presets(own) {
  const made = [];
  if (own.tiers) {
    made.push(['Full cache', { t0: '100', t2: '0%', evict: '0', budget: '', lossless: 'off' }],
              ['A fifth in fast memory', { t0: '20', t2: '0%', evict: '0', budget: '' }],
              ['Compressed to 8 bits', { t2: 'old:int8', evict: '0', budget: '' }],
              ['Compressed to 4 bits', { t2: 'old:int4', evict: '0', budget: '' }],
              ['A fifth evicted', { t2: '0%', evict: '20', budget: '' }]);
  } else {
    made.push(['Full cache', { policy: 'full', budget: '', lossless: 'off' }]);
    for (const policy of ['h2o', 'tova', 'streaming']) {
      if (own.policies.some(({ name, takes_budget }) => name === policy && takes_budget)) {
        made.push([`${policy}, half of the rows`, { policy, budget: '50%', lossless: 'off' }]);
      }
    }
  }
  made.push(['Lossless', { lossless: 'on' }], ['Another seed', { seed: '-1' }]);
  return made;
}

const sentence = (text) => text[0].toUpperCase() + text.slice(1);

let nextId = 0;

// SettingsForm is a form for `settings`; values() returns its current values.
export class SettingsForm {
  constructor(settings, props, { withSystem = false } = {}) {
    const own = props.ebb;
    const params = props.default_generation_settings.params;
    this.inputs = {};
    const groups = [];
    const field = (key, label, control, note) => {
      const id = `setting-${key}-${++nextId}`;
      control.id = id;
      if (isGiven(settings[key])) control.value = settings[key];
      this.inputs[key] = control;
      if (note) control.setAttribute('aria-describedby', `${id}-note`);
      return el('div', { class: 'setting' }, el('label', { for: id }, label), control,
                note ? el('small', { id: `${id}-note`, class: 'soft' }, note) : null);
    };
    const group = (title, ...fields) =>
      groups.push(el('fieldset', {}, el('legend', {}, title), el('div', { class: 'grid' }, ...fields)));
    const choice = (...options) =>
      el('select', {}, ...options.map(([value, label]) => el('option', { value }, label)));
    const share = (key, label, value, note) =>
      field(key, label, el('input', { type: 'number', min: 0, max: 100, step: 1, placeholder: parseFloat(value) }), note);

    if (withSystem) {
      const system = field('system', 'System prompt', el('textarea', { rows: 3, placeholder: 'None' }));
      system.classList.add('wide');
      group('Instructions', system);
    }
    const number = ({ key, label, field: name = key, input, note }) => {
      const usual = key === 'max_tokens' && params[name] < 0 ? 'no limit' : shown(params[name]);
      return field(key, label, el('input', { type: 'number', placeholder: usual, ...input }), note);
    };
    group('Sampling', ...kSampling.map(number));
    const [usual] = kMirostat.filter(([value]) => value === String(params.mirostat)).map(([, label]) => label.toLowerCase());
    const mirostat = field('mirostat', 'Mirostat', choice(['', `Default (${usual})`], ...kMirostat),
                           'Holds the surprise of the text at a target; top k, top p and the like rest');
    const order = field('samplers', 'Order of samplers', el('input', { type: 'text', spellcheck: 'false',
                        placeholder: params.samplers.join(';') }), 'Names with ; between them. Those left out are off');
    order.classList.add('wide');
    const moreKeys = ['mirostat', 'samplers', ...kMoreSampling.map(({ key }) => key)];
    const more = el('details', { class: 'more', open: moreKeys.some((key) => isGiven(settings[key])) },
                    el('summary', {}, 'More samplers'), el('div', { class: 'grid' }, ...kMoreSampling.map(number), mirostat, order));
    // A field that the browser refuses must be seen.
    more.addEventListener('invalid', () => { more.open = true; }, true);
    groups.push(more);
    if (own.thinks) {
      group('Thinking',
            field('thinking', 'Thoughts', choice(['', 'Default'], ['off', 'None'])),
            field('thinking_budget', 'Budget', el('input', { type: 'number', min: 0, step: 1,
                  placeholder: own.thinking_budget < 0 ? 'no limit' : own.thinking_budget }), 'Tokens before the thought is closed'));
    }
    const policies = [['', `Default (${own.policy})`],
                      ...own.policies.map(({ name, description }) => [name, `${name}: ${description}`])];
    const memory = [];
    if (own.tiers) {
      const compressed = field('t2', 'Compressed (T2)', choice(['', `Default: ${t2Text(own.tiers.t2)}`],
        ...['0%', '50%:int8', 'old:int8', 'old:int4', 'old:int3', 'old:int2'].map((value) => [value, sentence(t2Text(value))])),
        'Tokens that are kept with fewer bits');
      compressed.classList.add('double');
      memory.push(share('t0', 'Fast memory (T0), %', own.tiers.t0, 'Of the tokens that may move'), compressed,
                  share('evict', 'Evicted (T3), %', own.tiers.evict, 'Tokens that go for good'));
    }
    memory.push(field('budget', 'Budget', el('input', { type: 'text', placeholder: 'all tokens', spellcheck: 'false' }),
                      'Tokens that the policy keeps: 512, or 50%'));
    memory.push(field('lossless', 'Lossless', choice(['', `Default (${own.lossless ? 'on' : 'off'})`],
                                                     ['on', 'On'], ['off', 'Off']), 'The full cache’s text, bit for bit'));
    const policy = field('policy', 'Policy', choice(...policies), 'Chooses the tokens to keep, move or evict');
    policy.classList.add('wide');
    group('Memory', policy, ...memory);
    if (!own.tiers) {
      groups.push(el('p', { class: 'soft note' }, 'This server has no tiers. ', el('code', {}, 'ebb serve --t0 50% --t1 file'),
                     ' starts one that has, and this page then shows their settings.'));
    }
    this.element = el('div', { class: 'settings' }, ...groups);
  }

  values() {
    const settings = {};
    for (const [key, input] of Object.entries(this.inputs)) if (input.value !== '') settings[key] = input.value;
    return settings;
  }

  fill(settings) {
    for (const [key, value] of Object.entries(settings)) if (this.inputs[key]) this.inputs[key].value = value;
  }

  clear() { for (const input of Object.values(this.inputs)) input.value = ''; }
}

// Opens the dialog of the settings. own: those of the chat that is shown; null: it has none.
// changed(settings): those of all chats changed. setOwn(settings): those of this chat did.
export function openSettings(dialog, props, { own, changed, setOwn }) {
  const before = load();
  let form = null;
  const scope = el('select', { id: 'scope' }, el('option', { value: 'all' }, 'All chats without settings of their own'),
                   el('option', { value: 'own' }, 'This chat alone'));
  const place = el('div');
  const fill = () => {
    form = new SettingsForm(scope.value === 'own' ? own ?? before : before, props, { withSystem: true });
    place.replaceChildren(form.element);
  };
  scope.value = own === null ? 'all' : 'own';
  scope.addEventListener('change', fill);
  fill();
  const theme = el('select', { id: 'theme' }, el('option', { value: 'auto' }, 'As the system'),
                   el('option', { value: 'light' }, 'Light'), el('option', { value: 'dark' }, 'Dark'));
  theme.value = applyTheme();
  theme.addEventListener('change', () => applyTheme(theme.value));
  const finish = () => {
    const is_own = scope.value === 'own';
    if (is_own || own !== null) setOwn(is_own ? form.values() : null);
    if (!is_own) changed(store(before, form.values()));
  };
  const body = el('form', { method: 'dialog', onsubmit: finish },
    el('h2', { id: 'settings-title' }, 'Settings'),
    el('p', { class: 'soft note' }, 'They hold for answers from now on. An empty field leaves it to the server.'),
    el('div', { class: 'setting' }, el('label', { for: 'scope' }, 'They hold for'), scope),
    place,
    el('fieldset', {}, el('legend', {}, 'Appearance'),
       el('div', { class: 'grid' }, el('div', { class: 'setting' }, el('label', { for: 'theme' }, 'Colours'), theme))),
    el('div', { class: 'actions' },
       el('button', { type: 'button', onclick: () => form.clear() }, 'Reset'),
       el('span', { class: 'grow' }),
       el('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'),
       el('button', { type: 'submit', class: 'primary' }, 'Save')));
  dialog.replaceChildren(body);
  dialog.showModal();
}
