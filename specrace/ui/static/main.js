// The entry point of the page's scripts. It runs before Gradio's own, and defines the page's one global for Gradio's
// hooks.
import { asksForRace, drawStage } from "./draw_stage.js";
import {
  announceRequest,
  documentsChanged,
  limitUploads,
  redirectToasts,
  limitLanes,
  nextQuestion,
  takeRecommended,
  raceRecommended,
  pressRace,
  showLanes,
  ignoreLoadingTimer,
  restoreDocuments,
  toggleDocuments,
  toggleSettings,
} from "./lib/gradio.js";
import { startAddressUpdates, updateAddress } from "./lib/share.js";
import { showStatus } from "./stage/status.js";

function drawStatus({ element, props, watch }) {
  const line = element.querySelector(".status");
  watch("value", () => showStatus(line, props.value));
}

// Called once the server has read the address. `problem` says what is wrong with the address, or is empty.
function followLink(problem) {
  restoreDocuments();
  if (!problem && asksForRace()) pressRace();
  startAddressUpdates();
}

ignoreLoadingTimer();
redirectToasts();
limitUploads();
Object.assign(window, {
  specrace: Object.freeze({
    announceRequest,
    drawStage,
    drawStatus,
    followLink,
    updateAddress,
    limitLanes,
    nextQuestion,
    takeRecommended,
    raceRecommended,
    showLanes,
    documentsChanged,
    toggleDocuments,
    toggleSettings,
  }),
});
