// The dialog "Your logs": takes a log of requests from the visitor, has the server score it, and shows the scores.
/** @import { LogChoices, LogLimits, LogProgress } from "../lib/wire.d.ts" */
import { Advice, Costs, describeSearch } from "./advice.js";
import { button, make } from "../lib/dom.js";
import { countOf } from "../lib/format.js";
import { withMethod } from "../lib/lanes.js";
import {
  adviseLog,
  COLUMNS,
  explainColumns,
  fetchChoices,
  isRecordedRace,
  joinLogs,
  scoreLog,
} from "../lib/scoring.js";
import { Scores } from "./scores.js";

const PRIVACY = "Logs and documents never leave the machine that serves this page. A log is deleted once it is scored.";
const DROP = "Drop a log of requests: chat transcripts, batch files, sessions of coding agents, tables";
const STOPPED = "Stopped.";
const STEPS =
  "Drop a log, see which settings pay on it, copy them into your engine. Each request's output is followed token by token, without a model: how much of it would each lane have drafted?";

/** @param {Omit<LogLimits, "lanes">} limits */
export function describeLimits({ bytes, requests, seconds }) {
  return `At most ${bytes / 1e6} MB, ${requests.toLocaleString("en")} requests and ${seconds} seconds. On the command line, python -m specrace score takes logs of any size, and any tokenizer.`;
}

