// Words and small parts of the page. Nothing here knows the state of the page.
import { amount } from './draw.js';

// make returns an element with a text: text is never taken for HTML.
export const make = (tag, text, attributes = {}) => {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  return e;
};

// ago writes seconds in its two largest units: 2h15m.
export function ago(s) {
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'm'], [1, 's']];
  const out = [];
  for (const [size, unit] of parts) {
    if (s >= size && out.length < 2) out.push(Math.floor(s / size) + unit);
    s %= size;
  }
  return out.join('') || '0s';
}

export const bytes = (n) => (n >= 2 ** 30 ? (n / 2 ** 30).toFixed(1).replace('.0', '') + ' GiB' : Math.round(n / 2 ** 20) + ' MiB');
export const gpus = (milli) => (milli / 1000).toFixed(2);
export const slots = (n) => `${n} slot${n === 1 ? '' : 's'}`;

// note returns what a slice says beside its name.
export const note = (s) => [slots(s.to - s.from), s.held && 'kept', s.idle && 'idle', s.slowdownMilli > 1000 && (s.slowdownMilli / 1000).toFixed(2) + '×'].filter(Boolean).join(', ');

// tests are the choices of the filter "only".
export const tests = {
  sick: (d) => !d.healthy,
  slow: (d) => d.slices.some((s) => s.slowdownMilli > 1000),
  idle: (d) => d.slices.some((s) => s.idle),
  held: (d) => d.slices.some((s) => s.held),
  free: (d) => d.healthy && !d.slices.length,
};

// pairs returns a list of names and values, those without a value left out.
export function pairs(list) {
  const dl = make('dl');
  for (const [k, v] of list) if (v !== undefined && v !== '') dl.append(make('dt', k), make('dd', v));
  return dl;
}

// share describes a slice.
export function share(s) {
  const slow = s.slowdownMilli ? (s.slowdownMilli / 1000).toFixed(2) + '×' : 'not predicted';
  const part = amount(s, 'memory');
  return pairs([
    ['share', `${slots(s.to - s.from)}, ${bytes(s.memoryBytes)}${s.held ? ', kept for it' : ''}`], ['gang', s.gang], ['workload', s.workload], ['priority', s.priority],
    ['SM use', s.smPercent === undefined ? 'not measured' : s.smPercent + ' %' + (s.idle ? ', idle' : '')],
    ['memory', part === undefined ? 'not measured' : `${bytes(s.memoryUsedBytes)} (${Math.round(100 * part)} %)`],
    ['slowdown', slow + (s.maxSlowdownMilli ? `, promised at most ${(s.maxSlowdownMilli / 1000).toFixed(2)}×` : '')],
  ]);
}

// rows returns a table of GPUs.
export function rows(tiles) {
  const t = make('table'), head = make('tr');
  for (const h of ['GPU', 'place', 'model', 'health', 'shares']) head.append(make('th', h, { scope: 'col' }));
  t.append(head);
  for (const { name, node, device: d } of tiles) {
    const row = make('tr'), says = d.slices.map((s) => `${s.pod} (${note(s)})`).join(', ');
    row.append(make('th', name, { scope: 'row' }), make('td', node.place ?? ''), make('td', d.model), make('td', d.healthy ? 'healthy' : `sick ${d.reason ?? ''}`), make('td', says || 'free'));
    t.append(row);
  }
  return t;
}
