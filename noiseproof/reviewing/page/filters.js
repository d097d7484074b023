// The column of filters, the groups that can be decided at once, the class picker and the help.

import { $, count, dialog, el } from "./dom.js";

const STATES = {
  open: "not decided", any: "all", decided: "decided", relabel: "relabelled", keep: "kept", drop: "dropped", skip: "skipped",
};
const ORDERS = { suspicion: "likeliest wrong first", pair: "by class pair", group: "by near-duplicates", id: "by id" };
export const NONE = { label: "", suggested: "", kind: "", split: "", above: "", group: "", search: "" };
export const FIRST = { ...NONE, state: "open", issue: "1", order: "suspicion" };

export const KEYS = [
  ["A", "accept the suggestion"], ["K", "keep the label"], ["1 … 5", "take the n-th likeliest class"],
  ["C", "another class: type to search"], ["D", "drop the example"], ["S or Space", "skip for now"],
  ["Z", "undo"], ["← → ↑ ↓", "move"], ["Enter, V", "single view, and back"], ["Esc", "back; clear the selection"],
  ["X", "select, or not"], ["Shift + ← → ↑ ↓", "select a range"], ["Ctrl + A", "select all that are listed"],
  ["P", "list this class pair"], ["G", "list this near-duplicate group"], ["/", "search by id"], ["F", "filters"], ["?", "this help"],
];

export class Filters {
  constructor(state, changed) {
    this.state = state;
    this.changed = changed;
    this.box = $("filters");
  }

  draw() {
    const { facts, filters } = this.state;
    const set = (name, value) => this.changed({ ...this.state.filters, [name]: value });
    const choice = (title, name, options) =>
      el("label", {}, title, el("select", { name, onchange: (event) => set(name, event.target.value) },
        ...Object.entries(options).map(([value, text]) => el("option", { value, selected: filters[name] === value }, text))));
    const named = (names) => Object.fromEntries([["", "any"], ...names.map((name) => [name, name])]);
    let typing;
    this.box.replaceChildren(
      el("button", { name: "close", onclick: () => this.toggle(false) }, "Done"),
      el("form", { onsubmit: (event) => event.preventDefault() },
        el("label", {}, "Search by id", el("input", {
          type: "search", name: "search", value: filters.search, autocomplete: "off",
          oninput: (event) => {
            clearTimeout(typing);
            typing = setTimeout(() => set("search", event.target.value), 200);
          },
        })),
        choice("Show", "state", STATES),
        el("label", { class: "check" }, el("input", {
          type: "checkbox", name: "issue", checked: filters.issue === "1", onchange: (event) => set("issue", event.target.checked ? "1" : ""),
        }), `Suspected only (${count(facts.issues)} of ${count(facts.rows)})`),
        choice("Given class", "label", named(facts.classes)),
        choice("Suggested class", "suggested", named(facts.classes)),
        Object.keys(facts.kinds).length
          ? choice("Kind", "kind", { "": "any", ...Object.fromEntries(Object.keys(facts.kinds).map((kind) => [kind, facts.kinds_about[kind]])) }) : null,
        facts.splits.length > 1 ? choice("Split", "split", named(facts.splits)) : null,
        choice("Likely wrong, at least", "above", { "": "any", 0.5: "50 %", 0.8: "80 %", 0.9: "90 %", 0.95: "95 %", 0.99: "99 %" }),
        choice("Order", "order", Object.fromEntries(facts.orders.map((name) => [name, ORDERS[name]]))),
        filters.group !== "" ? el("p", { class: "chip" }, `near-duplicate group ${filters.group}`) : null,
        el("button", { type: "button", name: "clear", onclick: () => this.changed({ ...FIRST }) }, "Clear filters")),
      el("h2", {}, "Class pairs"),
      el("ul", { class: "pairs" }, ...facts.pairs.map((pair) => {
        const here = filters.label === pair.label && filters.suggested === pair.suggested;
        return el("li", {}, el("button", {
          class: "link", "aria-pressed": here,
          onclick: () => this.changed({ ...this.state.filters, label: here ? "" : pair.label, suggested: here ? "" : pair.suggested }),
        }, el("span", { class: "pair" }, `${pair.label} → ${pair.suggested}`), el("span", { class: "number" }, count(pair.open))));
      })),
      facts.pairs.length ? el("p", { class: "note" }, "List a pair, look through it, then Ctrl + A and decide for all at once.") : el("p", { class: "note" }, "No label is suspected to be of another class."),
      el("h2", {}, "Reviewer"),
      el("label", {}, "Your name, kept with each decision", el("input", {
        type: "text", name: "who", value: this.state.who, maxLength: 80, autocomplete: "off",
        onchange: (event) => {
          this.state.who = event.target.value;
          localStorage.setItem("who", this.state.who);
        },
      })));
  }

  // Show the column where it lies over the page: on a phone.
  toggle(open) {
    const shown = this.box.classList.toggle("open", open);
    $("open-filters").setAttribute("aria-expanded", shown);
  }

  focus(name) {
    this.toggle(true);
    this.box.querySelector(`[name=${name}]`).focus();
  }
}

// Choose a class by typing a part of its name.
export function pick(classes, first, title) {
  return dialog(title, (close) => {
    let found = [];
    let at = 0;
    const list = el("ul", { role: "listbox", id: "found", class: "found" });
    const input = el("input", {
      type: "text", autofocus: true, placeholder: "Type to search", autocomplete: "off", role: "combobox",
      "aria-controls": "found", "aria-expanded": "true", "aria-label": "Class",
    });
    const draw = () => {
      const text = input.value.trim().toLowerCase();
      const names = [...first, ...classes.filter((name) => !first.includes(name))];
      const at_start = names.filter((name) => name.toLowerCase().startsWith(text));
      found = [...at_start, ...names.filter((name) => name.toLowerCase().includes(text) && !at_start.includes(name))].slice(0, 50);
      at = Math.min(at, Math.max(found.length - 1, 0));
      list.replaceChildren(...found.map((name, i) => el("li", {
        role: "option", id: `found-${i}`, "aria-selected": i === at, onclick: () => close(name),
      }, name)));
      if (!found.length) list.append(el("li", { class: "note" }, "No class of this name."));
      input.setAttribute("aria-activedescendant", `found-${at}`);
      list.children[at]?.scrollIntoView({ block: "nearest" });
    };
    input.addEventListener("input", () => {
      at = 0;
      draw();
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        at = Math.max(0, Math.min(found.length - 1, at + (event.key === "ArrowDown" ? 1 : -1)));
        draw();
        event.preventDefault();
      } else if (event.key === "Enter" && found.length) {
        close(found[at]);
        event.preventDefault();
      }
    });
    draw();
    return [input, list];
  });
}

export const help = () =>
  dialog("Keys", (close) => [
    el("dl", { class: "keys" }, ...KEYS.flatMap(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)])),
    el("p", { class: "note" }, "What you decide is saved at once. With several examples selected, a key decides for all of them."),
    el("div", { class: "row end" }, el("button", { class: "main", autofocus: true, onclick: () => close(null) }, "Close")),
  ]);
