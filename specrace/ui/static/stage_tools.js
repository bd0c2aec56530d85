// The tools around the stage (step inspector, plots, explain mode, logs and others), and how they are opened.
import { CONSTANTS } from "./lib/constants.js";
import { Audience } from "./audience/audience.js";
import { Explainer } from "./shows/explain.js";
import { Inspector } from "./inspector/inspector.js";
import { Logs } from "./logs/logs.js";
import { REDUCED_MOTION } from "./lib/motion.js";
import { Plots } from "./plots/plots.js";
import { Proof } from "./shows/proof.js";
import { listen } from "./lib/stage_events.js";
import { SlowMotion } from "./shows/slow.js";
import { Tour } from "./shows/tour.js";

const FINISH_MS = 2500;

export class Tools {
  constructor(stage) {
    const { node, player, passages } = stage;
    this.inspector = new Inspector(node, player);
    this.explainer = new Explainer(node);
    this.inspector.node.dataset.open = "true";
    const say = (text) => stage.say(text);
    this.slow = new SlowMotion(node, say);
    this.proof = new Proof(node, say);
    this.tour = new Tour(stage, this);
    this.audience = new Audience(stage, CONSTANTS.network_origin);
    this.logs = new Logs(node, { pause: () => stage.pause(), openRace: (file) => stage.gallery.open(file) });
    stage.gallery.openLogs = (files) => this.logs.take(files);
    stage.find(".panes").before(this.explainer.node);
    stage.find(".passages").before(this.inspector.node, new Plots(node).node);
    listen(node, "moved", (frame) => this.explainer.take(frame, stage.panes[frame.lane].method));
    listen(node, "begun", ({ live }) => this.explainer.begin(live));
    listen(node, "result", (rows) => this.explainer.conclude(rows));
    listen(node, "figures", (rows) => this.explainer.conclude(rows));
    // In stage view the proof follows the finish.
    listen(node, "finish", (reel) => {
      if (document.body.dataset.view === "stage") setTimeout(() => this.prove(stage, reel), FINISH_MS);
    });
    // The step under the cursor shows where its words came from.
    listen(node, "cursor", ({ lane, step }) => {
      if (!player.playing) passages.pointAtRun(stage.panes[lane]?.body.querySelector(`.run[data-step="${step}"]`));
    });
    passages.watch(stage.find(".panes"));
  }

  prove(stage, reel) {
    if (stage.reel === reel && stage.node.dataset.mode === "result") this.proof.flash(reel);
  }

  // In stage view the inspector covers the panes and is closed at first; in bench view it is open at first.
  toggleInspector() {
    const { node } = this.inspector;
    const overlay = document.body.dataset.view === "stage";
    const kind = overlay ? "overlay" : "open";
    // An inspector that is open but out of sight is scrolled to, not closed.
    const shows = node.dataset[kind] !== "true" || (!overlay && !this.inspector.visible);
    node.dataset[kind] = String(shows);
    document.getElementById("inspector-toggle")?.setAttribute("aria-expanded", String(shows));
    if (shows && !overlay)
      node.scrollIntoView({ block: "start", behavior: REDUCED_MOTION.matches ? "auto" : "smooth" });
  }

  toggleExplain() {
    const on = this.explainer.toggle(this.explainer.node.hidden);
    document.getElementById("explain-toggle")?.setAttribute("aria-pressed", String(on));
  }
}
