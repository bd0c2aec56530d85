// Where the page's scripts begin. It runs before Gradio's own, and gives Gradio's hooks the page's one global name.
import { Attract } from "./attract.js";
import { Examples } from "./examples.js";
import {
  fitUploads,
  hearToasts,
  limitLanes,
  markDefaultLanes,
  pressRace,
  showLanes,
  silenceClock,
  toggleSettings,
} from "./gradio.js";
import { bindKeys } from "./keys.js";
import { learnMethods } from "./lanes.js";
import { CALM } from "./motion.js";
import { Stage } from "./stage.js";
import { beginAddress, dropRace, holdsRace, keepAddress, unpackRace } from "./share.js";
import { showStatus } from "./status.js";
import { Tools } from "./webmcp.js";

// The address asks for a race at once.
function isInvited() {
  return new URLSearchParams(location.search).get("autorun") === "1";
}

// The race that the address holds.
async function openLinked(stage) {
  if (!holdsRace(location.hash)) return;
  const file = await unpackRace(location.hash);
  if (file) stage.gallery.open(file);
  else stage.complain("The race in this link is damaged; ask for a new link.");
}

// Until the visitor acts, a recorded race plays.
function offerRecording(stage, cards) {
  if (isInvited() || holdsRace(location.hash) || stage.node.dataset.mode !== "idle") return;
  if (!CALM.matches) new Attract(stage, cards).play();
  else if (cards.length) stage.say("Press “Recorded races” to watch one, or ask a question.");
}

// When Gradio has put the stage's HTML into the page: `props` are what the server gave it, and `watch` tells of changes.
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
  // A link that is pasted into this page. What the page does to its own address, it does without this event.
  addEventListener("hashchange", () => openLinked(stage));
  const shown = { play: (name) => stage.gallery.play(name), say: (words) => stage.say(words) };
  new Examples(props.gallery, shown).listen();
  if (props.only_replay && CALM.matches && props.gallery.length) stage.gallery.play(props.gallery[0].name, true);
  else offerRecording(stage, props.gallery);
}

function drawStatus({ element, props, watch }) {
  const line = element.querySelector(".status");
  watch("value", () => showStatus(line, props.value));
}

// After the address was read: what was wrong with it, if something was.
function followLink(failed) {
  if (!failed && isInvited()) pressRace();
  beginAddress();
}

silenceClock();
hearToasts();
fitUploads();
window.specrace = Object.freeze({
  drawStage,
  drawStatus,
  followLink,
  keepAddress,
  limitLanes,
  showLanes,
  toggleSettings,
});
