// All that the page's scripts know about Gradio's part of the page: its elements, its theme, its timer.
/** @import { StageEvents } from "./stage_events.js" */
import { CONSTANTS } from "./constants.js";
import { hasFolder, listDropped } from "./drops.js";
import { forgetOtherDocuments, keepDocuments, readKeptDocuments } from "./kept_documents.js";
import { send } from "./stage_events.js";

const { max_documents: MAX_FILES, max_document_bytes: MAX_BYTES } = CONSTANTS;
const DOCUMENTS = "#files input[type=file]";
const QUESTION = "#question textarea, #question input";
// Matches the source of the timer's callback, where it computes the seconds since its start.
const LOADING_TIMER = /performance\.now\(\)-[^;]*\/1e3/;

// Gradio (seen in 6.31) never stops the timer of its loading screen, which requests every animation frame, so that an
// idle page uses a twentieth of a core. This page does not show that timer, so its requests are ignored. Call this
// before Gradio's scripts run.
export function ignoreLoadingTimer() {
  const request = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (callback) => (LOADING_TIMER.test(callback.toString()) ? 0 : request(callback));
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

// Turns the values of the page's fields into those to send. Set just before the hidden button that races a question of
// a list is pressed.
let fillListed;

/**
 * Presses one of the two hidden buttons for lists of questions. With `fill`, which turns the values of the page's
 * fields into those to race with, the button that races a question; without it, the one that suggests questions.
 * @param {((values: any[]) => any[]) | undefined} fill
 */
export function pressListed(fill) {
  fillListed = fill;
  document.getElementById(fill ? "race-listed" : "suggest-listed")?.click();
}

// Gradio calls this for the values to send.
export function nextQuestion(values) {
  return fillListed(values);
}

// The recommended settings as JSON. Set just before the hidden button that takes them is pressed.
let recommended;

/**
 * Sets recommended settings in the panel, and races the question, if there is one.
 * @param {{ lane: string, num_draft: number, options: Record<string, any> }} settings
 */
export function pressRecommended({ lane, num_draft, options }) {
  recommended = JSON.stringify({ method: lane, num_draft, options });
  document.getElementById("race-recommended")?.click();
}

// Gradio calls this for the settings to set.
export function takeRecommended() {
  return recommended;
}

// Gradio calls this once the settings are set.
export function raceRecommended() {
  if (findField(QUESTION).value.trim()) return pressRace();
  sendToStage("problem", "The settings are set; type a question, then press Race.");
  return focusQuestion();
}

// Called at a press of Race, before the server answers.
export function announceRequest() {
  sendToStage("requested");
}

// Whether the focus is on a control that starts races.
export function isRaceControlFocused() {
  return Boolean(document.activeElement?.closest("#race, .example"));
}

function findField(selector) {
  return /** @type {HTMLInputElement} */ (document.querySelector(selector));
}

// Sets the question. Gradio notices a field's new value only after an input event.
export function setQuestion(question) {
  const field = findField(QUESTION);
  if (!field || !question) return;
  field.value = question;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

/**
 * Shows the question of the race on the stage as a heading, on a page that has this heading in place of the field.
 * @param {string | null | undefined} question from a recording, and so untrusted text
 */
export function showAsked(question) {
  const heading = document.querySelector("#asked h2");
  if (!(heading instanceof HTMLElement)) return;
  heading.textContent = heading.title = question ?? "";
  heading.hidden = !heading.textContent.trim();
}

export function focusQuestion() {
  findField(QUESTION)?.focus();
}

export function openSettings(open) {
  const panel = document.getElementById("settings");
  if (panel) panel.dataset.open = String(open);
  document.getElementById("settings-button")?.setAttribute("aria-expanded", String(open));
}

export function openDocuments(open) {
  const panel = document.getElementById("documents");
  if (panel) panel.dataset.open = String(open);
  document.getElementById("documents-button")?.setAttribute("aria-expanded", String(open));
}

// Closes the settings and the documents, which would push a race out of sight.
export function closePanels() {
  openSettings(false);
  openDocuments(false);
}

export function toggleDocuments() {
  openDocuments(document.getElementById("documents").dataset.open !== "true");
}

export function toggleSettings() {
  openSettings(document.getElementById("settings").dataset.open !== "true");
}

// Marks the default lanes as chosen, unless a choice is marked already.
export function markDefaultLanes(lanes) {
  const panel = document.getElementById("settings");
  if (panel) panel.dataset.lanes ??= lanes.join(" ");
}

/**
 * @template {"problem" | "lanes" | "requested" | "documents"} Name
 * @param {Name} name
 * @param {StageEvents[Name]} [detail]
 */
function sendToStage(name, detail) {
  const stage = document.querySelector(".stage");
  if (stage) send(stage, name, detail);
}

// Marks the lanes that are chosen now, so that the style sheet shows their options, and an idle stage their panes.
export function showLanes(names) {
  const panel = document.getElementById("settings");
  if (panel) panel.dataset.lanes = names.join(" ");
  sendToStage("lanes", names);
}

// The lanes that a visitor has ticked, and vanilla, at most `max`. The lane that was ticked last is last in `names`, so
// it is the one that is dropped.
export function limitLanes(names, max) {
  const lanes = names.includes("vanilla") ? names : ["vanilla", ...names];
  if (lanes.length > names.length) sendToStage("problem", "Vanilla always runs: it is the baseline.");
  if (lanes.length > max) sendToStage("problem", `At most ${max} lanes fit; untick one first.`);
  return lanes.slice(0, max);
}

// Shows the text of Gradio's toasts in the stage's announcer instead: the style sheet hides the toasts themselves,
// which would cover the Race button for seconds.
export function redirectToasts() {
  new MutationObserver((changes) => {
    // A race adds many nodes to the stage, and none is a toast.
    const others = changes.filter(({ target }) => !(target instanceof Element && target.closest(".stage")));
    for (const node of others.flatMap((change) => [...change.addedNodes])) {
      if (!(node instanceof Element)) continue;
      const message = node.querySelector("[data-testid=toast-text]")?.textContent.trim();
      if (message) sendToStage("problem", message.replace(/^HTTP \d+: /, ""));
    }
  }).observe(document, { childList: true, subtree: true });
}

// Whether files dropped on this element are documents for Gradio's upload.
export function isUpload(target) {
  return Boolean(target.closest?.("#settings, #documents"));
}

// Passes files to Gradio's upload. Returns false if the page accepts no documents.
export function uploadDocuments(files) {
  const field = findField(DOCUMENTS);
  if (!field) return false;
  field.files = limitFiles(files);
  field.dispatchEvent(new Event("change", { bubbles: true }));
  return true;
}

// Passes dropped files, and the files in dropped folders, to Gradio's upload. Returns false if the page accepts none.
export function uploadDropped(transfer) {
  return uploadFolders(transfer) || uploadDocuments(transfer.files);
}

// If a folder was dropped, passes its files and all other dropped files to Gradio's upload, and returns true.
export function uploadFolders(transfer) {
  if (!hasFolder(transfer)) return false;
  if (!document.querySelector(DOCUMENTS)) return false;
  listDropped(transfer, MAX_FILES).then(
    (files) => (files.length ? uploadDocuments(files) : sendToStage("problem", "There are no files in that folder.")),
    () => sendToStage("problem", "The browser does not let the page read that folder; drop its files instead."),
  );
  return true;
}

// Cuts uploads down to the limits. If one file is too large, Gradio refuses all files and does not say which one is
// wrong. So a large file is cut to one byte beyond the limit, and our server refuses it by its name.
export function limitUploads() {
  document.addEventListener(
    "change",
    ({ target }) => {
      if (!(target instanceof HTMLInputElement && target.matches(DOCUMENTS))) return;
      target.files = limitFiles(target.files);
      keepDocuments(target.files);
      openDocuments(true);
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

// Called with the names of the uploaded files when they have changed. What the stage said about them is then outdated.
export function documentsChanged(names) {
  forgetOtherDocuments(names);
  sendToStage("documents");
}

// Uploads the documents that this tab had before a reload, once the page has drawn the field for them.
export function restoreDocuments() {
  const files = readKeptDocuments();
  if (!files.length) return;
  const restore = () => {
    const restored = uploadDocuments(/** @type {any} */ (files));
    if (restored) openDocuments(false);
    return restored;
  };
  if (restore()) return;
  const observer = new MutationObserver(() => restore() && observer.disconnect());
  observer.observe(document.body, { childList: true, subtree: true });
}

function limitFiles(files) {
  const limited = new DataTransfer();
  for (const file of [...files].slice(0, MAX_FILES))
    limited.items.add(file.size > MAX_BYTES ? new File([file.slice(0, MAX_BYTES + 1)], file.name) : file);
  if (files.length > MAX_FILES)
    sendToStage("problem", `More than ${MAX_FILES} files were given; the first ${MAX_FILES} are read.`);
  return limited.files;
}

export function toggleDark() {
  document.body.classList.toggle("dark");
}
