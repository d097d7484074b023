// The grid of examples. Only the cards that can be seen exist, so that a million rows scroll as a hundred do.

import { $, el, percent, picture, verdict } from "./dom.js";
import * as api from "./api.js";

const GAP = 12;
const TALLEST = 15_000_000; // pixels that browsers give an element; a longer list is scrolled in larger steps

export class List {
  constructor(state, hooks) {
    this.state = state;
    this.hooks = hooks; // open(index), select(index, event)
    this.box = $("list");
    this.canvas = $("canvas");
    this.cards = new Map(); // index -> element
    this.wanted = new Set(); // rows asked for
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.layout()).observe(this.box);
  }

  layout() {
    const width = this.box.clientWidth - 2 * GAP;
    if (width <= 0 || !this.state.facts) return;
    const least = this.state.facts.image ? (width < 500 ? 148 : 168) : 250;
    this.columns = Math.max(1, Math.floor((width + GAP) / (least + GAP)));
    this.width = (width - GAP * (this.columns - 1)) / this.columns;
    this.height = this.state.facts.image ? this.width + 62 : 176;
    const lines = Math.ceil(this.state.rows.length / this.columns);
    this.full = lines * (this.height + GAP) + GAP;
    this.canvas.style.height = `${Math.min(this.full, TALLEST)}px`;
    this.clear();
    this.draw();
  }

  clear() {
    this.canvas.replaceChildren();
    this.cards.clear();
  }

  // Where the list is scrolled to, in pixels of the full list.
  get top() {
    const room = Math.min(this.full, TALLEST) - this.box.clientHeight;
    return this.full <= TALLEST || room <= 0 ? this.box.scrollTop : (this.box.scrollTop / room) * (this.full - this.box.clientHeight);
  }

  draw() {
    if (!this.columns || this.box.hidden) return;
    const line = this.height + GAP;
    const first = Math.max(0, Math.floor(this.top / line) - 1) * this.columns;
    const last = Math.min(this.state.rows.length, (Math.ceil((this.top + this.box.clientHeight) / line) + 1) * this.columns);
    for (const [index, card] of this.cards) {
      if (index < first || index >= last) {
        card.remove();
        this.cards.delete(index);
      }
    }
    const shift = this.box.scrollTop - this.top; // of a list too long for the browser
    const missing = [];
    for (let index = first; index < last; index++) {
      const row = this.state.rows[index];
      const item = this.state.items.get(row);
      if (!item && !this.wanted.has(row)) missing.push(row);
      let card = this.cards.get(index);
      if (!card) {
        card = this.card(index, item);
        this.cards.set(index, card);
        this.canvas.append(card);
      }
      const x = GAP + (index % this.columns) * (this.width + GAP);
      const y = GAP + Math.floor(index / this.columns) * line + shift;
      card.style.transform = `translate(${x}px, ${y}px)`;
      card.style.width = `${this.width}px`;
      card.style.height = `${this.height}px`;
    }
    this.mark();
    if (missing.length) this.fetch(missing);
  }

  async fetch(rows) {
    for (const row of rows) this.wanted.add(row);
    try {
      for (let at = 0; at < rows.length; at += 200) {
        for (const item of await api.items(rows.slice(at, at + 200))) this.state.items.set(item.row, item);
      }
    } catch (error) {
      this.hooks.failed(error);
    }
    for (const row of rows) this.wanted.delete(row);
    this.refresh(new Set(rows));
  }

  // Draw the cards of some rows anew.
  refresh(rows) {
    for (const [index, card] of this.cards) {
      const row = this.state.rows[index];
      if (!rows || rows.has(row)) {
        const fresh = this.card(index, this.state.items.get(row));
        fresh.style.cssText = card.style.cssText;
        const image = card.querySelector("img");
        const other = fresh.querySelector("img");
        if (image && other && image.src === other.src) other.replaceWith(image); // no flicker
        card.replaceWith(fresh);
        this.cards.set(index, fresh);
      }
    }
    this.mark();
  }

  card(index, item) {
    const card = el("div", {
      class: "card", id: `card-${index}`, role: "option", "aria-setsize": this.state.rows.length, "aria-posinset": index + 1,
      onclick: (event) => this.hooks.select(index, event), ondblclick: () => this.hooks.open(index),
    });
    if (!item) return card;
    const done = verdict(item);
    card.classList.add(item.action, ...(this.state.pending.has(item.row) ? ["pending"] : []));
    const other = item.suggested !== item.label;
    card.append(
      this.state.facts.image ? el("div", { class: "picture" }, picture(item, 192, this.state.facts)) : el("div", { class: "brief" }, item.brief),
      el("div", { class: "line", title: `${item.label}${other ? ` → ${item.suggested}` : ""}` },
        el("span", { class: other ? "given struck" : "given" }, item.label),
        other ? el("span", { class: "suggested" }, item.suggested) : null),
      el("div", { class: "line small" },
        done ? el("strong", { class: "verdict" }, this.state.pending.has(item.row) ? `${done} (saving)` : done)
          : el("span", {}, `${percent(item.p)} wrong`),
        el("span", { class: "id", title: item.id }, item.id)),
    );
    card.setAttribute("aria-label",
      `${item.id}, labelled ${item.label}, suggested ${item.suggested}, ${percent(item.p)} likely wrong${done ? `, decided: ${done}` : ""}`);
    return card;
  }

  // Show which card is current and which are selected.
  mark() {
    for (const [index, card] of this.cards) {
      card.classList.toggle("current", index === this.state.at);
      const selected = this.state.selected.has(index);
      card.classList.toggle("selected", selected);
      card.setAttribute("aria-selected", selected);
    }
    this.box.setAttribute("aria-activedescendant", this.cards.has(this.state.at) ? `card-${this.state.at}` : "");
  }

  // Scroll so that the current card is seen whole.
  reveal() {
    if (!this.columns || this.box.hidden) return;
    const line = this.height + GAP;
    const top = Math.floor(this.state.at / this.columns) * line;
    const scale = this.full <= TALLEST ? 1 : (TALLEST - this.box.clientHeight) / (this.full - this.box.clientHeight);
    if (top < this.top) this.box.scrollTop = top * scale;
    else if (top + line + GAP > this.top + this.box.clientHeight) this.box.scrollTop = (top + line + GAP - this.box.clientHeight) * scale;
    this.draw();
  }
}
