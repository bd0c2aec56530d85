// Draws the stage, the part of the page that shows a race: on the page, in an exported file, or elsewhere.
/** @import { ExportSettings, RaceCard, RecordedAnswer, StageSettings } from "./lib/wire.d.ts" */
import { Attract } from "./gallery/attract.js";
import { Examples } from "./gallery/examples.js";
import { closest } from "./lib/dom.js";
import { canRace, markDefaultLanes } from "./lib/gradio.js";
import { bindKeys } from "./stage/keys.js";
import { registerMethods } from "./lib/lanes.js";
import { REDUCED_MOTION } from "./lib/motion.js";
import { Stage } from "./stage/stage.js";
import { removeRaceFromAddress, containsRace, readShareCode, unpackRace } from "./lib/share.js";
import { listen } from "./lib/stage_events.js";
import { Tools } from "./stage_tools.js";

// Whether the page's address asks for a race at once.
export function asksForRace() {
  return new URLSearchParams(location.search).get("autorun") === "1";
}

// Opens the race that the address contains or names, if there is one.
/** @param {Stage} stage */
async function openLinkedRace(stage) {
  if (!containsRace(location.hash)) return;
  const code = readShareCode(location.hash);
  if (code) {
    stage.gallery.openShared(code);
    return;
  }
  const file = await unpackRace(location.hash);
  if (file) stage.gallery.open(file);
  else stage.pauseWithError("The race in this link is damaged; ask for a new link.");
}

// Plays recorded races until the visitor acts.
/**
 * @param {Stage} stage
 * @param {RaceCard[]} cards
 * @param {boolean} hasTour
 */
function playRecordings(stage, cards, hasTour) {
  if (asksForRace() || containsRace(location.hash) || stage.node.dataset.mode !== "idle") return;
  if (!REDUCED_MOTION.matches) new Attract(stage, cards).play();
  else if (hasTour) stage.announce("Press “Tour” to see how drafting works, or ask a question.");
  else if (cards.length) stage.announce("Press “Recorded races” to watch one, or ask a question.");
}

// While the question field holds another question, the result on the stage must not look like its answer.
/** @param {Stage} stage */
function watchQuestion(stage) {
  const { node } = stage;
  const mark = (isOther) => (node.dataset.otherQuestion = String(isOther));
  addEventListener("input", ({ target }) => {
    const field = /** @type {HTMLInputElement} */ (closest(target, "#question textarea, #question input"));
    if (!field || node.dataset.mode !== "result" || !canRace()) return;
    const isOther = !["", stage.reel.head.question?.trim()].includes(field.value.trim());
    if (String(isOther) === node.dataset.otherQuestion) return;
    mark(isOther);
    stage.announce(isOther ? "Press “Race” to ask this question." : stage.reel.headline);
  });
  listen(node, "opened", () => mark(false));
}

// Copies what the stage is doing to an attribute of the body, for the style of elements outside the stage. A rule that
// asks whether the body contains such a stage would make the browser search the whole page whenever a token is drawn.
/** @param {Stage} stage */
function watchActivity({ node }) {
  const mark = () => {
    const { phase, mode, running, otherQuestion } = node.dataset;
    const playing = otherQuestion === "true" ? "playing another" : "playing";
    const activity = running === "true" ? playing : "idle";
    document.body.dataset.stage = phase === "waiting" || mode === "live" ? "busy" : activity;
  };
  const attributeFilter = ["data-phase", "data-mode", "data-running", "data-other-question"];
  new MutationObserver(mark).observe(node, { attributeFilter });
  mark();
}

// The functions that this page lacks. Logs need a server that takes files, and races one that has a model; an exported
// race has no server at all, so phones cannot vote.
/** @param {Props} props */
function listMissing({ takes_files: takesFiles, only_replay: onlyReplay, exported, gallery }) {
  const lacks = {
    logs: !takesFiles,
    race: onlyReplay,
    questions: onlyReplay || exported,
    link: onlyReplay,
    audience: exported,
    export: exported,
    api: onlyReplay || exported,
    gallery: exported && gallery.length < 2,
  };
  return Object.keys(lacks).filter((name) => lacks[name]);
}

/**
 * What the stage is drawn with. `value` is the server's latest message as JSON; `exported`: this is an exported race.
 * @typedef {StageSettings & Partial<ExportSettings> & { value?: string, exported?: boolean }} Props
 */

/**
 * Called once the stage's HTML is in `element`. `watch` reports changes of the props, `server` has the recorded races.
 * @param {{
 *   element: HTMLElement, props: Props, server: { play_recorded: (name: string) => Promise<RecordedAnswer> },
 *   watch: (name: string, act: () => void) => void,
 * }} hook
 */
export function drawStage({ element, props, server, watch }) {
  registerMethods(props.methods);
  const lanes = props.lanes.map((lane) => ({ lane }));
  const node = element.querySelector(".stage");
  const stage = new Stage(node, { lanes, cards: props.gallery, server, takesFiles: props.takes_files });
  const tools = new Tools(stage);
  bindKeys(stage, tools, listMissing(props));
  watchQuestion(stage);
  watchActivity(stage);
  listen(node, "begun", ({ live }) => live && removeRaceFromAddress());
  markDefaultLanes(props.lanes);
  watch("value", () => {
    const message = JSON.parse(props.value || "{}");
    if (["listed", "suggested"].includes(message.kind)) tools.questions.receive(message);
    else if (message.kind) stage.receiver.receive(message);
  });
  openLinkedRace(stage);
  // A link may be pasted into this page's address. When the page changes the address itself, this event is not sent.
  addEventListener("hashchange", () => openLinkedRace(stage));
  const actions = { play: (name) => stage.gallery.play(name), announce: (text) => stage.announce(text) };
  new Examples(props.gallery, actions).listen();
  // With reduced motion no races play in turn, but a page that can only replay shows its first one at least.
  if (props.opens_tour) tools.tour.begin();
  else if (props.only_replay && REDUCED_MOTION.matches && props.gallery.length)
    stage.gallery.play(props.gallery[0].name, { automatic: true });
  // The other recordings, such as the tour's, are played only on request.
  else playRecordings(stage, props.gallery.slice(0, props.num_offered), tools.tour.available);
}
