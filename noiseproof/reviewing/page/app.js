// The review page: its state, what keys and buttons do, and how decisions reach the server.

import * as api from "./api.js";
import { $, confirm, count, dialog, el, percent, plural, say, verdict } from "./dom.js";
import { FIRST, Filters, NONE, help, pick } from "./filters.js";
import { List } from "./list.js";
import { Single } from "./single.js";

const MANY = 20; // a stroke over more examples is asked about first
const WORDS = { accept: "Accept the suggestion", keep: "Keep the label", relabel: "Change the class", drop: "Drop", skip: "Skip", undecided: "Open again" };

const state = {
  facts: null,
  filters: { ...FIRST },
  rows: new Uint32Array(), // what is listed: rows of the table, in order,
  versions: new Uint32Array(), // and the version of each when it was listed
  items: new Map(), // row -> what is known of it
  at: 0, // the current example, a position in `rows`
  selected: new Set(), // positions in `rows`
  anchor: 0, // where a range begins
  unseen: false, // whether the selection was made without looking: all that are listed
  pending: new Set(), // rows whose decision is on its way
  view: "grid",
  version: 0,
  who: "",
  session: sessionStorage.getItem("session") || crypto.randomUUID(),
};
sessionStorage.setItem("session", state.session); // so that a reloaded tab can still undo

const list = new List(state, { open, select, failed });
const single = new Single(state, { choose: (label) => decide("relabel", label), filter, failed });
const filters = new Filters(state, filter);

// Lists and views

async function filter(wanted) {
  state.filters = { ...FIRST, ...NONE, ...wanted };
  remember();
  try {
    await load();
    filters.draw();
  } catch (error) {
    failed(error);
  }
}

async function load() {
  ({ rows: state.rows, versions: state.versions } = await api.rows(state.filters));
  state.selected.clear();
  state.unseen = false;
  state.at = state.anchor = 0;
  $("list").scrollTop = 0;
  show();
}

function show() {
  const none = state.rows.length === 0;
  $("empty").hidden = !none;
  $("empty").textContent = state.filters.issue === "1" && state.filters.state === "open"
    ? "Nothing is left here: every suspected label is decided. Clear the filters, or export." : "Nothing passes these filters.";
  $("list").hidden = none || state.view !== "grid";
  $("single").hidden = none || state.view !== "single";
  $("to-grid").setAttribute("aria-pressed", state.view === "grid");
  $("to-single").setAttribute("aria-pressed", state.view === "single");
  if (state.view === "grid") {
    list.layout();
    list.reveal();
  } else single.draw();
  drawActions();
}

function open(index) {
  state.at = index;
  state.view = "single";
  remember();
  show();
}

function setView(view) {
  state.view = view;
  remember();
  show();
  (view === "grid" ? $("list") : $("single")).focus();
}

function move(to, extend = false) {
  to = Math.max(0, Math.min(state.rows.length - 1, to));
  if (extend) range(state.anchor, to);
  else {
    state.anchor = to;
    if (state.selected.size) clearSelection();
  }
  state.at = to;
  remember();
  if (state.view === "grid") list.reveal();
  else single.draw();
  drawActions();
}

function range(from, to) {
  state.selected.clear();
  state.unseen = false;
  for (let i = Math.min(from, to); i <= Math.max(from, to); i++) state.selected.add(i);
}

function clearSelection() {
  state.selected.clear();
  state.unseen = false;
  list.mark();
  drawActions();
}

function select(index, event) {
  if (event.shiftKey) range(state.anchor, index);
  else if (event.ctrlKey || event.metaKey) toggle(index);
  else {
    clearSelection();
    state.anchor = index;
    if (matchMedia("(pointer: coarse)").matches && index === state.at) return open(index);
  }
  state.at = index;
  list.mark();
  drawActions();
}

function toggle(index) {
  if (!state.selected.delete(index)) state.selected.add(index);
  state.anchor = index;
}

function selectAll() {
  range(0, state.rows.length - 1);
  state.unseen = true;
  say(`${plural(state.rows.length, "example")} selected`);
  list.mark();
  drawActions();
}

// Decisions

let queue = Promise.resolve(); // one at a time, in the order they were made

