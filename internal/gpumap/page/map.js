// The page of the GPU map: fetches pictures, and reacts to people. draw.js draws, words.js describes.
import { at, beside, draw, legendOf, place, swatch, themes } from './draw.js';
import { ago, bytes, gpus, make, note, pairs, rows, share, slots, tests } from './words.js';

const $ = (id) => document.getElementById(id);
const state = {
  moments: { seconds: [] }, index: 0, follows: true, picture: undefined, nodes: [], plan: undefined, zoom: 0,
  cursor: '', selected: '', marked: undefined, kept: new Map(), answered: new Map(), tag: '', wanted: 0, playing: 0,
};
// Pictures that are kept for the slider: about 1 MB each at 1,000 GPUs.
const mostKept = 24;
const pause = { poll: 5000, frame: 400 };
const canvas = $('map'), pen = canvas.getContext('2d', { alpha: false }), pane = $('pane');
let first = true, dirty = false, listed = false, asking;

const theme = () => themes[document.documentElement.dataset.theme];
// --- data

async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}

function trouble(err) {
  $('trouble').hidden = !err;
  $('trouble').textContent = err ? `The map could not be loaded: ${err.message}` : '';
}

async function poll() {
  try {
    state.moments = await get('moments');
    const last = Math.max(0, state.moments.seconds.length - 1);
    $('time').max = last;
    $('title').textContent = state.moments.title;
    if (state.follows) state.index = last;
    await load();
    trouble();
  } catch (err) {
    trouble(err);
  }
  if (state.moments.live || !state.moments.seconds.length) setTimeout(poll, pause.poll);
}

async function load() {
  const second = state.moments.seconds[state.index];
  if (second === undefined) return;
  const mine = ++state.wanted;
  let picture = state.kept.get(second);
  if (!picture) {
    picture = await get(`picture?at=${second}`);
    state.kept.set(second, picture);
    if (state.kept.size > mostKept) state.kept.delete(state.kept.keys().next().value);
  }
  if (mine !== state.wanted) return; // a later one was asked for meanwhile
  state.picture = picture;
  $('time').value = state.index;
  $('at').textContent = clock(second);
  $('time').setAttribute('aria-valuetext', clock(second));
  options();
  filter();
  panel();
}

function go(index) {
  state.index = Math.max(0, Math.min(state.moments.seconds.length - 1, index));
  state.follows = state.moments.live && state.index === state.moments.seconds.length - 1;
  load().then(() => trouble(), trouble);
}

// clock writes a time: of the day, or since the start of a scenario.
function clock(second) {
  if (state.picture && state.picture.source !== 'simulator') return new Date(second * 1000).toISOString().slice(0, 19).replace('T', ' ') + ' UTC';
  return 'after ' + ago(second);
}

// --- filters

function options() {
  fill($('namespace'), state.picture.owners.map((o) => o.namespace));
  fill($('model'), state.picture.models);
}

function fill(select, values) {
  const known = [...select.options].slice(1).map((o) => o.value);
  if (known.join('\n') === values.join('\n')) return;
  const chosen = select.value;
  if (chosen && !values.includes(chosen)) values = [...values, chosen]; // it may come back at another time
  select.replaceChildren(select.options[0], ...values.map((v) => make('option', v || '(none)', { value: v })));
  select.value = chosen;
}

function passes(node, d) {
  const only = $('only').value, model = $('model').value, text = $('text').value.trim().toLowerCase();
  const owner = $('namespace').selectedIndex > 0 ? $('namespace').value : undefined;
  if (only && !tests[only](d)) return false;
  if (model && d.model !== model) return false;
  if (owner !== undefined && !d.slices.some((s) => state.picture.owners[s.owner].namespace === owner)) return false;
  if (!text) return true;
  return [node.name + '/' + d.name, node.place, d.id, d.model, ...d.slices.flatMap((s) => [s.pod, s.gang, s.workload])].some((v) => v?.toLowerCase().includes(text));
}

function filter() {
  const kept = new Set();
  let all = 0;
  state.nodes = state.picture.nodes.filter((n) => {
    all += n.devices.length;
    const found = n.devices.filter((d) => passes(n, d));
    for (const d of found) kept.add(d);
    return found.length || (!n.devices.length && !$('only').value && !$('text').value);
  });
  state.passing = kept;
  $('shown').textContent = `${kept.size} of ${all} GPUs`;
  layout();
  if (listed) table();
}

