// A race as a file and as a link, and the settings in the page's address.
/** @import { PlayedReel } from "../stage/reel.js" */
import { ROUTES } from "./constants.js";
import { make } from "./dom.js";
import { downloadBlob } from "./files.js";

// Browsers limit how often a page may change its address.
const ADDRESS_DELAY_MS = 300;
let updatesAddress = false;
let addressTimer;
const RACE_PREFIX = "#race=";
const SHARED_PREFIX = "#shared=";
// Chats may add punctuation after the code to the link.
const CODE = /^#shared=([0-9a-z]+)[^0-9a-z]*$/i;
// Browsers, mail and chats accept links of some ten thousand characters.
const MAX_LINK_BYTES = 48_000;
// Where the races are inserted in an exported file (ui/stage/html_file.py).
const RACES_PLACEHOLDER = "<!-- races -->";

// A name for a race's file, made from its question.
export function nameFile(question, ending = "jsonl") {
  const words =
    String(question ?? "")
      .toLowerCase()
      .match(/[a-z0-9]+/g) ?? [];
  return `${["race", ...words].join("-").slice(0, 60)}.${ending}`;
}

// A race as a recording: its events as JSON, a line each.
/** @param {PlayedReel} reel */
function toRecording(reel) {
  // `again` is the event with the figures of further runs.
  const again = reel.again ? [reel.again] : [];
  const events = [reel.started, ...reel.steps.map((step) => step.event), reel.finished, ...again];
  return new Blob([events.map((event) => `${JSON.stringify(event)}\n`).join("")], { type: "application/jsonl" });
}

/** @param {PlayedReel} reel */
export function saveReel(reel) {
  downloadBlob(toRecording(reel), nameFile(reel.head.question));
}

// Compresses a blob. Returns the result as base64 text, `code`, and its size in bytes.
async function pack(blob, format) {
  const packed = blob.stream().pipeThrough(new CompressionStream(format));
  const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
  const letters = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return { code: btoa(letters), size: bytes.length };
}

// A link that contains the whole race, or "" if it would be too long. What follows "#" is never sent to a server.
/** @param {PlayedReel} reel */
export async function linkWithRace(reel) {
  const { code, size } = await pack(toRecording(reel), "deflate-raw");
  if (size > MAX_LINK_BYTES) return "";
  const safe = code.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return `${new URL(location.pathname, location.href).href}${RACE_PREFIX}${safe}`;
}

// Saves a race as an HTML file that plays it without a server. The server sends the file without a race; the page
// inserts the race.
export async function exportRace(reel) {
  const response = await fetch(ROUTES.export);
  if (!response.ok) throw new Error(await response.text());
  const page = await response.text();
  const steps = reel.steps.map(({ event, sent }) => ({ event, frame: sent }));
  const { code } = await pack(new Blob([JSON.stringify({ ...reel, steps })]), "gzip");
  const file = page.replace(
    RACES_PLACEHOLDER,
    () => `<script type="application/octet-stream" data-reel="race">${code}</script>`,
  );
  downloadBlob(new Blob([file], { type: "text/html" }), nameFile(reel.head.question, "html"));
}

// Lets the server keep a race for a while. Returns a short link to it. Throws the reason why there is none.
/** @param {PlayedReel} reel */
export async function linkToKeptRace(reel) {
  const response = await fetch(ROUTES.shared, { method: "POST", body: toRecording(reel) });
  const text = await response.text();
  if (!response.ok) throw new Error(text);
  return `${new URL(location.pathname, location.href).href}${SHARED_PREFIX}${text}`;
}

// The code in a short link; undefined in any other address.
export function readShareCode(hash) {
  return CODE.exec(hash)?.[1].toLowerCase();
}

// Whether the address contains a race or names one.
export function containsRace(hash) {
  return hash.startsWith(RACE_PREFIX) || hash.startsWith(SHARED_PREFIX);
}

// Removes the race from the page's address. Called when another race begins.
export function removeRaceFromAddress() {
  if (containsRace(location.hash)) history.replaceState(history.state, "", location.href.split("#")[0]);
}

// The recording in an address, as a file; undefined if it is damaged or too long.
export async function unpackRace(hash) {
  // A longer code could unpack to more than the memory holds.
  if (hash.length > 2 * MAX_LINK_BYTES || !hash.startsWith(RACE_PREFIX)) return undefined;
  try {
    const letters = atob(hash.slice(RACE_PREFIX.length).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new File([await new Response(unpacked).blob()], "The race in the link");
  } catch {
    return undefined;
  }
}

// A link that asks the same question with the same settings.
/** @param {PlayedReel} reel */
export function linkWithSettings(reel) {
  const url = new URL(location.pathname, location.href);
  const settings = reel.head.settings ?? {};
  const parameters = {
    q: reel.head.question,
    lanes: reel.head.lanes.map((lane) => lane.lane).join(","),
    tokens: settings.max_new_tokens,
    temperature: settings.temperature,
    top_p: settings.top_p,
    seed: settings.seed,
    // Included even if it is the default, because a server may have another default (--settings).
    draft: settings.num_draft === null ? "auto" : settings.num_draft,
    passages: reel.head.passages.length,
    verifier: settings.verifier,
    thinking: reel.head.thinking,
    autorun: 1,
  };
  for (const [name, value] of Object.entries(parameters))
    if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
  return url.href;
}

// The address with the question, lanes and settings, so that a reload keeps them, but without autorun. `defaults` maps
// parameters to their defaults, in the order of `values`; a value that equals its default is left out.
export function addressOf(href, defaults, values) {
  const url = new URL(href);
  url.searchParams.delete("autorun");
  for (const [index, [name, defaultValue]] of Object.entries(defaults).entries()) {
    const value = String(values[index] ?? "");
    if (value && value !== String(defaultValue)) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  return url.href;
}

// Allows updates of the address. Called once the page's first address has been read.
export function startAddressUpdates() {
  updatesAddress = true;
  history.replaceState(history.state, "", addressOf(location.href, {}, []));
}

// Writes settings into the address once they have not changed for ADDRESS_DELAY_MS.
export function updateAddress(defaults, values) {
  clearTimeout(addressTimer);
  if (!updatesAddress) return;
  const write = () => history.replaceState(history.state, "", addressOf(location.href, defaults, values));
  addressTimer = setTimeout(write, ADDRESS_DELAY_MS);
}

// Copies text. Where there is no clipboard API, which needs https or localhost, selects the text in a field and copies
// the selection. While a dialog is open, `host` must be inside it, because nothing outside can be selected.
export async function copyText(text, host = document.body) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = make("textarea");
  field.value = text;
  host.append(field);
  field.select();
  const copied = document.execCommand("copy");
  field.remove();
  if (!copied) throw new Error("not allowed");
}
