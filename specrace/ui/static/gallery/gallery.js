// Recorded races: the cards of the bundled ones, and files that a visitor opens or drops. The server checks both.
/** @import { RaceCard, RecordedAnswer, Reel } from "../lib/wire.d.ts" */
import { CONSTANTS, ROUTES } from "../lib/constants.js";
import { make } from "../lib/dom.js";
import { describeRecording, formatSeconds, formatSpeedup } from "../lib/format.js";
import { isUpload, uploadDocuments, uploadFolders } from "../lib/gradio.js";
import { isLog } from "../lib/scoring.js";

const MAX_FILE_BYTES = CONSTANTS.max_recording_bytes;
const KEEPS_NONE = "This server keeps no races for short links; ask for a link or a file with the race itself.";
const NO_ANSWER = "The server does not answer; reload the page.";

/**
 * Requests a recording.
 * @param {() => Promise<RecordedAnswer>} request
 * @returns {Promise<{ reel?: Reel, error?: string }>} the recording, or what is wrong as a sentence
 */
async function load(request) {
  try {
    const { reel, error } = await request();
    return error ? { error } : { reel: JSON.parse(reel) };
  } catch {
    return { error: NO_ANSWER };
  }
}

export class Gallery {
  /**
   * `server` checks and reads recordings; `openReel` shows a reel, `showError` a sentence; `takesFiles` is whether
   * visitors may open their own files. `openLogs`, set later, receives files that may be logs or races.
   * @param {HTMLDialogElement} dialog
   * @param {RaceCard[]} cards
   * @param {{
   *   server: { play_recorded: (name: string) => Promise<RecordedAnswer> },
   *   openReel: (reel: Reel, automatic: boolean) => void, showError: (sentence: string) => void, takesFiles?: boolean,
   * }} actions
   */
  constructor(dialog, cards, { server, openReel, showError, takesFiles = true }) {
    this.dialog = dialog;
    this.cards = cards;
    this.server = server;
    this.openReel = openReel;
    this.showError = showError;
    this.takesFiles = takesFiles;
    this.openLogs = undefined;
    this.requests = 0;
    this.file = /** @type {HTMLInputElement} */ (dialog.querySelector(".file"));
    this.file.addEventListener("change", () => this.open(this.file.files[0]));
    dialog.querySelector("[data-do=open]").addEventListener("click", () => this.file.click());
    dialog.querySelector("[data-do=close]").addEventListener("click", () => dialog.close());
    dialog.querySelector(".opener").toggleAttribute("hidden", !takesFiles);
    dialog.querySelector(":scope > .shelf").append(...cards.map((card) => this.drawCard(card)));
    document.addEventListener("dragover", (event) => this.drag(event));
    document.addEventListener("dragleave", (event) => event.relatedTarget || delete document.body.dataset.drop);
    document.addEventListener("drop", (event) => this.drop(event));
  }

  /** @param {RaceCard} card */
  drawCard(card) {
    const node = make("button", "card");
    node.type = "button";
    node.append(make("b", "", card.question ?? card.name));
    node.append(
      make(
        "span",
        "",
        `${card.fastest}: ${formatSpeedup(card.speedup)} vanilla · ${card.lanes.length} lanes · ${formatSeconds(card.ms)}`,
      ),
    );
    // The last fact is the date.
    const facts = describeRecording(card).split(" · ");
    const small = make("small");
    small.append(facts.slice(0, -1).join(", "), " ", make("time", "", facts.at(-1)));
    node.append(small);
    node.addEventListener("click", () => this.play(card.name));
    return node;
  }

  // Plays a bundled recording. The option `automatic`: the visitor did not ask for it. Returns whether it reached the
  // stage.
  play(name, options = {}) {
    return this.receive(() => this.server.play_recorded(name), options);
  }

  // Loads several recordings. `onReels` receives all of them, and the stage none.
  playAll(names, onReels) {
    const request = async () => {
      const results = await Promise.all(names.map((name) => this.server.play_recorded(name)));
      // The reels are JSON texts, and together the text of a JSON list.
      return results.find(({ error }) => error) ?? { reel: `[${results.map(({ reel }) => reel)}]` };
    };
    return this.receive(request, { onReel: onReels });
  }

  async open(file) {
    this.file.value = "";
    if (!file) return;
    if (file.size > MAX_FILE_BYTES)
      return this.showError(`${file.name} is larger than ${MAX_FILE_BYTES / 1e6} MB; open a shorter race.`);
    await this.receive(async () => {
      const url = `${ROUTES.recording}?name=${encodeURIComponent(file.name)}`;
      const response = await fetch(url, { method: "POST", body: file });
      return { [response.ok ? "reel" : "error"]: await response.text() };
    });
  }

  // Opens the race that a short link names.
  openShared(code) {
    if (!CONSTANTS.share_hours) return this.showError(KEEPS_NONE);
    return this.receive(async () => {
      const response = await fetch(`${ROUTES.shared}/${code}`);
      return { [response.ok ? "reel" : "error"]: await response.text() };
    });
  }

  // Loads a recording and passes it to `onReel`, unless another one has been requested meanwhile. Returns whether it
  // did.
  async receive(request, { automatic = false, onReel = this.openReel } = {}) {
    const number = ++this.requests;
    this.automatic = automatic;
    this.dialog.close();
    const { reel, error } = await load(request);
    if (number !== this.requests) return false;
    if (error) this.showError(error);
    else onReel(reel, automatic);
    return !error;
  }

  // Ignores a recording that has been requested and has not arrived yet.
  cancel() {
    this.requests++;
  }

  // Ignores such a recording only if the visitor did not ask for it.
  cancelAutomatic() {
    if (this.automatic) this.cancel();
  }

  // Whether a drop is for the gallery. Files dropped on the settings are documents for Gradio's upload.
  accepts(event) {
    return event.dataTransfer?.types.includes("Files") && !(this.takesFiles && isUpload(event.target));
  }

  drag(event) {
    if (!this.accepts(event)) return;
    event.preventDefault();
    if (this.takesFiles) document.body.dataset.drop = "true";
    else event.dataTransfer.dropEffect = "none";
  }

  // Tells dropped files apart by their names: those that may be logs or races go to `openLogs`. If there are none, all
  // files are uploaded as documents.
  openDropped(files) {
    const logs = [...files].filter(isLog);
    if (logs.length) return this.openLogs(logs);
    if (files.length && !uploadDocuments(files))
      this.showError(`${files[0].name} is neither a saved race nor a log; this page takes .jsonl files.`);
    return undefined;
  }

  drop(event) {
    delete document.body.dataset.drop;
    if (!this.accepts(event)) return;
    event.preventDefault();
    if (!uploadFolders(event.dataTransfer)) this.openDropped(event.dataTransfer.files);
  }
}