// --- the map

function layout() {
  if (!state.picture) return;
  const w = pane.clientWidth, h = pane.clientHeight, ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
    canvas.style.height = h + 'px';
  }
  state.plan = place(state.nodes, w, h, state.zoom);
  $('space').style.height = Math.max(0, state.plan.height - h) + 'px';
  redraw();
}

function redraw() {
  if (dirty) return;
  dirty = true;
  requestAnimationFrame(() => {
    dirty = false;
    const ratio = window.devicePixelRatio || 1, marks = state.marked;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw(pen, state.plan, pane.scrollTop, pane.clientWidth, pane.clientHeight, {
      colour: $('colour').value, theme: theme(), cursor: state.cursor,
      dim: (t) => !state.passing.has(t.device) || (marks?.tiles.size > 0 && !marks.tiles.has(t.name)),
      marked: (t) => marks?.tiles.has(t.name),
      found: (n) => marks?.nodes.has(n.name),
      joined: (t) => t.node.devices[t.node.devices.indexOf(t.device) + 1]?.island === t.device.island,
    });
    if (first) performance.mark('picture');
    first = false;
  });
}

function tell(tile) {
  const d = tile.device;
  const who = d.slices.map((s) => `${s.pod} ${slots(s.to - s.from)}${s.held ? ', kept for it' : ''}${s.idle ? ', idle' : ''}${s.slowdownMilli > 1000 ? `, slowed down ${(s.slowdownMilli / 1000).toFixed(2)} times` : ''}`);
  $('now').textContent = `${tile.name}, ${d.model}${d.healthy ? '' : ', sick'}: ${who.join('; ') || 'free'}`;
}

function moveTo(tile) {
  if (!tile) return;
  state.cursor = tile.name;
  const top = pane.scrollTop, p = state.plan;
  if (tile.y < top + 4) pane.scrollTop = tile.y - 12;
  else if (tile.y + p.h > top + pane.clientHeight) pane.scrollTop = tile.y + p.h - pane.clientHeight + 12;
  tell(tile);
  redraw();
}

const current = () => state.plan?.tiles.find((t) => t.name === state.cursor);

// --- the side

function panel() {
  answers();
  legend();
  waiting();
  if (state.selected) details(state.selected);
}

const questions = { sick: 'Sick', slow: 'Slowed down', idle: 'Allocated, idle', waiting: 'Waiting', room: 'Room' };

function answers() {
  $('answers').replaceChildren(...state.picture.answers.map((a) => {
    const li = make('li'), b = make('button', undefined, { type: 'button', 'data-key': a.key });
    b.append(make('strong', questions[a.key] + ': '), a.text);
    const shows = a.tiles?.length || a.nodes?.length;
    if (shows) {
      b.setAttribute('aria-pressed', String(state.marked?.key === a.key));
      li.classList.toggle('marked', state.marked?.key === a.key);
      b.title = 'Mark these on the map';
    }
    b.onclick = () => {
      if (a.key === 'waiting') return state.picture.waiting.length && pick('waiting:' + state.picture.waiting[0].name);
      if (!shows) return;
      state.marked = state.marked?.key === a.key ? undefined : { key: a.key, tiles: new Set(a.tiles), nodes: new Set(a.nodes) };
      answers();
      document.querySelector(`[data-key="${a.key}"]`).focus();
      redraw();
    };
    li.append(b);
    return li;
  }));
}

function legend() {
  const t = theme(), entries = legendOf($('colour').value, state.picture.owners, t);
  $('legend').replaceChildren(...entries.map(([kind, text, namespace]) => {
    const li = make('li'), pic = make('canvas', undefined, { width: 18, height: 12, 'aria-hidden': 'true' });
    swatch(pic.getContext('2d'), kind, t);
    if (namespace === undefined) li.append(pic, text);
    else {
      const b = make('button', undefined, { type: 'button', title: 'Show this namespace only' });
      b.append(pic, text);
      b.onclick = () => {
        const i = state.picture.owners.findIndex((o) => o.namespace === namespace) + 1;
        $('namespace').selectedIndex = $('namespace').selectedIndex === i ? 0 : i;
        filter();
      };
      li.append(b);
    }
    return li;
  }));
}

// Lists longer than these are cut; the text says how many are left. More would make the page slow.
const mostWaiting = 50, mostRows = 500;

