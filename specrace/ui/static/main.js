// Where the page's scripts begin. It runs before Gradio's own, and gives Gradio's hooks the page's one global name.
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
import { beginAddress, keepAddress } from "./share.js";
import { Stage } from "./stage.js";
import { readStatus, showStatus } from "./status.js";
import { Tools } from "./tools.js";

const LOADING_MS = 700;

// The address asks for a race at once.
function isInvited() {
  return new URLSearchParams(location.search).get("autorun") === "1";
}

// A visitor who comes while the model loads, or where there is none, sees a recorded race at once.
function offerRecording(stage, { gallery: [card], only_replay: only }) {
  if (stage.node.dataset.mode !== "idle" || readStatus() === "ready" || isInvited() || stage.gallery.asked || !card)
    return;
  if (only || !CALM.matches) stage.gallery.play(card.name, true);
  else stage.say("The model is loading. Press “Recorded races” to watch one meanwhile.");
}

// When Gradio has put the stage's HTML into the page: `props` are what the server gave it, and `watch` tells of changes.
function drawStage({ element, props, server, watch }) {
  learnMethods(props.methods);
  const lanes = props.lanes.map((lane) => ({ lane }));
  const node = element.querySelector(".stage");
  const stage = new Stage(node, { lanes, cards: props.gallery, server });
  bindKeys(stage, new Tools(stage));
  markDefaultLanes(props.lanes);
  watch("value", () => props.value && stage.frames.take(JSON.parse(props.value)));
  setTimeout(offerRecording, props.only_replay ? 0 : LOADING_MS, stage, props);
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
