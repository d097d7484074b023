// What the page says and remembers: progress, alarms, the dialogs of refresh and export, where a reload goes on.

import * as api from "./api.js";
import { $, count, dialog, el, percent, plural } from "./dom.js";
import { FIRST } from "./filters.js";

export function alarm(text) {
  $("alarm").hidden = !text;
  $("alarm").textContent = text;
}

export function failed(error, before = "") {
  if (!(error instanceof api.Refused || error instanceof api.Unreachable)) throw error;
  alarm(before + error.message);
}

export function drawProgress(p) {
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

// Judge the labels again with what was decided, and begin anew with the list that comes of it.
export async function refresh() {
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

export function exportData(hint) {
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
      hint ? el("p", { class: "note" }, "Or elsewhere, from the command line:", el("code", {}, hint)) : null,
      el("div", { class: "row end" }, el("button", { onclick: () => close(null) }, "Close")),
    ];
  });
}

// What a reload should find again

export function remember(state) {
  const set = Object.entries(state.filters).filter(([name, value]) => value !== FIRST[name]);
  const hash = new URLSearchParams([...set, ["view", state.view], ["row", state.rows[state.at] ?? ""], ["of", state.facts.stamp]]);
  history.replaceState(null, "", `#${hash}`);
}

export function recall(state) {
  const found = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  for (const name of Object.keys(FIRST)) if (name in found) state.filters[name] = found[name];
  if (found.view === "single") state.view = "single";
  return found.row ? { row: Number(found.row), of: Number(found.of) } : null;
}

export function theme(next) {
  const now = next || localStorage.getItem("theme") || "auto";
  if (next) localStorage.setItem("theme", next);
  if (now === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = now;
  return now;
}
