// One example at a time: what it is, what it is said to be, what it may be, and others to compare it with.

import { $, count, el, percent, picture, verdict } from "./dom.js";
import * as api from "./api.js";

const ACTIONS = { keep: "kept as", relabel: "relabelled", drop: "dropped, was", skip: "skipped", undecided: "open again" };

export class Single {
  constructor(state, hooks) {
    this.state = state;
    this.hooks = hooks; // choose(label), go(row), filter(filters), failed(error)
    this.box = $("single");
    this.details = new Map(); // row -> promise
  }

  forget(row) {
    this.details.delete(row);
  }

  detail(row) {
    if (!this.details.has(row)) {
      if (this.details.size > 50) this.details.clear();
      this.details.set(row, api.detail(row));
    }
    return this.details.get(row);
  }

  async draw() {
    const { state } = this;
    const row = state.rows[state.at];
    if (row === undefined || this.box.hidden) return;
    let item = state.items.get(row);
    if (!item) {
      for (const one of await api.items([row])) state.items.set(one.row, one);
      item = state.items.get(row);
      if (state.rows[state.at] !== row) return;
    }
    const aside = el("div", { class: "beside" });
    const shown = el("div", { class: "shown" }, state.facts.image ? el("div", { class: "picture" }, picture(item, 768, state.facts)) : null);
    this.box.replaceChildren(
      el("div", { class: "place" },
        el("span", {}, `${count(state.at + 1)} of ${count(state.rows.length)}`),
        el("span", { class: "id", title: item.id }, item.id),
        el("span", { class: "chip" }, item.split),
        verdict(item) ? el("strong", { class: `verdict ${item.action}` }, verdict(item)) : null),
      el("div", { class: "columns" }, shown, aside));
    aside.append(...this.labels(item));
    try {
      const detail = await this.detail(row);
      if (state.rows[state.at] !== row || !this.box.contains(aside)) return;
      if (detail.values.length) shown.append(this.values(detail.values, item));
      aside.append(...this.compared(detail, item), this.history(detail.history));
    } catch (error) {
      this.hooks.failed(error);
    }
    const next = state.rows[state.at + 1];
    if (next !== undefined) {
      this.detail(next).catch(() => this.forget(next)); // so that the next one is there when it is asked for
      if (state.facts.image) new Image().src = `/picture/${next}?size=768&v=${state.facts.stamp}`;
    }
  }

  labels(item) {
    const other = item.suggested !== item.label;
    return [
      el("dl", { class: "labels" },
        el("dt", {}, "Given"), el("dd", {}, item.label),
        el("dt", {}, "Suggested"), el("dd", { class: "suggested" }, other ? item.suggested : "the same"),
        el("dt", {}, "Likely wrong"), el("dd", {}, percent(item.p))),
      el("p", { class: "why" }, item.why),
      el("ol", { class: "candidates", "aria-label": "Likeliest classes" }, ...item.candidates.map(([name, p], i) =>
        el("li", {}, el("button", { onclick: () => this.hooks.choose(name), class: name === item.label ? "own" : "" },
          el("kbd", {}, String(i + 1)), el("span", { class: "name" }, name),
          bar(p), el("span", { class: "number" }, percent(p)))))),
    ];
  }

  values(values, item) {
    const against = values.filter((one) => one.against).length;
    const long = values.filter((one) => one.given === undefined && one.value.length > 60);
    const short = values.filter((one) => !long.includes(one));
    const parts = long.map((one) => el("div", { class: "text" }, el("h3", {}, one.name), el("p", {}, one.value)));
    if (short.length) {
      const table = el("table", { class: "values" }, el("caption", {}, against
        ? `${against} of ${short.length} values speak against ${item.label} (marked ◀): nearer to ${item.suggested}`
        : "Values, beside the middle of both classes"));
      table.append(el("tr", {}, el("th", { scope: "col" }, "value of"), el("th", { scope: "col" }, "this one"),
        el("th", { scope: "col" }, item.label), el("th", { scope: "col" }, item.suggested)));
      for (const one of short) {
        table.append(el("tr", { class: one.against ? "against" : "" },
          el("th", { scope: "row" }, one.name), el("td", {}, one.value + (one.against ? " ◀" : "")),
          el("td", {}, one.given ?? ""), el("td", {}, one.suggested ?? "")));
      }
      parts.push(table);
    }
    return el("div", { class: "cells" }, ...parts);
  }

  compared(detail, item) {
    const parts = [];
    const strip = (title, others) => {
      if (!others || !others.length) return;
      parts.push(el("h3", {}, title), el("div", { class: "strip" }, ...others.map((other) =>
        el("figure", {}, this.state.facts.image ? picture(other, 96, this.state.facts) : el("div", { class: "brief" }, other.brief),
          el("figcaption", { title: other.id }, other.label)))));
    };
    strip(`Nearest labelled ${item.label}`, detail.near.label);
    if (item.suggested !== item.label) strip(`Nearest labelled ${item.suggested}`, detail.near.suggested);
    if (detail.group.length) {
      strip("Nearly the same", detail.group);
      parts.push(el("button", { class: "link", onclick: () => this.hooks.filter({ group: String(item.group), state: "any", issue: "" }) },
        `Show the whole group (G)`));
    }
    return parts;
  }

  history(entries) {
    if (!entries.length) return el("span");
    return el("details", { class: "history" }, el("summary", {}, "History"), el("ol", {}, ...entries.map((one) =>
      el("li", {}, `${one.undo ? "undo: " : ""}${ACTIONS[one.action]} ${one.action === "skip" || one.action === "undecided" ? "" : one.label}`,
        el("small", {}, ` ${one.who || "somebody"}, ${new Date(one.at).toLocaleString()}`)))));
  }
}

function bar(p) {
  const inner = el("i");
  inner.style.width = `${100 * p}%`;
  return el("span", { class: "p" }, inner);
}
