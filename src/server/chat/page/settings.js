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
  addEventListener('storage', () => {
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

// Returns the rows of the form: [key, label, attributes, note]. An empty field leaves the value to
// the server.
function samplingRows(params) {
  const number = (key, label, attributes, value) =>
    [key, label, { type: 'number', placeholder: shown(value), ...attributes }];
  return [
    number('temperature', 'Temperature', { min: 0, max: 2, step: 0.05 }, params.temperature),
    number('top_p', 'Top p', { min: 0, max: 1, step: 0.01 }, params.top_p),
    number('top_k', 'Top k', { min: 0, max: 1000, step: 1 }, params.top_k),
    number('min_p', 'Min p', { min: 0, max: 1, step: 0.01 }, params.min_p),
    number('repetition_penalty', 'Repetition penalty', { min: 0.1, max: 2, step: 0.05 }, params.repeat_penalty),
    number('seed', 'Seed', { min: -1, step: 1 }, params.seed),
    number('max_tokens', 'Most tokens', { min: 1, step: 1 }, params.max_tokens < 0 ? 'no limit' : params.max_tokens),
  ];
}

const kNumbers = ['temperature', 'top_p', 'top_k', 'min_p', 'repetition_penalty', 'seed', 'max_tokens'];
const kShares = ['t0', 'evict'];
const isGiven = (value) => value !== undefined && value !== null && value !== '';

// Returns the request fields for these settings.
export function requestFields(settings) {
  const fields = {};
  for (const key of kNumbers) if (isGiven(settings[key])) fields[key] = Number(settings[key]);
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

const kNames = {
  temperature: 'temperature', top_p: 'top p', top_k: 'top k', min_p: 'min p', repetition_penalty: 'repetition penalty',
  seed: 'seed', max_tokens: 'at most', thinking_budget: 'thinking budget', policy: '', budget: 'budget',
};

// Describes the settings, as in "T0 20 %, lossless"; empty if nothing is set.
export function describe(settings) {
  const parts = [];
  for (const [key, name] of Object.entries(kNames)) {
    if (!isGiven(settings[key])) continue;
    parts.push(key === 'max_tokens' ? `at most ${settings[key]} tokens` : `${name} ${settings[key]}`.trim());
  }
  if (isGiven(settings.t0)) parts.push(`T0 ${settings.t0} %`);
  if (isGiven(settings.t2)) parts.push(`T2 ${settings.t2}`);
  if (isGiven(settings.evict)) parts.push(`evict ${settings.evict} %`);
  if (settings.lossless === 'on') parts.push('lossless');
  if (settings.lossless === 'off') parts.push('not lossless');
  if (settings.thinking === 'off') parts.push('no thoughts');
  return parts.join(' · ');
}

// Returns settings that show what this server's cache can do, for a comparison.
export function presets(own) {
  const made = [];
  if (own.tiers) {
    made.push(['Full cache', { t0: '100', t2: '0%', evict: '0', lossless: 'off' }],
              ['A fifth in fast memory', { t0: '20', t2: '0%', evict: '0' }],
              ['Compressed to 8 bits', { t2: 'old:int8', evict: '0' }],
              ['Compressed to 4 bits', { t2: 'old:int4', evict: '0' }],
              ['A fifth evicted', { t2: '0%', evict: '20' }]);
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
    group('Sampling', ...samplingRows(params).map(([key, label, attributes]) => field(key, label, el('input', attributes))));
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
      memory.push(share('t0', 'T0, %', own.tiers.t0, 'Rows in fast memory'),
                  field('t2', 'T2', choice(['', `Default (${own.tiers.t2})`], ['0%', 'None'], ['50%:int8', 'Half, 8 bits'],
                                           ['old:int8', 'Old rows, 8 bits'], ['old:int4', 'Old rows, 4 bits'],
                                           ['old:int3', 'Old rows, 3 bits']), 'Compressed rows'),
                  share('evict', 'Evict, %', own.tiers.evict, 'Rows that go for good'));
    } else {
      memory.push(field('budget', 'Budget', el('input', { type: 'text', placeholder: 'all rows', spellcheck: 'false' }),
                        'Rows that the policy keeps: 512, or 50%'));
    }
    memory.push(field('lossless', 'Lossless', choice(['', `Default (${own.lossless ? 'on' : 'off'})`],
                                                     ['on', 'On'], ['off', 'Off']), 'The full cache’s text, bit for bit'));
    const policy = field('policy', 'Policy', choice(...policies), 'Decides which rows stay where they are');
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

// Opens the dialog of the page's settings.
export function openSettings(dialog, props, changed) {
  const before = load();
  const form = new SettingsForm(before, props, { withSystem: true });
  const theme = el('select', { id: 'theme' }, el('option', { value: 'auto' }, 'As the system'),
                   el('option', { value: 'light' }, 'Light'), el('option', { value: 'dark' }, 'Dark'));
  theme.value = applyTheme();
  theme.addEventListener('change', () => applyTheme(theme.value));
  const finish = () => changed(store(before, form.values()));
  const body = el('form', { method: 'dialog', onsubmit: finish },
    el('h2', { id: 'settings-title' }, 'Settings'),
    el('p', { class: 'soft note' }, 'They hold for answers from now on. An empty field leaves it to the server.'),
    form.element,
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
