// Keys and buttons, one table for both.
const KEYS = [
  ["r", "race", () => document.getElementById("race")?.click()],
  ["Escape", "stop the race, or show the result at once", stop],
  [" ", "pause and play the replay", () => player.toggle()],
  ["ArrowLeft", "one step back", () => player.move(-1)],
  ["ArrowRight", "one step on", () => player.move(1)],
  ["1", "one lane alone, and back", (key) => panes[Number(key) - 1] && setSolo(Number(key) - 1)],
  ["p", "present: only the race, for a projector", present],
  ["f", "full screen", fullScreen],
  ["t", "draft tree of the step", toggleInspector],
  ["e", "explain: captions that say what has just happened", toggleExplain],
  ["g", "recorded races", () => find(".gallery").showModal()],
  ["d", "light or dark", () => document.body.classList.toggle("dark")],
  ["?", "these keys", () => find(".help").showModal()],
];
const NAMES = { " ": "space", ArrowLeft: "←", ArrowRight: "→", Escape: "Esc", 1: "1 – 6" };
const DO = {
  result: () => player.result(),
  again: () => document.getElementById("race")?.click(),
  back: () => player.move(-1),
  on: () => player.move(1),
  play: () => player.toggle(),
  save: () => saveReel(reel),
  link: () => copyText(linkTo(reel)).then(() => say("The link is copied."), () => say(linkTo(reel))),
  gallery: () => find(".gallery").showModal(),
  help: () => find(".help").showModal(),
  dark: () => document.body.classList.toggle("dark"),
  explain: () => toggleExplain(),
  steps: () => toggleInspector(),
  present,
};

function stop() {
  clearTimeout(follows);
  if (stage.dataset.mode === "replay") player.result();
  document.getElementById("stop")?.click();
}

function present() {
  const on = document.body.dataset.view !== "stage";
  document.body.dataset.view = on ? "stage" : "bench";
  scrollTo(0, 0);
}

function fullScreen() {
  if (document.fullscreenElement) document.exitFullscreen();
  else document.documentElement.requestFullscreen?.();
}

function isTyping(target) {
  return target.closest?.("input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]");
}

document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || stage.querySelector("dialog[open]")) return;
  if (isTyping(target) && key !== "Escape") return;
  // A button in focus takes the space for itself.
  if (key === " " && target.closest?.("button, a, input:not([type=range])")) return;
  // Choices are walked through with the arrows.
  if (key.startsWith("Arrow") && target.closest?.("[type=radio], .text")) return;
  const found = KEYS.find(([name]) => name === key || (name === "1" && /^[1-6]$/.test(key)));
  if (!found) return;
  if (key === " " || key.startsWith("Arrow")) event.preventDefault();
  found[2](key);
});

document.addEventListener("click", ({ target }) => {
  const button = target.closest?.(".stage [data-do], .menu [data-do]");
  if (button && DO[button.dataset.do] && !(button.closest(".player") && !reel)) DO[button.dataset.do]();
});

for (const [name, words] of KEYS) find(".help dl").append(make("dt", "", NAMES[name] ?? name), make("dd", "", words));
find(".help [data-do=close]").addEventListener("click", () => find(".help").close());
