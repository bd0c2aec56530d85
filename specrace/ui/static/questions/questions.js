// The dialog "Questions": takes a list of questions, races them one after the other, and shows a table of all races.
/** @import { ListedMessage, Reel, SuggestedMessage } from "../lib/wire.d.ts" */
import { ROUTES } from "../lib/constants.js";
import { button, make, setText } from "../lib/dom.js";
import { downloadBlob } from "../lib/files.js";
import { countOf } from "../lib/format.js";
import { pressListed, pressStop } from "../lib/gradio.js";
import { findProblem, MAX_QUESTIONS, readLines, readQuestionFile, tidyQuestions } from "./question_files.js";
import { fastestSettings, makeReport } from "./question_report.js";
import { listCsv } from "./results_csv.js";
import { QuestionList } from "./question_list.js";
import { openStore } from "./question_store.js";
import { describeTotal, drawTable, LEGEND } from "./question_table.js";

const PRIVACY =
  "The list and its races stay in this browser until you clear them, at most a day. Each race waits in line like any other.";
const HINT = `One question a line, up to ${MAX_QUESTIONS}; or drop a list: .txt, .csv with a column question, .jsonl`;
const SETTINGS = "Lanes, settings and documents are those that are chosen on the page when the list begins.";
const KEEPS_NOTHING = "This browser keeps nothing: a reload loses the list.";

export class Questions {
  /**
   * `pause` is called when the dialog covers the page; `openReel` opens a race on the stage.
   * @param {Element} host
   * @param {{ pause: () => void, openReel: (reel: Reel) => void }} actions
   */
  constructor(host, { pause, openReel }) {
    this.pause = pause;
    this.openReel = openReel;
    /** @type {Promise<void> | undefined} */
    this.loading = undefined;
    this.node = make("dialog", "questions");
    this.node.setAttribute("aria-label", "Questions");
    const head = make("header");
    head.append(
      make("h2", "", "Questions"),
      make("p", "", PRIVACY),
      button("Close", "Close (Esc)", () => this.node.close()),
    );
    const body = make("div", "questions-body");
    this.total = make("h3", "questions-total");
    this.scroller = make("div", "scroller");
    Object.assign(this.scroller, { tabIndex: 0, role: "region", ariaLabel: "Figures by question and lane" });
    this.legend = make("p", "questions-legend", LEGEND);
    body.append(this.drawForm(), this.drawState(), this.total, this.scroller, this.legend);
    this.node.append(head, body);
    host.append(this.node);
    this.listen();
  }

  drawForm() {
    this.field = make("textarea");
    Object.assign(this.field, { rows: 10, placeholder: HINT, dir: "auto" });
    this.field.setAttribute("aria-label", "Questions, one a line");
    this.file = make("input");
    Object.assign(this.file, { type: "file", accept: ".txt,.csv,.tsv,.jsonl,.ndjson", hidden: true });
    this.file.setAttribute("aria-label", "A list of questions");
    this.file.addEventListener("change", () => this.addFile(this.file.files[0]));
    this.form = make("section", "questions-form");
    const buttons = make("div", "questions-buttons");
    this.race = button("Race all", "Race these questions one after the other", () => this.begin());
    this.race.classList.add("main");
    buttons.append(
      this.race,
      button("From the documents", "Draw questions from the documents in use", () => this.suggest()),
      button("Choose a file", "Choose a list of questions", () => this.file.click()),
    );
    this.form.append(this.field, this.file, buttons, make("p", "", SETTINGS));
    return this.form;
  }

  drawState() {
    this.statusLine = make("p", "questions-line");
    this.stopButton = button("Stop", "Stop the list; Resume goes on", () => this.stop());
    this.resumeButton = button("Resume", "Race the questions that are left", () => this.list.run());
    this.clearButton = button("New list", "Forget this list and its races", () => this.clear());
    this.files = make("div", "questions-buttons");
    this.files.append(
      button("CSV", "Download all figures as CSV", () =>
        this.save("csv", listCsv(this.list.questions, this.list.rows)),
      ),
      button("Report", "Download a report as one HTML file", () =>
        this.save("html", makeReport(this.list.list, this.list.rows)),
      ),
      button("Settings", "Download the settings of the fastest lane, for --settings", () => this.saveSettings()),
    );
    const node = make("div", "questions-state");
    node.append(this.statusLine, this.stopButton, this.resumeButton, this.clearButton, this.files);
    return node;
  }

  save(ending, text) {
    downloadBlob(new Blob([text], { type: `text/${ending}` }), `specrace-questions.${ending}`);
  }

