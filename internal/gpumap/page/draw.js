// Layout and drawing of the map: from a picture to places, and from places to a canvas. Nothing here knows the document.

// Colours that people with any kind of colour blindness tell apart: Okabe and Ito, "Color Universal Design" (2008), without
// black. Further owners share a grey; their names stand in the slices and in the details.
const owners = ['#E69F00', '#56B4E9', '#009E73', '#F0E442', '#0072B2', '#D55E00', '#CC79A7'];
const others = '#999999';

// Widths and heights of a tile, the largest first. The first with which the whole map is on the screen is taken.
const sizes = [[230, 56], [150, 44], [96, 32], [64, 24], [44, 18], [30, 14], [22, 11], [16, 9]];
const gap = 3, margin = 8, legible = 24, heading = 16;

export const themes = {
  light: { back: '#ffffff', front: '#1b1f24', weak: '#59636e', free: '#eef1f4', busy: '#8c959f', accent: '#0550ae', dark: false },
  dark: { back: '#0d1117', front: '#e6edf3', weak: '#9198a1', free: '#21262d', busy: '#6e7681', accent: '#79c0ff', dark: true },
};

// place returns where each tile is: rows of nodes in columns, as large as fits into width × height. zoom is a number of steps away
// from that.
export function place(nodes, width, height, zoom) {
  const label = Math.max(40, Math.min(130, 8 + 6.7 * Math.max(0, ...nodes.map((n) => n.name.length))));
  const plans = sizes.map((size) => plan(nodes, width, size, label));
  const most = Math.max(1, ...nodes.map((n) => n.devices.length));
  let best = plans.findIndex((p) => p.height <= height && p.across === most); // a node in one line reads best
  if (best < 0) best = plans.findIndex((p) => p.height <= height);
  if (best < 0) best = plans.length - 1;
  const p = plans[Math.max(0, Math.min(plans.length - 1, best - zoom))];
  if (!nodes.length) return p;
  // What is left of the screen makes the tiles larger, as long as they keep their shape more or less.
  const wide = Math.floor(((width - 2 * margin + 12) / p.columns - label - 12) / p.across) - gap;
  const high = Math.floor(p.h * Math.max(1, Math.min(1.5, height / p.height)) - 1);
  return plan(nodes, width, [Math.max(p.w, Math.min(wide, 1.6 * p.w)), Math.max(p.h, high)], label);
}

function plan(nodes, width, [w, h], label) {
  const most = Math.max(1, ...nodes.map((n) => n.devices.length));
  const room = width - 2 * margin;
  const across = Math.max(1, Math.min(most, Math.floor((room - label) / (w + gap))));
  const block = label + across * (w + gap) + 12;
  const columns = Math.max(1, Math.floor((room + 12) / block));
  const each = Math.ceil(nodes.length / columns);
  const tiles = [], labels = [], places = [];
  const placed = nodes.some((n) => n.place);
  let bottom = 0;
  for (let c = 0; c < columns; c++) {
    let y = margin, place;
    for (const node of nodes.slice(c * each, (c + 1) * each)) {
      const x = margin + c * block;
      if (placed && place !== (node.place ?? '')) {
        place = node.place ?? '';
        places.push({ text: place || 'no topology', x, y, w: block - 12 });
        y += heading;
      }
      labels.push({ node, x, y, h });
      node.devices.forEach((device, i) => {
        tiles.push({ node, device, name: node.name + '/' + device.name, x: x + label + (i % across) * (w + gap), y: y + Math.floor(i / across) * (h + gap + 2) });
      });
      y += Math.max(1, Math.ceil(node.devices.length / across)) * (h + gap + 2) + (h >= 32 ? 8 : 1);
    }
    bottom = Math.max(bottom, y);
  }
  return { tiles, labels, places, w, h, label, across, columns, height: bottom + margin };
}

// at returns the tile at a point, or nothing.
export function at(plan, x, y) {
  return plan.tiles.find((t) => x >= t.x && x < t.x + plan.w && y >= t.y && y < t.y + plan.h);
}

