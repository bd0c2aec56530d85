// The entry point of the page's scripts. It runs before Gradio's own, and defines the page's one global for Gradio's hooks.
import { Attract } from "./stage/attract.js";
import { Examples } from "./stage/examples.js";
import {
  limitUploads,
  redirectToasts,
  limitLanes,
  markDefaultLanes,
  pressRace,
  showLanes,
  silenceClock,
  toggleSettings,
} from "./lib/gradio.js";
import { bindKeys } from "./stage/keys.js";
import { learnMethods } from "./lib/lanes.js";
import { REDUCED_MOTION } from "./lib/motion.js";
import { Stage } from "./stage/stage.js";
import { startAddressUpdates, dropRace, holdsRace, updateAddress, unpackRace } from "./lib/share.js";
import { showStatus } from "./stage/status.js";
import { Tools } from "./stage_tools.js";

// Whether the address asks for a race to be started immediately.
function asksForRace() {
  return new URLSearchParams(location.search).get("autorun") === "1";
}

// Opens the race that the address contains, if it contains one.
async function openLinked(stage) {
  if (!holdsRace(location.hash)) return;
  const file = await unpackRace(location.hash);
  if (file) stage.gallery.open(file);
  else stage.complain("The race in this link is damaged; ask for a new link.");
}

// Plays recorded races until the visitor acts.
function offerRecording(stage, cards) {
  if (asksForRace() || holdsRace(location.hash) || stage.node.dataset.mode !== "idle") return;
  if (!REDUCED_MOTION.matches) new Attract(stage, cards).play();
  else if (cards.length) stage.say("Press “Recorded races” to watch one, or ask a question.");
}

// Called once Gradio has put the stage's HTML into the page. `props` come from the server; `watch` reports changes.
function drawStage({ element, props, server, watch }) {
  learnMethods(props.methods);
  const lanes = props.lanes.map((lane) => ({ lane }));
  const node = element.querySelector(".stage");
  const stage = new Stage(node, { lanes, cards: props.gallery, server, takesFiles: props.takes_files });
  bindKeys(stage, new Tools(stage));
  node.addEventListener("begun", ({ detail }) => detail.live && dropRace());
  markDefaultLanes(props.lanes);
  watch("value", () => props.value && stage.feed.take(JSON.parse(props.value)));
  openLinked(stage);
  // A link may be pasted into this page's address. When the page changes the address itself, this event is not sent.
  addEventListener("hashchange", () => openLinked(stage));
  const actions = { play: (name) => stage.gallery.play(name), say: (text) => stage.say(text) };
  new Examples(props.gallery, actions).listen();
  if (props.only_replay && REDUCED_MOTION.matches && props.gallery.length)
    stage.gallery.play(props.gallery[0].name, true);
  else offerRecording(stage, props.gallery);
}

function drawStatus({ element, props, watch }) {
  const line = element.querySelector(".status");
  watch("value", () => showStatus(line, props.value));
}

// Called once the server has read the address. `failed` is a note about what is wrong with the address, or empty.
function followLink(failed) {
  if (!failed && asksForRace()) pressRace();
  startAddressUpdates();
}

silenceClock();
redirectToasts();
limitUploads();
Object.assign(window, {
  specrace: Object.freeze({
    drawStage,
    drawStatus,
    followLink,
    updateAddress,
    limitLanes,
    showLanes,
    toggleSettings,
  }),
});
