// What the page's keys and buttons do.
import { CONSTANTS } from "../lib/constants.js";
import { closest, make } from "../lib/dom.js";
import { downloadBlob } from "../lib/files.js";
import { pressRace, pressStop, toggleDark } from "../lib/gradio.js";
import { nameFile } from "../lib/share.js";
import { readFigures } from "../questions/question_figures.js";
import { listCsv } from "../questions/results_csv.js";

// The keys whose names in the list of keys differ from the browser's.
const KEY_LABELS = { " ": "space", ArrowLeft: "←", ArrowRight: "→", Escape: "Esc", 1: `1 – ${CONSTANTS.max_lanes}` };

/**
 * [key, its description, its action]. `release` starts a race that a vote holds back; it returns whether there is one.
 * @returns {[string, string, (key: string) => void][]}
 */
function listKeys(stage, tools) {
  const { player } = stage;
  return [
    ["r", "race", pressRace],
    ["Escape", "stop the race, or show the result at once", () => stop(stage)],
    [" ", "pause and play the replay; start the race after a vote", () => stage.start.release() || player.toggle()],
    ["ArrowLeft", "one step back", () => player.move(-1)],
    ["ArrowRight", "one step on", () => stage.start.release() || player.move(1)],
    ["1", "guess who wins; later one lane alone, and back", (key) => pickLane(stage, Number(key) - 1)],
    ["a", "audience: phones vote who wins", () => tools.audience.show()],
    ["p", "present: only the race, for a projector", togglePresentation],
    ["f", "full screen", fullScreen],
    ["t", "draft tree of the step", () => tools.toggleInspector()],
    ["e", "explain: captions that say what has just happened", () => tools.toggleExplain()],
    ["m", "slow motion: the best step, and one that fails", () => openDialog(stage, tools.slowMotion)],
    ["v", "proof: the texts of all lanes as one", () => openDialog(stage, tools.proof)],
    ["o", "tour: five short chapters on recorded races", () => tools.tour.begin()],
    ["s", "save or share this race", () => tools.share.open()],
    ["g", "recorded races", () => stage.find(".gallery").showModal()],
    ["l", "your logs: what drafting would yield on them", () => tools.logs.open()],
    ["q", "questions: a list of them, raced into one table", () => tools.questions.open()],
    ["d", "light or dark", toggleDark],
    ["?", "these keys", () => stage.find(".help").showModal()],
  ];
}

// The action of each button, by its data-do.
function listActions(stage, tools) {
  const { player } = stage;
  return {
    result: () => player.skipToEnd(),
    again: pressRace,
    back: () => player.move(-1),
    on: () => player.move(1),
    play: () => stage.start.release() || player.toggle(),
    share: () => tools.share.open(),
    ...tools.share.actions,
    csv: () => saveFigures(stage.reel),
    gallery: () => stage.find(".gallery").showModal(),
    help: () => stage.find(".help").showModal(),
    dark: toggleDark,
    explain: () => tools.toggleExplain(),
    steps: () => tools.toggleInspector(),
    slow: () => openDialog(stage, tools.slowMotion),
    film: () => openDialog(stage, tools.film),
    tour: () => tools.tour.begin(),
    audience: () => tools.audience.show(),
    proof: () => openDialog(stage, tools.proof),
    logs: () => tools.logs.open(),
    questions: () => tools.questions.open(),
    present: togglePresentation,
  };
}

// The keys of the functions that a page may lack. Copying a link has no key.
const KEYS = { race: "r", audience: "a", gallery: "g", logs: "l", questions: "q", tour: "o" };

function saveFigures(reel) {
  const csv = listCsv([reel.head.question ?? ""], [readFigures(reel)]);
  downloadBlob(new Blob([csv], { type: "text/csv" }), nameFile(reel.head.question, "csv"));
}

function pickLane(stage, index) {
  if (!stage.guess.choose(index) && stage.panes[index]) stage.paneRow.toggleSolo(index);
}

// Opens a dialog about the race, and pauses the replay.
function openDialog(stage, dialog) {
  dialog.open(stage.reel);
  if (!dialog.node.open) return;
  stage.start.cancel();
  stage.player.pause();
}