// beside returns the tile next to another one: by order to the left and right, by place up and down.
export function beside(plan, tile, key) {
  const i = plan.tiles.indexOf(tile);
  if (i < 0 || key === 'Home') return plan.tiles[0];
  if (key === 'End') return plan.tiles.at(-1);
  if (key === 'ArrowLeft') return plan.tiles[Math.max(0, i - 1)];
  if (key === 'ArrowRight') return plan.tiles[Math.min(plan.tiles.length - 1, i + 1)];
  const sign = key === 'ArrowDown' ? 1 : -1;
  let best = tile, least = Infinity;
  for (const t of plan.tiles) {
    const down = (t.y - tile.y) * sign;
    const far = down + 4 * Math.abs(t.x - tile.x);
    if (down > 0 && far < least) [best, least] = [t, far];
  }
  return best;
}

// scale returns the colour of an amount from 0 to 1: one hue, so that lightness alone says it.
export function scale(part, theme) {
  const p = Math.max(0, Math.min(1, part));
  return `hsl(212 70% ${theme.dark ? 22 + 58 * p : 90 - 60 * p}%)`;
}

// ownerColour returns the colour of an owner by its position.
const ownerColour = (i) => owners[i] ?? others;

// amount returns the value of a slice in a colouring, from 0 to 1, and undefined where it is not known.
export function amount(slice, colour) {
  switch (colour) {
    case 'use': return slice.smPercent === undefined ? undefined : slice.smPercent / 100;
    case 'memory': return slice.memoryUsedBytes === undefined ? undefined : slice.memoryUsedBytes / Math.max(1, slice.memoryBytes);
    case 'slowdown': return slice.slowdownMilli ? (slice.slowdownMilli - 1000) / 1000 : undefined;
    case 'idle': return slice.smPercent === undefined ? undefined : Number(!!slice.idle);
  }
}

// lost returns what part of the free GPU the usual requests cannot use, from 0 to 1, and undefined where that is not known or nothing is free.
const lost = (d) => (d.lostMilliGPU === undefined || !d.freeMilliGPU ? undefined : d.lostMilliGPU / d.freeMilliGPU);

// fill returns the colours of a slice and of the text on it, and whether its value is not known.
function fill(slice, colour, theme) {
  if (colour === 'owner') {
    const c = ownerColour(slice.owner);
    return { back: c, text: c === '#0072B2' ? '#ffffff' : '#000000' };
  }
  if (colour === 'free' || colour === 'fragments') return { back: theme.busy, text: '#000000' };
  const v = amount(slice, colour);
  if (v === undefined) return { back: theme.free, text: theme.front, unknown: true };
  if (colour === 'idle') return v ? { back: '#E69F00', text: '#000000' } : { back: theme.busy, text: '#000000' };
  return { back: scale(v, theme), text: theme.dark === v < 0.5 ? '#ffffff' : '#000000' };
}

// hatch fills a rectangle with slanted lines.
function hatch(g, x, y, w, h, colour, step) {
  g.save();
  g.beginPath();
  g.rect(x, y, w, h);
  g.clip();
  g.strokeStyle = colour;
  g.lineWidth = 1;
  g.beginPath();
  for (let i = -h; i < w; i += step) {
    g.moveTo(x + i, y + h);
    g.lineTo(x + i + h, y);
  }
  g.stroke();
  g.restore();
}

// note returns what a slice says beside its name.
function note(slice, colour) {
  const slots = `${slice.to - slice.from} slot${slice.to - slice.from === 1 ? '' : 's'}`;
  const says = [slots];
  if (slice.held) says.push('kept');
  if (slice.idle) says.push('idle');
  if (slice.slowdownMilli > 1000) says.push((slice.slowdownMilli / 1000).toFixed(2) + '×');
  if (colour === 'use' && slice.smPercent !== undefined) says.push(slice.smPercent + ' % SM');
  if (colour === 'memory' && amount(slice, colour) !== undefined) says.push(Math.round(100 * amount(slice, colour)) + ' % mem');
  return says.join(' · ');
}

