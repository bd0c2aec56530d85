// All that the page's scripts know of Gradio's own page: its elements, its theme, its clock.
import { hasFolder, listDropped } from "./drops.js";

// As in ui/uploads.py.
const MAX_FILES = 20;
const MAX_BYTES = 2e6;
const DOCUMENTS = "#files input[type=file]";
const CLOCK = /performance\.now\(\)-[^;]*\/1e3/;

// Gradio (seen in 6.31) leaves the clock of its loading screen behind: it asks for every animation frame for ever, and
// an idle page takes a twentieth of a core. Nothing on this page shows such a clock, so it gets no frame. Has to run
// before Gradio's own scripts do.
export function silenceClock() {
  const ask = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (act) => (CLOCK.test(act.toString()) ? 0 : ask(act));
}

export function pressRace() {
  document.getElementById("race")?.click();
}

export function canRace() {
  return Boolean(document.getElementById("race"));
}

export function pressStop() {
  document.getElementById("stop")?.click();
}

export function markStop(live) {
  const stop = document.getElementById("stop");
  if (stop) stop.dataset.live = String(live);
}

// Whether the focus is on what has just asked for a race.
export function focusAsked() {
  return Boolean(document.activeElement?.closest("#race, .example"));
}

// Gradio's text fields keep what they are told of only.
export function setQuestion(words) {
  const field = document.querySelector("#question textarea, #question input");
  if (!field || !words) return;
  field.value = words;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

export function focusQuestion() {
  document.querySelector("#question textarea, #question input")?.focus();
}

export function openSettings(open) {
  const panel = document.getElementById("settings");
  if (panel) panel.dataset.open = String(open);
  document.getElementById("settings-button")?.setAttribute("aria-expanded", String(open));
}

export function toggleSettings() {
  openSettings(document.getElementById("settings").dataset.open !== "true");
}

// The lanes that are chosen before anybody chooses.
export function markDefaultLanes(lanes) {
  const panel = document.getElementById("settings");
  if (panel) panel.dataset.lanes ??= lanes.join(" ");
}

function tellStage(name, detail) {
  document.querySelector(".stage")?.dispatchEvent(new CustomEvent(name, { detail }));
}

// The lanes that are chosen now: the page's style shows their options, and an idle stage their panes.
export function showLanes(names) {
  const panel = document.getElementById("settings");
  if (panel) panel.dataset.lanes = names.join(" ");
  tellStage("lanes", names);
}

// What a visitor has ticked, made to fit: vanilla is among them, and at most `most`. The latest tick is the last.
export function limitLanes(names, most) {
  const wanted = names.includes("vanilla") ? names : ["vanilla", ...names];
  if (wanted.length > names.length) tellStage("complain", "Vanilla always runs: it is the baseline.");
  if (wanted.length > most) tellStage("complain", `At most ${most} lanes fit; untick one first.`);
  return wanted.slice(0, most);
}

// Gradio's toasts lie over the Race button for seconds; the page has a line for such words.
export function hearToasts() {
  new MutationObserver((changes) => {
    // What a race adds to the stage is no toast.
    const others = changes.filter(({ target }) => !target.closest?.(".stage"));
    for (const node of others.flatMap((change) => [...change.addedNodes])) {
      const words = node.querySelector?.("[data-testid=toast-text]")?.textContent.trim();
      if (words) tellStage("complain", words.replace(/^HTTP \d+: /, ""));
    }
  }).observe(document, { childList: true, subtree: true });
}

// Files that are dropped here are the questions' own documents, and Gradio's upload takes them.
export function isUpload(target) {
  return Boolean(target.closest?.("#settings"));
}

// Adds files to Gradio's upload. False where the page takes no documents.
export function uploadDocuments(files) {
  const field = document.querySelector(DOCUMENTS);
  if (!field) return false;
  field.files = fitting(files);
  field.dispatchEvent(new Event("change", { bubbles: true }));
  openSettings(true);
  return true;
}

// The same for what was dropped, folders' files, too.
export function uploadDropped(transfer) {
  return uploadFolders(transfer) || uploadDocuments(transfer.files);
}

// The documents in what was dropped, if a folder was; whether it was.
export function uploadFolders(transfer) {
  if (!hasFolder(transfer)) return false;
  if (!document.querySelector(DOCUMENTS)) return false;
  listDropped(transfer, MAX_FILES).then(
    (files) => (files.length ? uploadDocuments(files) : tellStage("complain", "There are no files in that folder.")),
    () => tellStage("complain", "The browser does not let the page read that folder; drop its files instead."),
  );
  return true;
}

// Gradio refuses all files where one is too large. The server names that one, and needs no more of it than its limit.
export function fitUploads() {
  document.addEventListener(
    "change",
    ({ target }) => {
      if (target.matches(DOCUMENTS)) target.files = fitting(target.files);
    },
    true,
  );
  document.addEventListener(
    "drop",
    (event) => {
      if (!isUpload(event.target) || !uploadDropped(event.dataTransfer)) return;
      event.preventDefault();
      event.stopPropagation();
    },
    true,
  );
}

function fitting(files) {
  const kept = new DataTransfer();
  for (const file of [...files].slice(0, MAX_FILES))
    kept.items.add(file.size > MAX_BYTES ? new File([file.slice(0, MAX_BYTES + 1)], file.name) : file);
  if (files.length > MAX_FILES)
    tellStage("complain", `More than ${MAX_FILES} files were given; the first ${MAX_FILES} are read.`);
  return kept.files;
}

export function toggleDark() {
  document.body.classList.toggle("dark");
}