async function decide(action, label = "") {
  const several = state.selected.size > 1;
  const places = state.selected.size ? [...state.selected].sort((a, b) => a - b) : [state.at];
  if (!state.rows.length) return;
  const rows = places.map((i) => state.rows[i]);
  const listed = places.map((i) => state.versions[i]); // what is known of those that were never shown
  if (rows.length > MANY || (several && state.unseen)) {
    const what = action === "relabel" ? `Change the class to ${label}` : WORDS[action];
    if (!(await confirm(`${what}?`, `This decides ${plural(rows.length, "example")} at once. Z takes it back.`, what))) return;
  }
  const decision = { stamp: state.facts.stamp, rows, action, label, looked: !(several && state.unseen), who: state.who, session: state.session };
  for (const row of rows) state.pending.add(row);
  foresee(rows, action, label);
  state.selected.clear();
  state.unseen = false;
  if (!several) advance();
  redraw(new Set(rows));
  queue = queue.then(() => send(decision, listed));
  await queue;
}

// Show what a decision will come to, before the server has said so.
function foresee(rows, action, label) {
  for (const row of rows) {
    const item = state.items.get(row);
    if (!item) continue;
    const now = action === "accept" ? item.suggested : action === "relabel" ? label : item.label;
    const turned = action === "accept" || action === "relabel" ? (now === item.label ? "keep" : "relabel") : action;
    state.items.set(row, { ...item, action: turned, now, saved: item.saved ?? item });
  }
}

async function send(decision, listed) {
  try {
    const seen = decision.rows.map((row, i) => state.items.get(row)?.version ?? listed[i]);
    const answer = await api.decide({ ...decision, seen });
    settle(decision.rows, answer);
    const last = answer.items.at(-1);
    if (answer.rows) say(answer.rows === 1 ? `${last.id}: ${verdict(last)}` : `${plural(answer.rows, "example")} decided`);
  } catch (error) {
    for (const row of decision.rows) {
      const item = state.items.get(row);
      if (item?.saved) state.items.set(row, item.saved);
      state.pending.delete(row);
    }
    redraw(new Set(decision.rows));
    failed(error, "The last decision is NOT saved. ");
  }
}

// Take what the server says for true, and tell of what others have done.
function settle(rows, answer) {
  for (const row of rows) state.pending.delete(row);
  for (const item of [...answer.items, ...answer.conflicts]) {
    state.items.set(item.row, item);
    single.forget(item.row);
  }
  if (rows.length > answer.items.length) for (const row of rows) if (state.items.get(row)?.saved) state.items.delete(row);
  if (answer.conflicts.length) {
    const one = answer.conflicts[0];
    const who = one.who || "Somebody else";
    alarm(answer.conflicts.length === 1
      ? `Not saved: ${who} decided ${one.id} meanwhile (${verdict(one) || "open again"}). Decide again to overwrite it.`
      : `${plural(answer.conflicts.length, "example")} not saved: decided by others meanwhile. Decide again to overwrite.`);
  } else alarm("");
  redraw(new Set([...rows, ...answer.items.map((item) => item.row)]));
  tellProgress();
}

async function undo() {
  await queue;
  try {
    const answer = await api.undo({ who: state.who, session: state.session });
    if (!answer.rows && !answer.conflicts.length) return say("Nothing to undo");
    const place = answer.items.length ? state.rows.indexOf(answer.items[0].row) : -1;
    if (place >= 0) state.at = place;
    settle([], answer);
    if (state.view === "grid") list.reveal();
    say(`Undone: ${plural(answer.rows, "example")}`);
  } catch (error) {
    failed(error);
  }
}

// To the next example that is not decided.
function advance() {
  const open = (i) => (state.items.get(state.rows[i])?.action ?? "undecided") === "undecided";
  let next = state.at + 1;
  while (next < state.rows.length && !open(next)) next++;
  state.at = Math.min(next, state.rows.length - 1);
  state.anchor = state.at;
  remember();
  if (state.view === "grid") list.reveal();
}

function redraw(rows) {
  if (state.view === "grid") list.refresh(rows);
  else single.draw();
  drawActions();
}

// What the page says

let telling;
function tellProgress() {
  clearTimeout(telling);
  telling = setTimeout(async () => {
    try {
      drawProgress(await api.progress());
    } catch (error) {
      failed(error);
    }
  }, 250);
}

