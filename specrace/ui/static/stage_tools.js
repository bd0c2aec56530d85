// The tools around the stage (step inspector, plots, explain mode, logs and others), and how they are opened. Stage
// view shows the race alone, for a projector; bench view shows the whole page.
import { CONSTANTS } from "./lib/constants.js";
import { Audience } from "./audience/audience.js";
import { Explainer } from "./explanations/explain.js";
import { describeClocks } from "./lib/format.js";
import { Film } from "./film/film.js";
import { History } from "./stage/history.js";
import { Inspector } from "./inspector/inspector.js";
import { Logs } from "./logs/logs.js";
import { REDUCED_MOTION } from "./lib/motion.js";
import { Plots } from "./plots/plots.js";
import { Proof } from "./explanations/proof.js";
import { Questions } from "./questions/questions.js";
import { listen } from "./lib/stage_events.js";
import { ShareDialog } from "./sharing/share_dialog.js";
import { SlowMotion } from "./explanations/slow_motion.js";
import { Tour } from "./explanations/tour.js";

// How long the result stays before the proof covers it.
const PROOF_DELAY_MS = 2500;

export class Tools {
  constructor(stage) {
    const { node, player, passages } = stage;
    this.inspector = new Inspector(node, player);
    this.explainer = new Explainer(node);
    this.inspector.node.dataset.open = "true";
    const announce = (text) => stage.announce(text);
    this.slowMotion = new SlowMotion(node, announce);
    this.proof = new Proof(node, announce);
    this.share = new ShareDialog(stage);
    this.film = new Film(node, { panes: () => stage.panes, announce });
    this.tour = new Tour(stage, this);
    this.audience = new Audience(stage, CONSTANTS.network_origin);
    this.logs = new Logs(node, { pause: () => stage.pause(), openRace: (file) => stage.gallery.open(file) });
    this.questions = new Questions(node, {
      pause: () => stage.pause(),
      openReel: (reel) => stage.openReel(reel, false),
    });
    listen(node, "problem", (sentence) => this.questions.fail(sentence));
    this.history = new History(node, stage.find(".gallery .session"), (reel) => {
      stage.gallery.dialog.close();
      stage.playReel(reel);
    });
    stage.gallery.openLogs = (files) => this.logs.openFiles(files);
    stage.find(".panes").before(this.explainer.node);
    stage.find(".passages").before(this.inspector.node, new Plots(node).node);
    listen(node, "opened", (lanes) => (stage.find(".fairness").textContent = describeClocks(lanes)));
    listen(node, "moved", (frame) => this.explainer.explain(frame, stage.panes[frame.lane].method));
    listen(node, "begun", ({ live }) => this.explainer.begin(live));
    listen(node, "result", (rows) => this.explainer.conclude(rows));
    listen(node, "figures", (rows) => this.explainer.conclude(rows));
    // In stage view the proof opens by itself after the finish.
    listen(node, "finish", (reel) => {
      if (document.body.dataset.view === "stage") setTimeout(() => this.showProof(stage, reel), PROOF_DELAY_MS);
    });
    // For the step under the cursor, the passages show where its words were copied from.
    listen(node, "cursor", ({ lane, step }) => {
      if (!player.playing) passages.pointAtRun(stage.panes[lane]?.body.querySelector(`.run[data-step="${step}"]`));
    });
    passages.watch(stage.find(".panes"));
    this.panes = stage.find(".panes");
    new ResizeObserver(() => this.placeOverlay()).observe(this.panes);
  }

  // Tells the style sheet where the panes are, which the inspector covers in stage view.
  placeOverlay() {
    const { top, bottom } = this.panes.getBoundingClientRect();
    this.inspector.node.style.setProperty("--panes-top", `${top}px`);
    this.inspector.node.style.setProperty("--panes-bottom", `${innerHeight - bottom}px`);
  }

  // Closes the inspector where it covers the panes. Returns whether it did.
  closeOverlay() {
    const covers = document.body.dataset.view === "stage" && this.inspector.node.dataset.overlay === "true";
    if (covers) this.toggleInspector();
    return covers;
  }

  showProof(stage, reel) {
    if (stage.reel === reel && stage.node.dataset.mode === "result") this.proof.flash(reel);
  }

  // In stage view the inspector covers the panes and is closed at first; in bench view it is open at first.
  toggleInspector() {
    const { node } = this.inspector;
    const overlay = document.body.dataset.view === "stage";
    const kind = overlay ? "overlay" : "open";
    // An open inspector that is out of sight is scrolled into view, not closed.
    const opens = node.dataset[kind] !== "true" || (!overlay && !this.inspector.visible);
    if (overlay) this.placeOverlay();
    node.dataset[kind] = String(opens);
    document.getElementById("inspector-toggle")?.setAttribute("aria-expanded", String(opens));
    if (opens && !overlay)
      node.scrollIntoView({ block: "start", behavior: REDUCED_MOTION.matches ? "auto" : "smooth" });
  }

  toggleExplain() {
    const on = this.explainer.toggle(this.explainer.node.hidden);
    document.getElementById("explain-toggle")?.setAttribute("aria-pressed", String(on));
  }
}