function since(w) {
  return w.since ? `, for ${ago(Math.max(0, (Date.parse(state.picture.at) - Date.parse(w.since)) / 1000))}` : '';
}

function waiting() {
  const all = state.picture.waiting, left = state.picture.waitingLeftOut;
  $('count').textContent = all.length + left;
  const items = all.slice(0, mostWaiting).map((w) => {
    const li = make('li'), b = make('button', undefined, { type: 'button' });
    const who = w.members ? `gang ${w.name} (${w.members})` : w.name;
    b.append(make('strong', who), make('small', ` ${slots(w.slots)}${since(w)}`), make('div', w.why, { class: 'why' }));
    b.onclick = () => pick('waiting:' + w.name);
    li.append(b);
    return li;
  });
  if (all.length > items.length || left) items.push(make('li', `and ${all.length - items.length + left} more`));
  $('waiting').replaceChildren(...items);
}

function pick(what) {
  state.selected = what;
  details(what);
  $('details').focus();
}

function close() {
  state.selected = '';
  $('details').hidden = true;
}

function details(what) {
  const box = $('details');
  box.hidden = false;
  if (what.startsWith('waiting:')) {
    const w = state.picture.waiting.find((x) => 'waiting:' + x.name === what);
    const title = make('h2', what.slice('waiting:'.length));
    if (!w) return box.replaceChildren(title, make('p', 'It does not wait at this time.'));
    box.replaceChildren(title, pairs([['asks for', slots(w.slots)], ['members', w.members || ''], ['waits', since(w).replace(', for ', '')], ['why', w.why]]), ...(w.details ?? []).map((d) => make('p', d)));
    return state.moments.explains && explain(box, w);
  }
  const node = state.picture.nodes.find((n) => what.startsWith(n.name + '/') && n.devices.some((d) => n.name + '/' + d.name === what));
  const d = node?.devices.find((x) => node.name + '/' + x.name === what);
  if (!d) return box.replaceChildren(make('h2', what), make('p', 'This GPU is not there at this time.'));
  const used = d.slices.reduce((sum, s) => sum + s.to - s.from, 0);
  box.replaceChildren(make('h2', what), pairs([
    ['model', d.model], ['health', d.healthy ? 'healthy' : `sick${d.reason ? ': ' + d.reason : ''}`], ['node', node.problem ? `takes no pods: ${node.problem}` : ''], ['place', node.place],
    ['slots', `${used} of ${d.slots} in use`], ['memory', bytes(d.memoryBytes) + (d.memoryUsedBytes === undefined ? '' : `, ${bytes(d.memoryUsedBytes)} in use`)],
    ['free', d.freeMilliGPU ? gpus(d.freeMilliGPU) + ' GPU' : ''], ['lost', d.lostMilliGPU === undefined || !d.freeMilliGPU ? '' : `${gpus(d.lostMilliGPU)} GPU of what is free, to usual requests`],
    ['SM use', d.smPercent === undefined ? 'not measured' : d.smPercent + ' %'], ['NVLink', d.island ? `island ${d.island}` : ''], ['UUID', d.id],
  ]), ...d.slices.flatMap((s) => [make('h2', s.pod), share(s)]));
}

// explain adds the answer of kubectl tandem why about the shown moment. A later question ends the one before.
function explain(box, w) {
  asking?.abort();
  const query = `why?at=${state.moments.seconds[state.index]}&${w.members ? 'gang' : 'pod'}=${encodeURIComponent(w.name)}`;
  const answer = make('pre', state.answered.get(query) ?? 'Trying what would help …', { id: 'why', tabindex: '0', 'aria-live': 'polite' });
  box.append(make('h2', 'What would help'), answer);
  if (state.answered.has(query)) return;
  asking = new AbortController();
  fetch(query, { signal: asking.signal }).then(async (got) => {
    const text = await got.text();
    if (got.ok) state.answered.set(query, text);
    if (state.answered.size > mostKept) state.answered.delete(state.answered.keys().next().value);
    answer.textContent = got.ok ? text : `It could not be found out: ${text.trim() || got.statusText}`;
  }).catch((err) => err.name === 'AbortError' || (answer.textContent = `It could not be found out: ${err.message}`));
}

// table shows the GPUs as text: for screen readers, and to copy.
function table() {
  const tiles = state.plan.tiles.filter((x) => state.passing.has(x.device));
  $('rows').replaceChildren(rows(tiles.slice(0, mostRows)), ...(tiles.length > mostRows ? [make('p', `and ${tiles.length - mostRows} more: filter them`)] : []));
}

