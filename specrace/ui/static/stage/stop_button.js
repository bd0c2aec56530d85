// The Stop button, which can be pressed while there is a race to stop.
import { listen } from "../lib/stage_events.js";

// Enables Gradio's Stop button from the press of Race to the end of the race and of its invisible repetitions, as the
// stage's state says.
export class StopButton {
  /** @param {HTMLElement} stage the .stage element */
  constructor(stage) {
    this.stage = stage;
    // The server may read documents for a minute before it answers the press of Race.
    this.requested = false;
    listen(stage, "requested", () => this.setRequested(true));
    listen(stage, "problem", () => this.setRequested(false));
    // Changes of the mode and of `running` are no answer: a replay, or the stream of the race before, may have ended.
    new MutationObserver((changes) =>
      this.setRequested(
        this.requested && changes.every(({ attributeName }) => ["data-mode", "data-running"].includes(attributeName)),
      ),
    ).observe(stage, { attributeFilter: ["data-phase", "data-mode", "data-race", "data-running"] });
    this.update();
  }

  setRequested(requested) {
    this.requested = requested;
    this.update();
  }

  update() {
    const { phase, mode, running } = this.stage.dataset;
    const live = this.requested || running === "true" || phase === "waiting" || mode === "live";
    const stop = /** @type {HTMLButtonElement} */ (document.getElementById("stop"));
    if (!stop) return;
    stop.disabled = !live;
    stop.dataset.live = String(live);
    stop.title = mode === "result" && running === "true" ? "End the repetitions (Esc)" : "End the race (Esc)";
  }
}