function drawProgress(p) {
  const all = p.decided + p.left;
  $("bar").firstElementChild.style.width = `${all ? (100 * p.decided) / all : 100}%`;
  $("bar").setAttribute("aria-valuemax", all);
  $("bar").setAttribute("aria-valuenow", p.decided);
  const depth = p.window >= 10
    ? ` · of the last ${p.window}, ${p.window_wrong} wrong (${Math.round(100 * p.window_low)}–${percent(p.window_high)})` : "";
  $("figures").textContent = `${count(p.decided)} decided · ${count(p.left)} suspected left · about ${count(p.remaining)} wrong remain ` +
    `(${count(p.remaining_low)}–${count(p.remaining_high)})${depth}`;
  const stop = $("stop");
  const wrong = `1 in ${Math.round(1 / p.rate)}`;
  stop.hidden = p.looked < 20 || p.to_stop > 0;
  stop.textContent = `You can stop here: below this point no more than about ${wrong} is wrong.`;
  $("figures").title = p.to_stop > 0 ? `${count(p.to_stop)} more until about ${wrong} is wrong` : stop.textContent;
}

function drawActions() {
  const n = state.selected.size;
  const button = (text, key, act, main) =>
    el("button", { class: main ? "main" : "", onclick: act, disabled: !state.rows.length }, el("span", {}, text), el("kbd", {}, key));
  $("actions").replaceChildren(
    n ? el("span", { class: "chip" }, `${count(n)} selected`) : "",
    button("Accept", "A", () => decide("accept"), true),
    button("Keep", "K", () => decide("keep")),
    button("Class", "C", otherClass),
    button("Drop", "D", () => decide("drop")),
    button("Skip", "S", () => decide("skip")),
    button("Undo", "Z", undo));
}

function alarm(text) {
  $("alarm").hidden = !text;
  $("alarm").textContent = text;
}

function failed(error, before = "") {
  if (!(error instanceof api.Refused || error instanceof api.Unreachable)) throw error;
  alarm(before + error.message);
}

async function otherClass() {
  const item = state.items.get(state.rows[state.at]);
  const first = item && state.selected.size < 2 ? item.candidates.map(([name]) => name) : [];
  const title = state.selected.size > 1 ? `A class for ${plural(state.selected.size, "example")}` : "Another class";
  const label = await pick(state.facts.classes, first, title);
  if (label) decide("relabel", label);
}

function byNumber(n) {
  const item = state.items.get(state.rows[state.at]);
  if (item?.candidates[n - 1]) decide("relabel", item.candidates[n - 1][0]);
}

function listPair() {
  const item = state.items.get(state.rows[state.at]);
  if (item) filter({ ...state.filters, label: item.label, suggested: item.suggested });
}

function listGroup() {
  const item = state.items.get(state.rows[state.at]);
  if (item && item.group >= 0) filter({ ...FIRST, issue: "", state: "any", group: String(item.group) });
  else say("It has no near-duplicates");
}

// Judge the labels again with what was decided, and begin anew with the list that comes of it.
async function refresh() {
  await queue;
  try {
    await api.refresh();
    await dialog("Refresh", (close) => {
      const said = el("p", { role: "status" }, "Judging the labels again, in the light of what was decided …");
      const part = el("progress", { max: 1 });
      const look = async () => {
        try {
          const now = await api.refreshing();
          if (now.total) part.value = now.done / now.total;
          if (now.running) return setTimeout(look, 500);
          if (!now.error) return location.reload();
          said.textContent = now.error;
        } catch (error) {
          said.textContent = error.message;
        }
        part.remove();
      };
      look();
      return [said, part, el("div", { class: "row end" }, el("button", { onclick: () => close(null) }, "Close"))];
    });
  } catch (error) {
    failed(error);
  }
}

function exportData() {
  return dialog("Export", (close) => {
    const said = el("p", { class: "note", role: "status", id: "exported" });
    const write = async () => {
      said.textContent = "Writing …";
      try {
        const done = await api.write();
        said.textContent = `Wrote ${done.path}: ${plural(done.changed, "label")} changed, ${count(done.dropped)} dropped, of ${count(done.rows)}.`;
      } catch (error) {
        said.textContent = error.message;
      }
    };
    return [
      el("p", {}, "Write the data with corrected labels, in the form it came in. The source stays as it is."),
      el("div", { class: "row" },
        el("button", { class: "main", autofocus: true, onclick: write }, "Write corrected data"),
        el("a", { class: "button", href: "/decisions.csv", download: "decisions.csv" }, "Download decisions.csv")),
      said,
      state.facts.hint ? el("p", { class: "note" }, "Or elsewhere, from the command line:", el("code", {}, state.facts.hint)) : null,
      el("div", { class: "row end" }, el("button", { onclick: () => close(null) }, "Close")),
    ];
  });
}

// Keys