function drawSlice(g, t, s, p, { colour, theme }) {
  const x = t.x + (p.w * s.from) / t.device.slots;
  const end = Math.min(p.w, (p.w * s.to) / t.device.slots);
  const w = t.x + end - x;
  if (w <= 0) return;
  const look = fill(s, colour, theme);
  g.fillStyle = look.back;
  g.fillRect(x, t.y, w, p.h);
  if (look.unknown) hatch(g, x, t.y, w, p.h, theme.weak, 8);
  if (s.held) hatch(g, x, t.y, w, p.h, theme.dark ? '#000000' : '#ffffff', 4);
  g.fillStyle = theme.back;
  g.fillRect(x + w - 1, t.y, 1, p.h);
  if (colour === 'idle' && s.idle && p.h < legible) mark(g, x, t.y, w, p.h);
  if (p.h < legible || w < 34) return;
  g.save();
  g.beginPath();
  g.rect(x, t.y, w - 2, p.h);
  g.clip();
  if (look.unknown || s.held) { // text on lines cannot be read
    g.fillStyle = look.back;
    g.fillRect(x + 2, t.y + 2, Math.min(w - 5, g.measureText(s.pod).width + 4), 15);
  }
  g.fillStyle = look.text;
  g.fillText(s.pod.slice(s.pod.indexOf('/') + 1), x + 4, t.y + 14);
  if (p.h >= 44) g.fillText(note(s, colour), x + 4, t.y + 30);
  g.restore();
}

// mark draws a dot: idle, also without colour.
function mark(g, x, y, w, h) {
  g.fillStyle = '#000000';
  g.beginPath();
  g.arc(x + w / 2, y + h / 2, Math.min(2, w / 3), 0, 7);
  g.fill();
}

function drawTile(g, t, p, look) {
  const { theme, colour } = look, d = t.device;
  g.globalAlpha = look.dim(t) ? 0.18 : 1;
  g.fillStyle = colour === 'free' && d.healthy && !t.node.problem ? scale(0.75, theme) : theme.free;
  const part = colour === 'fragments' ? lost(d) : undefined;
  if (part !== undefined) g.fillStyle = scale(part, theme);
  g.fillRect(t.x, t.y, p.w, p.h);
  if (colour === 'fragments' && part === undefined) hatch(g, t.x, t.y, p.w, p.h, theme.weak, 8);
  for (const s of d.slices) drawSlice(g, t, s, p, look);
  g.strokeStyle = theme.weak;
  g.lineWidth = 1;
  g.strokeRect(t.x + 0.5, t.y + 0.5, p.w - 1, p.h - 1);
  if (d.island) {
    g.fillStyle = theme.front;
    g.fillRect(t.x, t.y + p.h + 1, p.w + (look.joined(t) ? gap : 0), 1);
  }
  if (!d.healthy) {
    g.strokeStyle = theme.front;
    g.lineWidth = p.h >= legible ? 3 : 2;
    g.beginPath();
    g.moveTo(t.x, t.y), g.lineTo(t.x + p.w, t.y + p.h);
    g.moveTo(t.x + p.w, t.y), g.lineTo(t.x, t.y + p.h);
    g.rect(t.x + 1, t.y + 1, p.w - 2, p.h - 2);
    g.stroke();
  }
  if (p.h >= 44) {
    const used = d.slices.reduce((sum, s) => sum + s.to - s.from, 0);
    const over = part === undefined ? theme.weak : theme.dark === part < 0.5 ? '#ffffff' : '#000000';
    g.fillStyle = part !== undefined ? over : d.slices.length ? theme.weak : theme.front;
    const free = Math.max(0, d.slots - used);
    const from = t.x + (p.w * Math.min(used, d.slots)) / d.slots;
    if (free && from + 40 < t.x + p.w) g.fillText(`${free} free`, from + 4, t.y + 14);
    g.fillStyle = over;
    if (p.h >= 56 && d.slices.length === 0) g.fillText(d.model, t.x + 4, t.y + p.h - 6, p.w - 8);
  }
  g.globalAlpha = 1;
  for (const [wanted, colourOf, width] of [[look.marked(t), theme.accent, 2], [look.cursor === t.name, theme.front, 3]]) {
    if (!wanted) continue;
    g.strokeStyle = colourOf;
    g.lineWidth = width;
    g.strokeRect(t.x - 1.5, t.y - 1.5, p.w + 3, p.h + 3);
  }
}

