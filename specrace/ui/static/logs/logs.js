// The dialog "Your logs": receives a log of requests, lets the server score it without a model, and shows the scores.
/** @import { LogChoices, LogLimits, LogProgress } from "../lib/wire.d.ts" */
import { Advice, Costs, describeRound } from "./advice.js";
import { button, make } from "../lib/dom.js";
import { describeLane } from "../lib/lanes.js";
import { adviseLog, askChoices, isRecordedRace, joinLogs, scoreLog } from "../lib/scoring.js";
import { Scores } from "./scores.js";

const PRIVACY = "Logs and documents never leave the machine that serves this page. A log is deleted once it is scored.";
const DROP = "Drop a log of requests: chat transcripts, batch files, sessions of coding agents, tables";
const STOPPED = "Stopped.";
const STEPS = "Drop a log, see which settings pay on it, copy them into your engine.";

/** @param {Omit<LogLimits, "lanes">} limits */
export function tellLimits({ bytes, requests, seconds }) {
  return `At most ${bytes / 1e6} MB, ${requests.toLocaleString("en")} requests and ${seconds} seconds. On the command line, python -m specrace score takes logs of any size, and any tokenizer.`;
}

/** @param {LogProgress} progress */
export function tellProgress({ requests, share }) {
  return `${requests} requests${share ? `, ${Math.min(99, Math.round(100 * share))} % of the file` : ""}`;
}

function labelled(text, field) {
  const node = make("label", "", text);
  node.append(field);
  return node;
}

export class Logs {
  // `pause` is called when the dialog covers the page; `openRace` opens a recorded race that was dropped as a log.
  constructor(host, { pause, openRace }) {
    this.pause = pause;
    this.openRace = openRace;
    this.node = make("dialog", "logs");
    this.node.setAttribute("aria-label", "Your logs");
    const head = make("header");
    head.append(
      make("h2", "", "Your logs"),
      make("p", "", PRIVACY),
      button("Close", "Close (Esc)", () => this.node.close()),
    );
    this.line = make("p", "logs-line");
    this.progress = make("p", "logs-progress");
    this.stop = button("Stop", "Stop scoring", () => this.leave());
    this.again = button("Score again", "Score the same log with these choices", () => this.work());
    const state = make("div", "logs-state");
    state.append(this.line, this.progress, this.stop, this.again);
    const result = make("section", "logs-result");
    result.hidden = true;
    this.scores = new Scores(result);
    const body = make("div", "logs-body");
    this.hint = make("p", "logs-hint");
    this.advice = new Advice((text) => this.say(text));
    body.append(this.form(), state, this.advice.node, result, this.hint);
    this.node.append(head, body);
    host.append(this.node);
    this.node.addEventListener("close", () => {
      this.leave();
      // The page has one live region at a time: an open dialog silences the stage's.
      this.line.removeAttribute("role");
    });
    this.showWorking(false);
    this.listen();
  }

  form() {
    this.file = make("input");
    Object.assign(this.file, { type: "file", multiple: true, hidden: true });
    this.file.setAttribute("aria-label", "A log of requests");
    this.file.addEventListener("change", () => this.takeChosen());
    this.limits = make("small");
    const drop = make("div", "logs-drop");
    drop.append(
      make("p", "", DROP),
      button("Choose a file", "Choose a log", () => this.file.click()),
      this.limits,
    );
    this.tokenizer = make("select");
    this.columns = make("input");
    Object.assign(this.columns, { type: "text", placeholder: "prompt=question,output=answer" });
    this.lanes = make("fieldset");
    const choices = make("div", "logs-choices");
    this.costs = new Costs(() => this.log && this.work({ scoring: this.scoresDue }));
    choices.append(
      this.costs.node,
      labelled("Tokenizer", this.tokenizer),
      labelled("Columns of a table", this.columns),
      this.lanes,
    );
    const node = make("section", "logs-form");
    node.append(drop, this.file, choices);
    return node;
  }

  // Handles files dropped on the dialog: they are logs, whatever their names.
  listen() {
    const takeDrag = (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      event.stopPropagation();
      this.node.dataset.drop = String(event.type === "dragover");
      if (event.type === "drop") this.take([...event.dataTransfer.files]);
    };
    for (const name of ["dragover", "drop"]) this.node.addEventListener(name, takeDrag);
    this.node.addEventListener("dragleave", () => delete this.node.dataset.drop);
  }

  async open() {
    this.pause();
    if (!this.node.open) this.node.showModal();
    this.line.setAttribute("role", "status");
    try {
      this.offer(await askChoices());
    } catch (error) {
      this.say(error.message, "bad");
    }
  }

