// What the page asks of the server. Every answer is JSON but /rows, which is 32-bit numbers.

export class Refused extends Error {}
export class Unreachable extends Error {}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Unreachable("The server does not answer. Start noiseproof review again; what was saved is kept.");
  }
  if (response.status === 403) throw new Unreachable("This link is spent. Open the one noiseproof review printed last.");
  if (!response.ok) {
    const said = await response.json().catch(() => ({}));
    throw new Refused(said.error || `The server refused this (${response.status}).`);
  }
  return response;
}

const get = async (path) => (await ask(path)).json();
const post = async (path, body) =>
  (await ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();

export const facts = () => get("/facts");
export const progress = () => get("/progress");
export const changes = (since) => get(`/changes?since=${since}`);
export const detail = (row) => get(`/detail/${row}`);
export const items = (rows) => get(`/items?rows=${rows.join(",")}`);
export const decide = (decision) => post("/decide", decision);
export const undo = (by) => post("/undo", by);
export const refresh = () => post("/refresh", {});
export const refreshing = () => get("/refreshing");
export const write = () => post("/export", {});

export async function rows(filters) {
  const response = await ask(`/rows?${new URLSearchParams(filters)}`);
  const both = new Uint32Array(await response.arrayBuffer());
  return { rows: both.subarray(0, both.length / 2), versions: both.subarray(both.length / 2) };
}
