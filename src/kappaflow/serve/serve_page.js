"use strict";
// One file, no library. Whatever comes from a file or its name is set as text, never as HTML.
const $ = (name, root = document) => root.querySelector(name);
const cards = $("#cards"), drop = $("#drop"), message = $("#message");
const entries = new Map(); // key of a card -> {element, upload}
let draft = null, serial = 0, running = false, limits = null;

async function ask(method, path, body, raw) {
  const headers = { "X-Kappaflow": "1" };
  if (body !== undefined && !raw) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined || raw ? body : JSON.stringify(body) });
  } catch {
    throw new Error("The server does not answer. Is kappaflow serve still running?");
  }
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.error || `The server answered ${answer.status}.`);
  return found;
}

function say(text) {
  message.textContent = text || "";
  message.hidden = !text;
  if (text) message.scrollIntoView({ block: "nearest" });
}

const size = (n) => (n < 1e6 ? `${Math.max(1, Math.round(n / 1e3))} kB` : `${(n / 1e6).toFixed(1)} MB`);

let drafting = null;
function theDraft() {
  if (draft) return Promise.resolve(draft);
  drafting = drafting || ask("POST", "/api/jobs").then((job) => {
    draft = job.id;
    drafting = null;
    try { sessionStorage.setItem("draft", draft); } catch { /* private window */ }
    return draft;
  }).finally(() => { drafting = null; });
  return drafting;
}

function addCard(name, bytes) {
  const element = $("#card").content.firstElementChild.cloneNode(true);
  const entry = { element, upload: null, id: ++serial };
  $(".name", element).textContent = name;
  $(".size", element).textContent = bytes ? size(bytes) : "";
  $(".remove", element).addEventListener("click", () => removeCard(entry));
  $(".again", element).addEventListener("click", () => readAgain(entry));
  for (const field of element.querySelectorAll(".title, .distance, .distance_error"))
    field.addEventListener("input", () => { field.classList.remove("wrong"); plan(); });
  entries.set(entry.id, entry);
  cards.append(element);
  return entry;
}

async function removeCard(entry) {
  entries.delete(entry.id);
  entry.element.remove();
  plan();
  if (entry.upload && entry.upload.key) {
    try { await ask("DELETE", `/api/jobs/${draft}/files/${entry.upload.key}`); } catch (error) { say(error.message); }
  }
}

async function upload(file) {
  const entry = addCard(file.name, file.size);
  try {
    if (limits && file.size > limits.file_bytes)
      throw new Error(`over ${limits.file_bytes / 1e6} MB; expected a 1-D spectrum`);
    const job = await theDraft();
    const path = `/api/jobs/${job}/files?name=${encodeURIComponent(file.name.slice(0, 300).toWellFormed?.() ?? file.name.slice(0, 300))}`;
    show(entry, await ask("POST", path, file, true));
  } catch (error) {
    show(entry, { key: "", name: file.name, size: file.size, hints: {}, as_read: null, error: error.message });
  }
}

async function readAgain(entry) {
  const button = $(".again", entry.element), hints = {};
  for (const field of entry.element.querySelectorAll("[data-hint]")) if (field.value.trim()) hints[field.dataset.hint] = field.value.trim();
  button.disabled = true;
  try {
    show(entry, await ask("POST", `/api/jobs/${draft}/files/${entry.upload.key}/read`, { hints }));
  } catch (error) {
    say(error.message);
  }
  button.disabled = false;
}