  saveSettings() {
    const settings = fastestSettings(this.list.rows);
    if (!settings) return this.list.say("No lane is faster than vanilla, so there are no settings to save.", true);
    return downloadBlob(new Blob([settings], { type: "application/json" }), "specrace-settings.json");
  }

  // Files that are dropped on the dialog are lists, whatever their names.
  listen() {
    for (const name of ["dragover", "drop"])
      this.node.addEventListener(name, (/** @type {DragEvent} */ event) => {
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        event.stopPropagation();
        if (name === "drop") this.addFile(event.dataTransfer.files[0]);
      });
    // The page has one live region at a time: this dialog's while it is open, else the stage's.
    this.node.addEventListener("close", () => this.statusLine.removeAttribute("role"));
  }

  async open() {
    this.pause();
    if (!this.node.open) this.node.showModal();
    this.statusLine.setAttribute("role", "status");
    await this.load();
    this.draw();
  }

  // Opens the store, once, and restores the list that it has kept.
  load() {
    this.loading ??= openStore().then((store) => {
      const channel = { press: pressListed, answers };
      this.list = new QuestionList(store, channel, () => this.draw());
      if (!store.keeps) this.list.say(KEEPS_NOTHING);
      return this.list.restore();
    });
    return this.loading;
  }

  // Adds questions to those in the field, without repetitions.
  add(more) {
    const questions = tidyQuestions([...readLines(this.field.value), ...more]);
    this.field.value = questions.join("\n");
  }

  async addFile(file) {
    this.file.value = "";
    if (!file) return;
    await this.load();
    if (this.list.questions.length) return this.list.say("Press New list before you add a file.", true);
    try {
      this.add(await readQuestionFile(file));
      this.list.say(`${file.name} is read.`);
    } catch (error) {
      this.list.say(error.message, true);
    }
  }

  suggest() {
    pressListed(undefined);
    this.list.say("Drawing questions from the documents …");
  }

  begin() {
    const questions = tidyQuestions(readLines(this.field.value));
    const problem = findProblem(questions);
    if (problem) return this.list.say(problem, true);
    return this.list.begin(questions);
  }

  stop() {
    this.list.stop();
    pressStop();
  }

  // Puts the questions back into the field, so that they can be changed.
  async clear() {
    const { questions, racing } = this.list;
    if (racing) this.stop();
    this.field.value = questions.join("\n");
    await this.list.discard();
    this.field.focus();
  }

  // Receives a message about lists of questions.
  /** @param {ListedMessage | SuggestedMessage} message */
  receive(message) {
    if (message.kind === "listed") return this.list?.receive(message);
    const { questions, message: problem } = message;
    this.add(questions);
    const drawn = `${countOf(questions.length, "question")} ${questions.length === 1 ? "is drawn; change it" : "are drawn; change them"} as you like.`;
    return this.list?.say(problem || drawn, Boolean(problem));
  }

  // Called when the page shows a problem. A list that waits for the server's answer then cannot continue.
  fail(sentence) {
    this.list?.fail(sentence);
  }

  async openRace(index) {
    const reel = await this.list.store.loadReel(this.list.list.id, index);
    if (!reel) return this.list.say("The browser no longer has this race; press New list, and race again.", true);
    this.node.close();
    return this.openReel(reel);
  }

  draw() {
    const { list } = this;
    if (!this.node.open || !list) return;
    const filled = list.questions.length > 0;
    this.form.hidden = filled;
    setText(this.statusLine, list.message);
    this.statusLine.dataset.kind = list.bad ? "bad" : "";
    this.stopButton.hidden = !list.racing;
    this.resumeButton.hidden = list.racing || !list.due.length;
    this.clearButton.hidden = !filled;
    this.node.dataset.racing = String(list.racing);
    this.total.textContent = describeTotal(list.rows);
    this.legend.hidden = this.files.hidden = !list.raced;
    // The focus must not be lost when the table is drawn again.
    const focused = [...this.scroller.querySelectorAll("button")].indexOf(/** @type {any} */ (document.activeElement));
    const table = drawTable(list.questions, list.rows, list.current, (index) => this.openRace(index));
    this.scroller.replaceChildren(...(filled ? [table] : []));
    if (focused >= 0) this.scroller.querySelectorAll("button")[focused]?.focus();
  }
}

// Whether the server answers at all.
async function answers() {
  return fetch(ROUTES.logs).then(
    () => true,
    () => false,
  );
}