function stop(stage) {
  pressStop();
  stage.player.skipToEnd();
}

// Switches between stage view, which shows only the race, and bench view, which shows the whole page.
function togglePresentation() {
  const on = document.body.dataset.view !== "stage";
  document.body.dataset.view = on ? "stage" : "bench";
  scrollTo(0, 0);
}

function fullScreen() {
  if (document.fullscreenElement) document.exitFullscreen();
  else document.documentElement.requestFullscreen?.();
}

const FIELDS = "input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]";

// Whether the element that has the focus uses a key itself, so that the page must ignore the key.
export function usesKey({ target, key }) {
  if (key !== "Escape" && target.closest?.(FIELDS)) return true;
  if (key === " ") return Boolean(target.closest?.("button, a, input:not([type=range])"));
  return key.startsWith("Arrow") && usesArrowKeys(target);
}

// Gives the keys back to the stage after a field, a button or a link had them.
export function leaveField(stage, target) {
  if (target.matches?.(`${FIELDS}, input, button, a`)) stage.node.focus({ preventScroll: true });
}

// Closes the menu, unless `target` is what opens it. Returns whether it was open.
export function closeMenu(target) {
  const menu = document.querySelector(".menu details");
  const isOpen = Boolean(menu?.hasAttribute("open"));
  if (isOpen && !closest(target, ".menu summary")) menu.removeAttribute("open");
  return isOpen;
}

// The key that a presenter's remote control stands for; elsewhere than in stage view, these keys scroll the page.
export function remoteKey(key) {
  if (document.body.dataset.view !== "stage") return key;
  return { PageUp: "ArrowLeft", PageDown: "ArrowRight" }[key] ?? key;
}

// Arrow keys move through choices, move sliders and scroll wide tables. The player's slider is an exception: it is the
// replay's time, which the page's own arrow keys move.
function usesArrowKeys(target) {
  if (target.closest?.("[type=radio], .text")) return true;
  if (target.closest?.("[type=range]")) return !target.closest(".player");
  const box = target.closest?.(".scroller");
  return Boolean(box) && box.scrollWidth > box.clientWidth;
}

// The key under which `listKeys` lists a pressed key: all digits that stand for lanes are listed as "1".
export function entryKey(key) {
  return Number(key) >= 1 && Number(key) <= CONSTANTS.max_lanes ? "1" : key;
}

// `missing` names the functions that this page lacks. The tour is missing, too, if its recorded races are.
export function bindKeys(stage, tools, missing = []) {
  const { player } = stage;
  const lacks = tools.tour.available ? missing : [...missing, "tour"];
  const unused = lacks.map((name) => KEYS[name]);
  const keys = listKeys(stage, tools).filter(([key]) => !unused.includes(key));
  const actions = listActions(stage, tools);
  // The style sheet hides the buttons of missing functions; scripts cannot, because Gradio may not have drawn the menu
  // yet.
  document.body.dataset.missing = lacks.join(" ");
  document.addEventListener("keydown", (event) => {
    const key = remoteKey(event.key);
    if (event.ctrlKey || event.metaKey || event.altKey || stage.find("dialog[open]") || usesKey(event)) return;
    const entry = keys.find(([name]) => name === entryKey(key));
    if (!entry) return;
    const [, , action] = entry;
    if (key === " " || key.startsWith("Arrow")) event.preventDefault();
    if (key === "Escape" && (closeMenu(document) || tools.closeOverlay())) return;
    if (key === "Escape") leaveField(stage, event.target);
    action(key);
  });
  document.addEventListener("click", ({ target }) => {
    if (closest(target, "#stop")) player.skipToEnd();
    closeMenu(target);
    const button = closest(target, ".stage [data-do], .menu [data-do]");
    const action = actions[button?.dataset.do];
    // The player's buttons do nothing before there is a race.
    if (action && !(button.closest(".player") && !stage.reel)) action();
  });
  for (const [name, words] of keys) {
    const entry = make("div");
    entry.append(make("dt", "", KEY_LABELS[name] ?? name), make("dd", "", words));
    stage.find(".help dl").append(entry);
  }
  stage.find(".help [data-do=close]").addEventListener("click", () => stage.find(".help").close());
}
