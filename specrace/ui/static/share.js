// A race as a file, and as a link that asks for it again.
import { make } from "./dom.js";
import { downloadBlob } from "./files.js";

const KEEP_MS = 300;
let keeping = false;
let late;
const PACKED = "#race=";
// Browsers, mail and chats take links of some ten thousand letters.
const MAX_PACKED_BYTES = 48_000;

export function nameFile(question) {
  const words =
    String(question ?? "")
      .toLowerCase()
      .match(/[a-z0-9]+/g) ?? [];
  return `${["race", ...words].join("-").slice(0, 60)}.jsonl`;
}

function recordingOf(reel) {
  const again = reel.again ? [reel.again] : [];
  const events = [reel.started, ...reel.steps.map((step) => step.event), reel.finished, ...again];
  return new Blob([events.map((event) => `${JSON.stringify(event)}\n`).join("")], { type: "application/jsonl" });
}

export function saveReel(reel) {
  downloadBlob(recordingOf(reel), nameFile(reel.head.question));
}

// A link that holds the whole race, "" where it is too long. What follows "#" stays in the browser.
export async function packRace(reel) {
  const packed = recordingOf(reel).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
  if (bytes.length > MAX_PACKED_BYTES) return "";
  const letters = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  const code = btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return `${new URL(location.pathname, location.href).href}${PACKED}${code}`;
}

export function holdsRace(hash) {
  return hash.startsWith(PACKED);
}

// Another race has begun: the address does not hold this one.
export function dropRace() {
  if (holdsRace(location.hash)) history.replaceState(history.state, "", location.href.split("#")[0]);
}

// The recording in an address, as a file; undefined for a damaged one. A little code may unpack to very much.
export async function unpackRace(hash) {
  if (hash.length > 2 * MAX_PACKED_BYTES) return undefined;
  try {
    const letters = atob(hash.slice(PACKED.length).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
    const whole = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new File([await new Response(whole).blob()], "The race in the link");
  } catch {
    return undefined;
  }
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
    // Said even where it is the default: a server may open with another number (--settings).
    draft: settings.num_draft === null ? "auto" : settings.num_draft,
    passages: reel.head.passages.length,
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
// `host`: inside of an open dialog, outside of which nothing can be selected.
export async function copyText(text, host = document.body) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = make("textarea");
  field.value = text;
  host.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new Error("not allowed");
}
