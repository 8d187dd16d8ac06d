"use strict";

// words returns the words of a text in small letters. A name such as tandem-gpu.io/vgpu is one word, and its parts are words too.
function words(text) {
  const whole = text.toLowerCase().split(/[\s"'`(),;<>|]+/).map((w) => w.replace(/[.:!?]+$/, ""));
  return whole.flatMap((w) => [w, ...w.split("/"), ...w.split(/[^a-z0-9]+/)]).filter((w) => w !== "");
}

// search returns the records that have all words of the query, the best first. A word of the query may be the beginning of a
// word; one in the title of the page or in the heading counts more than one in the text.
function search(index, query, most) {
  const wanted = [...new Set(query.toLowerCase().split(/\s+/).filter((w) => w !== ""))];
  if (wanted.length === 0) return [];
  const found = [];
  index.forEach((record, position) => {
    const fields = [[words(record.heading), 8], [words(record.page), 4], [words(record.text), 1]];
    let score = 0;
    for (const word of wanted) {
      let best = 0;
      for (const [have, weight] of fields) {
        if (have.includes(word)) best = Math.max(best, 2 * weight);
        else if (have.some((w) => w.startsWith(word))) best = Math.max(best, weight);
      }
      if (best === 0) return;
      score += best;
    }
    found.push({ record, score, position });
  });
  found.sort((a, b) => b.score - a.score || a.position - b.position);
  return found.slice(0, most).map((f) => f.record);
}

// excerpt returns the text around the first word of the query.
function excerpt(text, query, length) {
  const first = query.toLowerCase().split(/\s+/).find((w) => w !== "" && text.toLowerCase().includes(w));
  const at = first === undefined ? 0 : text.toLowerCase().indexOf(first);
  const begin = Math.max(0, at - Math.floor(length / 3));
  const part = text.slice(begin, begin + length);
  return (begin > 0 ? "… " : "") + part + (begin + length < text.length ? " …" : "");
}