// --- what people do

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  $('dark').setAttribute('aria-pressed', String(name === 'dark'));
  if (!state.picture) return;
  legend();
  redraw();
}

function list() {
  listed = !listed;
  $('list').setAttribute('aria-pressed', String(listed));
  for (const e of [canvas, $('space')]) e.hidden = listed;
  $('rows').hidden = !listed;
  if (listed) table();
  else layout();
}

function play() {
  const on = !state.playing;
  clearInterval(state.playing);
  state.playing = 0;
  $('play').setAttribute('aria-pressed', String(on));
  $('play').textContent = on ? 'Stop' : 'Play';
  if (!on) return;
  if (state.index >= state.moments.seconds.length - 1) go(0);
  state.playing = setInterval(() => (state.index >= state.moments.seconds.length - 1 ? play() : go(state.index + 1)), pause.frame);
}

function reset() {
  if ($('keys').open) return $('keys').close();
  if (!$('details').hidden) {
    close();
    return canvas.focus();
  }
  state.marked = undefined;
  $('filters').reset();
  recolour();
  filter();
  answers();
  canvas.focus();
}

function recolour() {
  legend();
  redraw();
}

function zoom(by) {
  const steps = state.zoom + by;
  const before = state.plan.h;
  state.zoom = steps;
  layout();
  if (state.plan.h === before) state.zoom -= by; // there is no further size
}

function next() {
  const c = $('colour');
  c.selectedIndex = (c.selectedIndex + 1) % c.options.length;
  recolour();
}

const keys = {
  '/': () => $('text').focus(), '?': () => $('keys').showModal(), c: next, d: () => $('dark').click(), l: list, p: play,
  '+': () => zoom(1), '=': () => zoom(1), '-': () => zoom(-1), '[': () => go(state.index - 1), ']': () => go(state.index + 1),
};

document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || !state.picture) return;
  if (e.key === 'Escape') return e.preventDefault(), reset();
  if ($('keys').open || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
  if (e.target === canvas && /^(Arrow|Home|End)/.test(e.key)) return e.preventDefault(), moveTo(beside(state.plan, current(), e.key));
  if (e.target === canvas && e.key === 'Enter' && current()) return e.preventDefault(), pick(state.cursor);
  if (keys[e.key]) e.preventDefault(), keys[e.key]();
});

canvas.addEventListener('click', (e) => {
  const box = canvas.getBoundingClientRect();
  const tile = state.plan && at(state.plan, e.clientX - box.left, e.clientY - box.top + pane.scrollTop);
  if (!tile) return close();
  moveTo(tile);
  state.selected = tile.name;
  details(tile.name);
});

canvas.addEventListener('mousemove', (e) => {
  const box = canvas.getBoundingClientRect();
  const tile = state.plan && at(state.plan, e.clientX - box.left, e.clientY - box.top + pane.scrollTop);
  const title = tile ? `${tile.name}\n${tile.device.slices.map((s) => `${s.pod}: ${note(s)}`).join('\n') || 'free'}` : '';
  if (canvas.title !== title) canvas.title = title;
});

canvas.addEventListener('focus', () => state.plan && !current() && moveTo(state.plan.tiles[0]));
pane.addEventListener('scroll', () => state.plan && redraw(), { passive: true });
new ResizeObserver(layout).observe(pane);
$('filters').addEventListener('submit', (e) => e.preventDefault());
for (const id of ['only', 'namespace', 'model']) $(id).addEventListener('change', filter);
$('text').addEventListener('input', filter);
$('text').addEventListener('keydown', (e) => e.key === 'Enter' && (canvas.focus(), moveTo(state.plan.tiles.find((t) => state.passing.has(t.device)))));
$('colour').addEventListener('change', recolour);
$('time').addEventListener('input', () => go(Number($('time').value)));
$('play').addEventListener('click', play);
$('list').addEventListener('click', list);
$('help').addEventListener('click', () => $('keys').showModal());
$('close').addEventListener('click', () => $('keys').close());
$('dark').addEventListener('click', () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));

const prefers = matchMedia('(prefers-color-scheme: dark)');
setTheme(prefers.matches ? 'dark' : 'light');
prefers.addEventListener('change', () => setTheme(prefers.matches ? 'dark' : 'light'));
poll();