function show(entry, found) {
  const { element } = entry, first = !entry.upload || !entry.upload.as_read;
  entry.upload = found;
  const seen = found.as_read;
  $(".name", element).textContent = found.name;
  $(".size", element).textContent = size(found.size);
  $(".wait", element).hidden = true;
  $(".error", element).hidden = !found.error;
  $(".error", element).textContent = found.error || "";
  $(".seen", element).hidden = !seen;
  $(".how", element).hidden = !found.key;
  if (found.error && found.key) $(".how", element).open = true;
  for (const [hint, value] of Object.entries(found.hints || {})) {
    const field = $(`[data-hint="${hint}"]`, element);
    if (field) field.value = Array.isArray(value) ? value.join(" ") : value;
  }
  if (seen) {
    const title = $(".title", element), distance = $(".distance", element), spread = $(".distance_error", element);
    if (first) {
      if (!title.value) title.value = seen.target || found.name.replace(/\.gz$/i, "").replace(/\.[^.]+$/, "");
      if (!distance.value && seen.distance !== null) distance.value = seen.distance;
      if (!spread.value && seen.distance_error !== null) spread.value = seen.distance_error;
    }
    $(".hint", element).textContent = seen.distance !== null
      ? "The distance is the file’s own."
      : "With a distance the flux measures the radius; without one it stays close to its prior.";
    const facts = $(".facts", element), notes = $(".notes", element);
    facts.replaceChildren();
    for (const [name, value] of Object.entries(seen.facts)) {
      facts.append(Object.assign(document.createElement("dt"), { textContent: name }));
      facts.append(Object.assign(document.createElement("dd"), { textContent: value }));
    }
    notes.replaceChildren(...seen.notes.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
    draw($(".plot", element), seen.curve);
  }
  plan();
}

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function draw(plot, curve) {
  plot.curve = curve;
  const width = plot.clientWidth || 640, height = plot.clientHeight || 200;
  const left = 46, right = 8, top = 10, bottom = 34, n = curve.median.length;
  plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
  // The scale follows the medians and not a stray pixel, which may leave the frame.
  const known = curve.median.filter((v) => v !== null), ordered = [...known].sort((a, b) => a - b);
  const low = Math.min(0, ordered[Math.floor(0.005 * ordered.length)]);
  const high = (ordered[Math.ceil(0.998 * ordered.length) - 1] || 1) * 1.12;
  const x = (k) => left + ((width - left - right) * (k + 0.5)) / n;
  const y = (v) => top + (height - top - bottom) * (1 - (Math.min(Math.max(v, low), high) - low) / (high - low || 1));
  const parts = [], runs = [];
  for (let k = 0, run = null; k <= n; k++) {
    if (k < n && curve.median[k] !== null) { if (!run) runs.push((run = [])); run.push(k); } else run = null;
  }
  for (const run of runs) {
    const up = run.map((k) => `${x(k).toFixed(1)},${y(curve.high[k]).toFixed(1)}`);
    const down = run.map((k) => `${x(k).toFixed(1)},${y(curve.low[k]).toFixed(1)}`).reverse();
    parts.push(svg("polygon", { class: "band", points: [...up, ...down].join(" ") }));
  }
  for (const run of runs) parts.push(svg("polyline", { class: "line", points: run.map((k) => `${x(k).toFixed(1)},${y(curve.median[k]).toFixed(1)}`).join(" ") }));
  const floor = height - bottom, each = (width - left - right) / n;
  curve.masked.forEach((share, k) => {
    if (share > 0) parts.push(svg("rect", { class: "masked", x: (x(k) - each / 2).toFixed(1), y: floor + 1, width: Math.max(each, 1.2).toFixed(1), height: 5, opacity: Math.max(0.35, share).toFixed(2) }));
  });
  parts.push(svg("path", { class: "axis", d: `M${left} ${top}V${floor}H${width - right}` }));
  const from = curve.from[0], to = curve.to[0];
  for (const tick of width < 480 ? [3, 4] : [3, 3.5, 4, 4.5]) {
    const at = left + ((width - left - right) * (tick - from)) / (to - from);
    parts.push(svg("text", { x: at.toFixed(1), y: height - 10, "text-anchor": "middle" }, tick.toFixed(1)));
  }
  const end = left + ((width - left - right) * (5 - from)) / (to - from);
  parts.push(svg("text", { x: (end - 9).toFixed(1), y: height - 10 }, "5.0 µm"));
  for (const value of [0, high / 1.12]) {
    const shown = value === 0 ? "0" : Number(value.toPrecision(2)).toString();
    parts.push(svg("text", { x: left - 6, y: (y(value) + 4).toFixed(1), "text-anchor": "end" }, shown));
  }
  parts.push(svg("text", { x: left + 4, y: top + 4 }, "mJy"));
  plot.replaceChildren(...parts);
}

function objects() {
  const found = new Map();
  for (const { element, upload } of entries.values()) {
    if (!upload || !upload.as_read) continue;
    const title = $(".title", element).value.trim() || upload.name, key = title.toLowerCase();
    const one = found.get(key) || { title, uploads: [], names: [], distance: "", distance_error: "" };
    one.uploads.push(upload.key);
    one.names.push(upload.name);
    one.distance = one.distance || $(".distance", element).value.trim().replace(",", ".");
    one.distance_error = one.distance_error || $(".distance_error", element).value.trim().replace(",", ".");
    found.set(key, one);
  }
  return [...found.values()];
}

function plan() {
  const wanted = objects(), reading = [...entries.values()].some((entry) => !entry.upload);
  const refused = [...entries.values()].filter((entry) => entry.upload && !entry.upload.as_read).length;
  $("#go").hidden = entries.size === 0;
  $("#run").disabled = reading || running || wanted.length === 0;
  const words = wanted.length === 0 ? "No file could be read." : wanted.length === 1 ? "One object" : `${wanted.length} objects`;
  const merged = wanted.filter((one) => one.uploads.length > 1).map((one) => `${one.title}: ${one.names.join(" and ")}, merged`);
  const left = refused && wanted.length ? ` ${refused === 1 ? "One file" : `${refused} files`} will be left out.` : "";
  $("#plan").textContent = reading ? "Reading …" : wanted.length === 0 ? words : `${words}${merged.length ? ` (${merged.join("; ")})` : ""}.${left}`;
}

$("#run").addEventListener("click", async () => {
  say("");
  running = true;
  plan();
  const method = document.querySelector("input[name=method]:checked")?.value;
  try {
    const wanted = objects().map(({ title, uploads, distance, distance_error }) => ({ title, uploads, distance, distance_error }));
    await ask("POST", `/api/jobs/${draft}/run`, { objects: wanted, asked: method ? { method } : {} });
    forget();
    await refresh();
    $("#results").scrollIntoView({ behavior: "smooth", block: "start" });
  } catch (error) {
    say(error.message);
  }
  running = false;
  plan();
});

function forget() {
  draft = null;
  try { sessionStorage.removeItem("draft"); } catch { /* private window */ }
  entries.clear();
  cards.replaceChildren();
  plan();
}

$("#clear").addEventListener("click", async () => {
  const old = draft;
  say("");
  forget();
  if (old) await ask("DELETE", `/api/jobs/${old}`).catch((error) => say(error.message));
});

$("#choose").addEventListener("click", () => $("#files").click());
$("#files").addEventListener("change", (event) => { take(event.target.files); event.target.value = ""; });
$("#example").addEventListener("click", async () => {
  say("");
  const entry = addCard("wolf1130c.ecsv", 0);
  try {
    show(entry, await ask("POST", `/api/jobs/${await theDraft()}/example`));
  } catch (error) {
    removeCard(entry);
    say(error.message);
  }
});

async function take(files) {
  say("");
  const waiting = [...files];
  const next = async () => { while (waiting.length) await upload(waiting.shift()); };
  await Promise.all([next(), next(), next(), next()]);
}

for (const name of ["dragenter", "dragover"]) document.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
for (const name of ["dragleave", "drop"]) document.addEventListener(name, (event) => { event.preventDefault(); if (name === "drop" || !event.relatedTarget) drop.classList.remove("over"); });
document.addEventListener("drop", (event) => take(event.dataTransfer.files));

const STATES = { queued: "waiting", running: "running", done: "done", failed: "no result", cancelled: "cancelled" };
const WORDS = { pass: "trust: yes", warn: "trust: with care", fail: "trust: not as it stands", error: "no result" };

function link(text, href, extra) {
  return Object.assign(document.createElement("a"), { textContent: text, href, ...extra });
}

function button(text, action) {
  const made = Object.assign(document.createElement("button"), { type: "button", className: "quiet", textContent: text });
  made.addEventListener("click", async () => {
    made.disabled = true;
    try { await action(); } catch (error) { say(error.message); }
    await refresh();
  });
  return made;
}

function since(job) {
  const end = job.finished ? Date.parse(job.finished) : Date.now();
  const seconds = Math.max(0, Math.round((end - Date.parse(job.started || job.created)) / 1000));
  return seconds < 100 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

function found(row, place, rows) {
  const line = document.createElement("li");
  // One object has its name above.
  const name = Object.assign(document.createElement("span"), { textContent: row.title, hidden: rows.length === 1 });
  if (row.verdict === "error") {
    line.append(name, Object.assign(document.createElement("span"), { className: "error", textContent: row.error }));
    return line;
  }
  const value = Object.assign(document.createElement("b"), { textContent: `C/O ${row.C_O_q50.toFixed(2)}` });
  const span = Object.assign(document.createElement("span"), { className: "soft", textContent: `68 %: ${row.C_O_q16.toFixed(2)} to ${row.C_O_q84.toFixed(2)}` });
  const badge = Object.assign(document.createElement("span"), { className: `badge ${row.verdict}`, textContent: WORDS[row.verdict] || row.verdict });
  line.append(name, value, span, badge);
  return line;
}

function jobRow(job) {
  const row = $("#job").content.firstElementChild.cloneNode(true);
  row.dataset.id = job.id;
  const titles = job.objects.map((one) => one.title);
  $(".name", row).textContent = titles.length > 3 ? `${titles.length} objects: ${titles.slice(0, 3).join(", ")} …` : titles.join(", ");
  const told = job.state === "queued" && job.ahead ? `waiting, ${job.ahead} before it` : STATES[job.state];
  $(".state", row).textContent = job.state === "queued" ? told : `${told}, ${since(job)}`;
  const bar = $("progress", row), step = $(".step", row);
  if (job.state === "running") {
    const steps = job.progress?.steps || [], outer = steps[0], count = (at) => (at.total ? ` ${at.done} of ${at.total}` : " …");
    step.hidden = bar.hidden = false;
    step.textContent = outer ? steps.map((at) => (at.total === 1 ? at.what : at.what + count(at))).join(" · ") : "loading networks and model …";
    // A bar of one step says nothing: then the one inside it counts; without any it moves to and fro.
    const shown = steps.find((at) => at.total > 1);
    if (shown && shown.done) { bar.max = shown.total; bar.value = shown.done; }
  }
  $(".error", row).hidden = !job.error;
  $(".error", row).textContent = job.error || "";
  if (job.state === "done") $(".found", row).append(...job.outcomes.map(found));
  const links = $(".links", row);
  if (job.state === "done")
    links.append(link("Open the report", `/jobs/${job.id}/report.html`, { target: "_blank", rel: "noopener" }), link("Download everything", `/jobs/${job.id}/everything.zip`));
  if (job.state === "queued" || job.state === "running") links.append(button("Cancel", () => ask("POST", `/api/jobs/${job.id}/cancel`)));
  else links.append(button("Remove", () => ask("DELETE", `/api/jobs/${job.id}`)));
  return row;
}

function ways(methods) {
  $("#how").hidden = methods.length < 2;
  for (const input of document.querySelectorAll("input[name=method]")) {
    input.closest("label").hidden = !methods.includes(input.value);
    input.checked = input.value === methods[0];
  }
}

let last = "", timer = null;
async function refresh() {
  clearTimeout(timer);
  let busy = false;
  try {
    const state = await ask("GET", "/api/state");
    if (!limits) ways(state.methods);
    limits = state.limits;
    $("#version").textContent = `kappaflow ${state.version}.`;
    busy = state.jobs.some((job) => job.state === "queued" || job.state === "running");
    const now = JSON.stringify(state.jobs);
    if (now !== last || busy) {
      const focused = document.activeElement?.closest?.(".job")?.dataset.id;
      if (!focused || now !== last) $("#jobs").replaceChildren(...state.jobs.map(jobRow));
      $("#results").hidden = state.jobs.length === 0;
      last = now;
    }
    if (message.dataset.lost) { say(""); delete message.dataset.lost; }
  } catch (error) {
    say(error.message);
    message.dataset.lost = "1";
    busy = true;
  }
  timer = setTimeout(refresh, busy ? 1000 : 10000);
}

let resizing = null;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => { for (const plot of document.querySelectorAll(".plot")) if (plot.curve) draw(plot, plot.curve); }, 120);
});

async function begin() {
  if (location.search) history.replaceState(null, "", location.pathname); // a token is no business of the history
  let kept = null;
  try { kept = sessionStorage.getItem("draft"); } catch { /* private window */ }
  await refresh();
  if (!kept) return;
  try {
    const job = await ask("GET", `/api/jobs/${encodeURIComponent(kept)}`);
    if (job.state !== "draft") return;
    draft = job.id;
    for (const one of job.uploads) show(addCard(one.name, one.size), one);
  } catch { /* removed meanwhile */ }
}
begin();
