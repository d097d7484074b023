// Small helpers to build the page. Text is set as text: names from the data are never read as HTML.

export const $ = (id) => document.getElementById(id);

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "list" && name !== "role") node[name] = value;
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const percent = (p) => (p >= 0.01 && p < 0.995 ? `${Math.round(100 * p)} %` : `${(100 * p).toFixed(1)} %`);
export const count = (n) => Math.round(n).toLocaleString("en");
export const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;

export function say(text) {
  $("said").textContent = text;
}

// A question in the one dialog of the page; resolves to what `build(close)`'s controls close it with, or null.
// An answer counts at once: the dialog's event comes after keys that were pressed meanwhile, even in the next dialog.
export function dialog(title, build) {
  const box = $("dialog");
  return new Promise((resolve) => {
    const settle = (answer) => {
      box.removeEventListener("close", left);
      resolve(answer);
    };
    const left = () => box.open || settle(null);
    const close = (answer) => {
      box.close();
      settle(answer);
    };
    box.replaceChildren(el("h2", {}, title), ...build(close));
    box.addEventListener("close", left);
    box.showModal();
    (box.querySelector("[autofocus]") || box).focus();
  });
}

export const confirm = (title, text, yes) =>
  dialog(title, (close) => [
    el("p", {}, text),
    el("div", { class: "row end" },
      el("button", { onclick: () => close(false) }, "Cancel"),
      el("button", { class: "main", autofocus: true, onclick: () => close(true) }, yes)),
  ]);

// Shown in words and with a sign, so that colour is not the only signal.
export function verdict(item) {
  switch (item.action) {
    case "keep": return `✓ ${item.label}`;
    case "relabel": return `→ ${item.now}`;
    case "drop": return "✕ dropped";
    case "skip": return "… skipped";
    default: return "";
  }
}

export function picture(item, size, facts) {
  const image = el("img", {
    alt: `${item.id}, labelled ${item.label}`, src: `/picture/${item.row}?size=${size}&v=${facts.stamp}`,
    decoding: "async", draggable: false,
  });
  image.addEventListener("load", () => image.classList.toggle("tiny", image.naturalWidth <= 96));
  image.addEventListener("error", () => image.replaceWith(el("span", { class: "lost" }, "no picture")));
  return image;
}
