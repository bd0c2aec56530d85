// A race as a file, and as a link that asks for it again.
import { make } from "./dom.js";
import { downloadBlob } from "./files.js";

const KEEP_MS = 300;
let keeping = false;
let late;

export function nameFile(question) {
  const words =
    String(question ?? "")
      .toLowerCase()
      .match(/[a-z0-9]+/g) ?? [];
  return `${["race", ...words].join("-").slice(0, 60)}.jsonl`;
}

export function saveReel(reel) {
  const events = [reel.started, ...reel.steps.map((step) => step.event), reel.finished];
  const blob = new Blob([events.map((event) => `${JSON.stringify(event)}\n`).join("")], { type: "application/jsonl" });
  downloadBlob(blob, nameFile(reel.head.question));
}

export function linkTo(reel) {
  const url = new URL(location.pathname, location.href);
  const settings = reel.head.settings ?? {};
  const given = {
    q: reel.head.question,
    lanes: reel.head.lanes.map((lane) => lane.lane).join(","),
    tokens: settings.max_new_tokens,
    temperature: settings.temperature,
    top_p: settings.top_p,
    seed: settings.seed,
    draft: settings.num_draft,
    passages: reel.head.passages.length || undefined,
    verifier: settings.verifier,
    autorun: 1,
  };
  for (const [name, value] of Object.entries(given))
    if (value !== undefined && value !== null) url.searchParams.set(name, value);
  return url.href;
}

// The address with the question, the lanes and the settings, so that a reload keeps them: as a link, without autorun.
// `usual`: the parameters' defaults, which are left out, in the order of `values`.
export function addressOf(href, usual, values) {
  const url = new URL(href);
  url.searchParams.delete("autorun");
  for (const [index, [name, plain]] of Object.entries(usual).entries()) {
    const value = String(values[index] ?? "");
    if (value && value !== String(plain)) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  return url.href;
}

// From the moment that the page's first address has been read.
export function beginAddress() {
  keeping = true;
  history.replaceState(history.state, "", addressOf(location.href, {}, []));
}

// Browsers allow a page only so many changes of its address.
export function keepAddress(usual, values) {
  clearTimeout(late);
  if (keeping)
    late = setTimeout(() => history.replaceState(history.state, "", addressOf(location.href, usual, values)), KEEP_MS);
}

// The clipboard is there on https and on this machine only; elsewhere the old way.
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = make("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new Error("not allowed");
}
