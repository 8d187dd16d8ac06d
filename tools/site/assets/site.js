"use strict";

const base = document.body.dataset.base;
const field = document.getElementById("search");
const found = document.getElementById("found");

function show() {
  const records = search(searchIndex, field.value, 12);
  found.replaceChildren(...records.map((record) => {
    const link = document.createElement("a");
    link.href = base + record.url;
    link.textContent = record.heading === record.page ? record.page : record.page + " › " + record.heading;
    const small = document.createElement("small");
    small.textContent = excerpt(record.text, field.value, 160);
    link.append(small);
    return link;
  }));
  if (field.value.trim() !== "" && records.length === 0) found.textContent = "No page has all of these words.";
  found.hidden = field.value.trim() === "";
}

field.addEventListener("input", show);
field.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && found.querySelector("a")) found.querySelector("a").click();
  if (event.key === "Escape") { field.value = ""; show(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)) { event.preventDefault(); field.focus(); }
});

const select = document.getElementById("version");
const current = document.body.dataset.version;
select.replaceChildren(...siteVersions.map((version) => new Option(version, version, false, version === current)));
select.addEventListener("change", () => { location.href = base + "../" + select.value + "/index.html"; });

// A browser may refuse storage to pages that it reads from a disk; the choice then lasts for one page.
function stored(action) { try { return action(); } catch { return null; } }
const theme = stored(() => localStorage.getItem("tandem-theme"));
if (theme) document.documentElement.dataset.theme = theme;
document.getElementById("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  stored(() => localStorage.setItem("tandem-theme", document.documentElement.dataset.theme));
});