  /**
   * Shows the server's choices. What the visitor chose before stays chosen.
   * @param {LogChoices} choices
   */
  offer({ tokenizers, lanes, engines, chosen, limits, formats, advice }) {
    const before = this.known && this.choice();
    this.known = limits;
    this.costs.offer(advice);
    this.limits.textContent = tellLimits(limits);
    this.hint.textContent = `${STEPS} Each request's output is followed token by token, without a model: how much of it would each lane have drafted? Formats are recognised automatically: ${formats.join("; ")}.`;
    const names = [
      ["", `automatic: ${tokenizers[0]} for text, none for token ids`],
      ...tokenizers.map((tokenizer) => [tokenizer, tokenizer]),
    ];
    this.tokenizer.replaceChildren(...names.map(([value, text]) => new Option(text, value)));
    this.tokenizer.value = tokenizers.includes(before?.tokenizer) ? before.tokenizer : "";
    const ticked = before ? before.lanes.split(",") : chosen;
    const boxes = (list) => list.map((lane) => this.box(lane, ticked.includes(lane)));
    const more = make("details");
    const inside = make("div", "logs-engines");
    inside.append(...boxes(engines));
    more.append(make("summary", "", "Drafters of engines"), inside);
    more.open = engines.some((lane) => ticked.includes(lane));
    this.lanes.replaceChildren(make("legend", "", "Lanes"), ...boxes(lanes), more);
  }

  box(lane, checked) {
    const box = make("input");
    Object.assign(box, { type: "checkbox", value: lane, checked });
    box.addEventListener("change", () => {
      if (this.ticked().length <= this.known.lanes) return;
      box.checked = false;
      this.say(`At most ${this.known.lanes} lanes fit; untick one first.`, "bad");
    });
    const node = make("label");
    node.append(box, describeLane({ lane }).title ?? lane);
    return node;
  }

  ticked() {
    return [...this.lanes.querySelectorAll("input")].filter((box) => box.checked).map((box) => box.value);
  }

  choice() {
    return { tokenizer: this.tokenizer.value, lanes: this.ticked().join(","), columns: this.columns.value };
  }

  takeChosen() {
    const files = [...this.file.files];
    this.file.value = "";
    return this.take(files);
  }

  // Scores files as one log, or opens a recorded race.
  async take(files) {
    delete this.node.dataset.drop;
    if (!files.length) return;
    const recorded = await isRecordedRace(files[0]).catch(() => undefined);
    if (recorded === undefined) return this.say(`${files[0].name} cannot be read; give files.`, "bad");
    if (recorded) {
      this.node.close();
      return this.openRace(files[0]);
    }
    if (!this.node.open || !this.known) await this.open();
    if (!this.known) return;
    const log = await joinLogs(files, this.known.bytes);
    if (log.error) return this.say(log.error, "bad");
    this.log = log;
    // The recommendation and figures of another log must not be mistaken for this log's.
    this.advice.node.hidden = this.scores.node.hidden = true;
    return this.work();
  }

  // Gets the recommendation, then, if `scoring`, the figures. Old ones stay until new ones arrive. `scoresDue` is true from
  // the request for figures until they or an error have arrived. A new choice of costs changes no figures, but it stops
  // this request, so it requests the figures again if they are due.
  async work({ scoring = true } = {}) {
    this.leave();
    this.scoresDue = scoring;
    const { name } = this.log;
    const task = (this.task = new AbortController());
    this.showWorking(true);
    try {
      await this.advise(name, task);
      if (this.task === task && scoring) await this.score(name, task);
    } catch (error) {
      if (this.task === task) this.say(error.message, "bad");
    }
    if (this.task !== task) return;
    this.scoresDue = false;
    this.showWorking(false);
  }

  // Gets and shows the recommendation. If that fails, the figures are requested all the same.
  async advise(name, task) {
    this.say(`Trying settings on ${name} …`);
    this.advice.node.inert = true;
    const choice = { ...this.choice(), ...this.costs.chosen() };
    try {
      const advice = await adviseLog(this.log, choice, this.onProgress(task, describeRound), task.signal);
      if (this.task !== task) return;
      this.advice.show(advice, name);
      this.progress.textContent = "";
      this.say(`The recommendation for ${name} is ready.`);
    } catch (error) {
      if (this.task === task) this.advice.refuse(error.message);
    } finally {
      if (!this.task || this.task === task) this.advice.node.inert = false;
    }
  }

  async score(name, task) {
    if (this.advice.node.hidden) this.say(`Scoring ${name} …`);
    const scores = await scoreLog(this.log, this.choice(), this.onProgress(task, tellProgress), task.signal);
    if (this.task !== task) return;
    this.say(`${name} is scored.`);
    this.scores.show(scores, name);
  }

  onProgress(task, describe) {
    return (progress) => {
      if (this.task === task) this.progress.textContent = describe(progress);
    };
  }

  leave() {
    if (!this.task) return;
    this.task.abort();
    this.say(STOPPED);
    this.showWorking(false);
  }

  showWorking(working) {
    if (!working) this.task = undefined;
    this.stop.hidden = !working;
    this.progress.textContent = "";
    this.again.hidden = working || !this.log;
    this.node.dataset.going = String(working);
  }

  say(text, kind = "") {
    this.line.textContent = text;
    this.line.dataset.kind = kind;
  }
}