// draw draws the part of a plan that is between top and top + height.
export function draw(g, p, top, width, height, look) {
  const { theme } = look;
  g.fillStyle = theme.back;
  g.fillRect(0, 0, width, height);
  g.save();
  g.translate(0, -top);
  g.textBaseline = 'alphabetic';
  const size = Math.max(9, Math.min(12, p.h));
  g.font = `${size}px "DejaVu Sans", system-ui, sans-serif`;
  for (const l of p.labels) {
    if (l.y + p.h < top || l.y > top + height) continue;
    g.fillStyle = look.found(l.node) ? theme.accent : theme.front;
    const text = (l.node.problem ? '! ' : '') + (look.found(l.node) ? '▸ ' : '') + l.node.name;
    g.fillText(text, l.x, l.y + Math.min(p.h - 1, p.h / 2 + size / 3), p.label - 6);
  }
  g.font = '11px "DejaVu Sans", system-ui, sans-serif';
  for (const l of p.places) {
    if (l.y + heading < top || l.y > top + height) continue;
    g.fillStyle = theme.weak;
    g.fillText(l.text, l.x, l.y + heading - 5, l.w);
    g.fillRect(l.x, l.y + heading - 2, l.w, 1);
  }
  for (const t of p.tiles) {
    if (t.y + p.h >= top && t.y <= top + height) drawTile(g, t, p, look);
  }
  g.restore();
}

// swatch draws an entry of the legend.
export function swatch(g, kind, theme) {
  const [w, h] = [18, 12];
  g.fillStyle = kind.colour ?? theme.free;
  g.fillRect(0, 0, w, h);
  if (kind.unknown) hatch(g, 0, 0, w, h, theme.weak, 8);
  if (kind.held) hatch(g, 0, 0, w, h, theme.front, 4);
  if (kind.idle) mark(g, 0, 0, w, h);
  g.strokeStyle = kind.sick ? theme.front : theme.weak;
  g.lineWidth = kind.sick ? 2 : 1;
  g.strokeRect(0.5, 0.5, w - 1, h - 1);
  if (!kind.sick) return;
  g.beginPath();
  g.moveTo(0, 0), g.lineTo(w, h), g.moveTo(w, 0), g.lineTo(0, h);
  g.stroke();
}

// legendOf returns the entries of the legend: what to draw, a text, and the namespace that it stands for, if any.
export function legendOf(colour, namespaces, t) {
  const entries = [];
  if (colour === 'owner') {
    namespaces.slice(0, owners.length).forEach((o, i) => entries.push([{ colour: ownerColour(i) }, `${o.namespace || '(none)'} ${(o.milliGPU / 1000).toFixed(1)} GPUs`, o.namespace]));
    if (namespaces.length > owners.length) entries.push([{ colour: others }, `${namespaces.length - owners.length} more`]);
  } else if (colour === 'idle') {
    entries.push([{ colour: '#E69F00', idle: true }, 'allocated, idle'], [{ colour: t.busy }, 'in use'], [{ unknown: true }, 'not measured']);
  } else if (colour === 'free') {
    entries.push([{ colour: scale(0.75, t) }, 'free'], [{ colour: t.busy }, 'allocated']);
  } else if (colour === 'fragments') {
    ['0 %', '50 %', '100 % of the free GPU is lost to usual requests'].forEach((w, i) => entries.push([{ colour: scale(i / 2, t) }, w]));
    entries.push([{ colour: t.busy }, 'allocated'], [{ unknown: true }, 'nothing is free, or no request is usual']);
  } else {
    const words = { use: ['0 %', '50 %', '100 % of the SMs'], memory: ['0 %', '50 %', '100 % of its share'], slowdown: ['1.00×', '1.50×', '2.00× or more'] }[colour];
    words.forEach((w, i) => entries.push([{ colour: scale(i / 2, t) }, w]));
    entries.push([{ unknown: true }, colour === 'slowdown' ? 'not predicted' : 'not measured']);
  }
  if (colour !== 'free' && colour !== 'fragments') entries.push([{}, 'free']);
  entries.push([{ sick: true }, 'sick'], [{ colour: t.busy, held: true }, 'kept for a pod']);
  return entries;
}