/** @param {LogProgress} progress */
export function describeProgress({ requests, share }) {
  return `${countOf(requests, "request")}${share ? `, ${Math.min(99, Math.round(100 * share))} % of the file` : ""}`;
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
    this.statusLine = make("p", "logs-line");
    this.progress = make("p", "logs-progress");
    this.stop = button("Stop", "Stop scoring", () => this.stopTask());
    this.again = button("Score again", "Score the same log with these choices", () => this.run());
    const state = make("div", "logs-state");
    state.append(this.statusLine, this.progress, this.stop, this.again);
    const result = make("section", "logs-result");
    result.hidden = true;
    this.scores = new Scores(result);
    const body = make("div", "logs-body");
    this.hint = make("div", "logs-hint");
    this.advice = new Advice((text) => this.setStatus(text));
    body.append(make("p", "logs-intro", STEPS), this.drawForm(), state, this.advice.node, result, this.hint);
    this.node.append(head, body);
    host.append(this.node);
    this.node.addEventListener("close", () => {
      this.stopTask();
      // The page has one live region at a time: this dialog's while it is open, else the stage's.
      this.statusLine.removeAttribute("role");
    });
    this.showWorking(false);
    this.listen();
  }

  drawForm() {
    this.file = make("input");
    Object.assign(this.file, { type: "file", multiple: true, hidden: true });
    this.file.setAttribute("aria-label", "A log of requests");
    this.file.addEventListener("change", () => this.openChosen());
    this.limitsNote = make("small");
    const drop = make("div", "logs-drop");
    drop.append(
      make("p", "", DROP),
      button("Choose a file", "Choose a log", () => this.file.click()),
      this.limitsNote,
    );
    this.tokenizer = make("select");
    this.columns = make("input");
    Object.assign(this.columns, { type: "text", placeholder: "prompt=article+question,output=answer" });
    this.lanes = make("fieldset");
    const choices = make("div", "logs-choices");
    this.costs = new Costs(() => this.log && this.run({ scoring: this.scoresDue }));
    choices.append(this.costs.node, labelled("Tokenizer", this.tokenizer), labelled(COLUMNS, this.columns), this.lanes);
    const node = make("section", "logs-form");
    node.append(drop, this.file, choices);
    return node;
  }

  // Handles files dropped on the dialog: they are logs, whatever their names.
  listen() {
    const handleDrag = (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      event.stopPropagation();
      this.node.dataset.drop = String(event.type === "dragover");
      if (event.type === "drop") this.openFiles([...event.dataTransfer.files]);
    };
    for (const name of ["dragover", "drop"]) this.node.addEventListener(name, handleDrag);
    this.node.addEventListener("dragleave", () => delete this.node.dataset.drop);
  }

  async open() {
    this.pause();
    if (!this.node.open) this.node.showModal();
    this.statusLine.setAttribute("role", "status");
    try {
      this.showChoices(await fetchChoices());
    } catch (error) {
      this.setStatus(error.message, "bad");
    }
  }

  /**
   * Shows the server's choices. What the visitor chose before stays chosen.
   * @param {LogChoices} choices
   */
  showChoices({ tokenizers, lanes, engines, chosen, limits, formats, advice }) {
    const before = this.serverLimits && this.choice();
    this.serverLimits = limits;
    this.costs.fill(advice);
    this.limitsNote.textContent = describeLimits(limits);
    const items = make("ul");
    for (const format of formats) items.append(make("li", "", format));
    this.hint.replaceChildren(make("p", "", "Formats, recognised automatically:"), items);
    const names = [
      ["", `automatic: ${tokenizers[0]} for text, none for token ids`],
      ...tokenizers.map((tokenizer) => [tokenizer, tokenizer]),
    ];
    this.tokenizer.replaceChildren(...names.map(([value, text]) => new Option(text, value)));
    this.tokenizer.value = tokenizers.includes(before?.tokenizer) ? before.tokenizer : "";
    const ticked = before ? before.lanes.split(",") : chosen;
    const boxes = (list) => list.map((lane) => this.drawCheckbox(lane, ticked.includes(lane)));
    const more = make("details");
    const inside = make("div", "logs-engines");
    inside.append(...boxes(engines));
    more.append(make("summary", "", "Drafters of engines"), inside);
    more.open = engines.some((lane) => ticked.includes(lane));
    this.lanes.replaceChildren(make("legend", "", "Lanes"), ...boxes(lanes), more);
  }

  drawCheckbox(lane, checked) {
    const box = make("input");
    Object.assign(box, { type: "checkbox", value: lane, checked });
    box.addEventListener("change", () => {
      if (this.ticked().length <= this.serverLimits.lanes) return;
      box.checked = false;
      this.setStatus(`At most ${this.serverLimits.lanes} lanes fit; untick one first.`, "bad");
    });
    const node = make("label");
    node.append(box, withMethod({ lane }).title ?? lane);
    return node;
  }

  ticked() {
    return [...this.lanes.querySelectorAll("input")].filter((box) => box.checked).map((box) => box.value);
  }

  choice() {
    return { tokenizer: this.tokenizer.value, lanes: this.ticked().join(","), columns: this.columns.value };
  }

  openChosen() {
    const files = [...this.file.files];
    this.file.value = "";
    return this.openFiles(files);
  }

  // Scores files as one log. If the first one is a recorded race, opens that race instead.
  async openFiles(files) {
    delete this.node.dataset.drop;
    if (!files.length) return;
    const recorded = await isRecordedRace(files[0]).catch(() => undefined);
    if (recorded === undefined) return this.setStatus(`${files[0].name} cannot be read; give files.`, "bad");
    if (recorded) {
      this.node.close();
      return this.openRace(files[0]);
    }
    if (!this.node.open || !this.serverLimits) await this.open();
    if (!this.serverLimits) return;
    const log = await joinLogs(files, this.serverLimits.bytes);
    if (log.error) return this.setStatus(log.error, "bad");
    this.log = log;
    // The recommendation and figures of another log must not be mistaken for this log's.
    this.advice.node.hidden = this.scores.node.hidden = true;
    return this.run();
  }

  // Gets the recommendation and then, if `scoring`, the figures. Old ones stay until new ones arrive. Only one task
  // runs at a time. If a new choice of costs replaces this one, `scoresDue` says whether the figures are still missing.
  async run({ scoring = true } = {}) {
    this.stopTask();
    this.scoresDue = scoring;
    const { name } = this.log;
    const task = (this.task = new AbortController());
    this.showWorking(true);
    try {
      await this.advise(name, task);
      if (this.task === task && scoring) await this.score(name, task);
    } catch (error) {
      if (this.task === task) this.refuse(error.message);
    }
    if (this.task !== task) return;
    this.scoresDue = false;
    this.showWorking(false);
  }

  // Gets and shows the recommendation. If that fails, the figures are requested all the same.
  async advise(name, task) {
    this.setStatus(`Trying settings on ${name} …`);
    this.advice.node.inert = true;
    const choice = { ...this.choice(), ...this.costs.chosen() };
    try {
      const advice = await adviseLog(this.log, choice, this.onProgress(task, describeSearch), task.signal);
      if (this.task !== task) return;
      this.advice.show(advice, name);
      this.progress.textContent = "";
      this.setStatus(`The recommendation for ${name} is ready.`);
    } catch (error) {
      if (this.task === task) this.advice.showRefusal(error.message);
    } finally {
      if (!this.task || this.task === task) this.advice.node.inert = false;
    }
  }

  async score(name, task) {
    if (this.advice.node.hidden) this.setStatus(`Scoring ${name} …`);
    const scores = await scoreLog(this.log, this.choice(), this.onProgress(task, describeProgress), task.signal);
    if (this.task !== task) return;
    this.setStatus(`${name} is scored.`);
    this.scores.show(scores, name);
  }

  // Says why there are no figures. If the recommendation failed for the same reason, that is said only once.
  refuse(reason) {
    const { sentence, columns } = explainColumns(reason);
    this.setStatus(sentence, "bad");
    if (this.advice.refusal === reason) this.advice.node.hidden = true;
    if (!columns || this.columns.value) return;
    this.columns.value = columns;
    this.columns.focus();
  }

  onProgress(task, describe) {
    return (progress) => {
      if (this.task === task) this.progress.textContent = describe(progress);
    };
  }

  stopTask() {
    if (!this.task) return;
    this.task.abort();
    this.setStatus(STOPPED);
    this.showWorking(false);
  }

  showWorking(working) {
    if (!working) this.task = undefined;
    this.stop.hidden = !working;
    this.progress.textContent = "";
    this.again.hidden = working || !this.log;
    this.node.dataset.going = String(working);
  }

  setStatus(text, kind = "") {
    this.statusLine.textContent = text;
    this.statusLine.dataset.kind = kind;
  }
}
