// A race as a file and as a link, and the settings in the page's address.
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

// A link that holds the whole race, or "" if it would be too long. What follows "#" is never sent to a server.
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

// Removes the race from the address, because another one has begun.
export function dropRace() {
  if (holdsRace(location.hash)) history.replaceState(history.state, "", location.href.split("#")[0]);
}

// The recording in an address, as a file; undefined if it is damaged or too long: a short code may unpack to a lot.
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

// A link that asks the same question with the same settings.
export function linkTo(reel) {
  const url = new URL(location.pathname, location.href);
  const settings = reel.head.settings ?? {};
  const parameters = {
    q: reel.head.question,
    lanes: reel.head.lanes.map((lane) => lane.lane).join(","),
    tokens: settings.max_new_tokens,
    temperature: settings.temperature,
    top_p: settings.top_p,
    seed: settings.seed,
    // Given even if it is the default, because a server may open with another number (--settings).
    draft: settings.num_draft === null ? "auto" : settings.num_draft,
    passages: reel.head.passages.length,
    verifier: settings.verifier,
    autorun: 1,
  };
  for (const [name, value] of Object.entries(parameters))
    if (value !== undefined && value !== null) url.searchParams.set(name, value);
  return url.href;
}

// The address with the question, lanes and settings, so that a reload keeps them, but without autorun. `usual` has the
// parameters' defaults, which are left out, in the order of `values`.
export function addressOf(href, usual, values) {
  const url = new URL(href);
  url.searchParams.delete("autorun");
  for (const [index, [name, defaultValue]] of Object.entries(usual).entries()) {
    const value = String(values[index] ?? "");
    if (value && value !== String(defaultValue)) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  return url.href;
}

// Begins to keep settings in the address. Called once the page's first address has been read.
export function beginAddress() {
  keeping = true;
  history.replaceState(history.state, "", addressOf(location.href, {}, []));
}

// Writes settings into the address, at most every KEEP_MS: browsers limit how often a page may change it.
export function keepAddress(usual, values) {
  clearTimeout(late);
  if (keeping)
    late = setTimeout(() => history.replaceState(history.state, "", addressOf(location.href, usual, values)), KEEP_MS);
}

// Copies text, in the old way where there is no clipboard API (it needs https or this machine). `host` must be inside an
// open dialog, since nothing outside can be selected.
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
