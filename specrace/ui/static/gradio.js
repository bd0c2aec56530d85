// All that the page's scripts know of Gradio's own page: its elements, its theme, its clock.
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

// Files that are dropped here are the questions' own documents, and Gradio's upload takes them.
export function isUpload(target) {
  return Boolean(target.closest?.("#settings"));
}

export function toggleDark() {
  document.body.classList.toggle("dark");
}