const KEYS = {
  a: () => decide("accept"), k: () => decide("keep"), d: () => decide("drop"), s: () => decide("skip"), " ": () => decide("skip"),
  c: otherClass, z: undo, v: () => setView(state.view === "grid" ? "single" : "grid"), x: () => { toggle(state.at); list.mark(); drawActions(); },
  p: listPair, g: listGroup, "/": () => filters.focus("search"), f: () => filters.focus("state"), "?": help,
  Enter: () => setView(state.view === "grid" ? "single" : "grid"),
  Escape: () => { if (state.selected.size) clearSelection(); else if (state.view === "single") setView("grid"); },
  Home: () => move(0), End: () => move(state.rows.length - 1),
};

function pressed(event) {
  if ($("dialog").open || event.altKey) return;
  const typing = event.target.matches("input:not([type=checkbox]), select, textarea");
  if (typing) {
    if (event.key === "Escape") $("list").focus();
    return;
  }
  const control = event.ctrlKey || event.metaKey;
  const onButton = event.target.matches("button, a, summary, input") && (event.key === "Enter" || event.key === " ");
  if (onButton) return;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: state.view === "grid" ? list.columns : 1, ArrowUp: state.view === "grid" ? -list.columns : -1,
    PageDown: 4 * (list.columns || 1), PageUp: -4 * (list.columns || 1) }[event.key];
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (control) {
    if (key === "a") selectAll();
    else if (key === "z") undo();
    else return;
  } else if (step) move(state.at + step, event.shiftKey && state.view === "grid");
  else if (/^[1-5]$/.test(key)) byNumber(Number(key));
  else if (KEYS[key]) KEYS[key]();
  else return;
  event.preventDefault();
}

// What a reload should find again

function remember() {
  const set = Object.entries(state.filters).filter(([name, value]) => value !== FIRST[name]);
  const hash = new URLSearchParams([...set, ["view", state.view], ["row", state.rows[state.at] ?? ""], ["of", state.facts.stamp]]);
  history.replaceState(null, "", `#${hash}`);
}

function recall() {
  const found = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  for (const name of Object.keys(FIRST)) if (name in found) state.filters[name] = found[name];
  if (found.view === "single") state.view = "single";
  return found.row ? { row: Number(found.row), of: Number(found.of) } : null;
}

// What others decide

async function watch() {
  if (!document.hidden && !state.pending.size) {
    try {
      const news = await api.changes(state.version);
      state.version = news.version;
      const fresh = news.items.filter((item) => (state.items.get(item.row)?.version ?? 0) !== item.version && !state.pending.has(item.row));
      if (news.more) state.items.clear(); // they will be asked for again
      for (const item of fresh) {
        if (state.items.has(item.row)) state.items.set(item.row, item);
        single.forget(item.row);
      }
      if (fresh.length) {
        redraw(news.more ? null : new Set(fresh.map((item) => item.row)));
        if (news.more) list.draw();
        tellProgress();
      }
    } catch (error) {
      failed(error);
    }
  }
  setTimeout(watch, 4000);
}

function theme(next) {
  const now = next || localStorage.getItem("theme") || "auto";
  if (next) localStorage.setItem("theme", next);
  if (now === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = now;
  return now;
}

async function begin() {
  theme();
  const last = recall();
  try {
    const [facts, list] = await Promise.all([api.facts(), api.rows(state.filters)]);
    state.facts = facts;
    Object.assign(state, list);
    state.version = facts.version;
    state.who = facts.who || localStorage.getItem("who") || "";
  } catch (error) {
    return failed(error);
  }
  document.title = `${state.facts.title} · review`;
  $("title").textContent = state.facts.title;
  state.at = Math.max(0, last?.of === state.facts.stamp ? state.rows.indexOf(last.row) : 0); // rows of another table are others
  state.anchor = state.at;
  filters.draw();
  drawProgress(state.facts.progress);
  show();
  document.addEventListener("keydown", pressed);
  $("to-grid").onclick = () => setView("grid");
  $("to-single").onclick = () => setView("single");
  $("help-button").onclick = help;
  $("export-button").onclick = exportData;
  $("refresh-button").hidden = !state.facts.refreshes;
  $("refresh-button").onclick = refresh;
  if ((await api.refreshing()).running) refresh();
  $("open-filters").onclick = () => filters.toggle();
  $("main").addEventListener("pointerdown", () => filters.toggle(false));
  $("theme").onclick = () => say(theme({ auto: "dark", dark: "light", light: "auto" }[theme()]));
  (state.view === "grid" ? $("list") : $("single")).focus();
  setTimeout(watch, 4000);
}

begin();
