// A list of questions that are raced one after the other, and their results so far. It can be stopped and resumed, even
// after a reload of the page or a restart of the server.
/** @import { ListedMessage } from "../lib/wire.d.ts" */
/** @import { KeptList, QuestionStore } from "./question_store.js" */
/** @import { QuestionRow } from "./question_figures.js" */
import { collectRace } from "./collect_race.js";
import { readFigures } from "./question_figures.js";

// How long the list waits before it asks again, after a limit was reached.
const RETRY_MS = 5000;
// After this many failures in a row the server or the settings are to blame, not the questions.
const MAX_FAILURES = 2;
const STOPPED = "Stopped. Resume goes on with the next question.";
const NO_SERVER = "The server does not answer; press Resume once it runs again.";

const NOT_KEPT = "The browser does not keep the races of this list: its storage may be full, or switched off.";

// The folder and name of each of the visitor's documents. Gradio names the folder after the content, so that the same
// documents have the same names on every server.
/** @param {{ path: string }[] | null} files */
export function nameDocuments(files) {
  return (files ?? []).map(({ path }) => path.split(/[\\/]/).slice(-2).join("/")).toSorted();
}

// Waits, until `signal` aborts it.
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    signal.addEventListener("abort", abort, { once: true });
  });
}

export class QuestionList {
  /**
   * `channel` reaches the server: `press(fill)` asks for a race, where `fill` gets the values of the page's fields and
   * returns those to race with; `answers()` tells whether the server answers; `collect` is `collectRace`. `onChange` is
   * called when something has changed.
   * @param {QuestionStore} store
   * @param {{
   *   press: (fill: (values: any[]) => any[]) => void, answers: () => Promise<boolean>, collect?: typeof collectRace,
   * }} channel
   * @param {() => void} onChange
   */
  constructor(store, channel, onChange) {
    this.store = store;
    this.channel = channel;
    this.onChange = onChange;
    /** @type {Promise<void> | undefined} */
    this.running = undefined;
    this.clear();
  }

  clear() {
    /** @type {KeptList} */
    this.list = {
      id: crypto.getRandomValues(new Uint32Array(4)).join("-"),
      changed: 0,
      questions: [],
      settings: null,
      documents: null,
    };
    /** @type {(QuestionRow | undefined)[]} */
    this.rows = [];
    this.message = "";
    this.bad = false;
  }

  get questions() {
    return this.list.questions;
  }

  // Whether the list is being raced; `turn` then is the controller that can abort this.
  get racing() {
    return Boolean(this.turn);
  }

  // How many questions have been raced.
  get raced() {
    return this.rows.filter((row) => row?.lanes).length;
  }

  // The indices of the questions that Resume races.
  get due() {
    return [...this.questions.keys()].filter((index) => !this.rows[index]?.lanes);
  }

  say(message, bad = false) {
    Object.assign(this, { message, bad });
    this.onChange();
  }

  // Restores the list that this browser has kept for the tab.
  async restore() {
    const kept = await this.store.load();
    if (!kept) return;
    Object.assign(this, kept);
    const [due, all] = [this.due.length, this.questions.length];
    this.say(due ? `${all - due} of ${all} questions are raced; Resume goes on.` : this.conclusion());
  }

  /** @param {string[]} questions */
  async begin(questions) {
    await this.discard();
    this.list.questions = questions;
    this.rows = questions.map(() => undefined);
    await this.save(() => this.store.saveList(this.list));
    return this.run();
  }

  // Forgets the list and its races, here and in the browser's storage.
  async discard() {
    this.stop();
    // A race that is being kept must not be kept after the list is deleted.
    await this.running;
    await this.store.deleteList(this.list.id);
    this.clear();
    this.onChange();
  }

  stop() {
    this.turn?.abort(new Error(STOPPED));
  }

  // Races all questions that are due, one after the other, unless that is under way.
  run() {
    if (!this.turn) this.running = this.raceAll();
    return this.running;
  }

  async raceAll() {
    const turn = (this.turn = new AbortController());
    const end = (message, bad) => {
      if (this.turn !== turn) return;
      this.turn = undefined;
      this.say(message, bad);
    };
    try {
      this.say("Asking the server …");
      if (!(await this.channel.answers())) throw new Error(NO_SERVER);
      let failures = 0;
      for (const index of this.due) {
        const row = await this.raceQuestion(index, turn.signal);
        failures = row.error ? failures + 1 : 0;
        if (failures === MAX_FAILURES) throw new Error(row.error);
      }
      end(this.conclusion(), this.due.length > 0);
    } catch (error) {
      const { aborted, reason } = turn.signal;
      end(aborted ? reason.message : error.message, !aborted);
    }
  }

  conclusion() {
    const [failed, all] = [this.due.length, this.questions.length];
    const disturbed = this.rows.filter((row) => row?.disturbed).length;
    const parts = [
      failed
        ? `${all - failed} of ${all} questions are raced; Resume tries the others again.`
        : "All questions are raced.",
    ];
    if (disturbed) parts.push(`The machine was busy in ${disturbed} of these races, which do not count.`);
    return parts.join(" ");
  }

  /**
   * @param {number} index
   * @param {AbortSignal} signal
   */
  async raceQuestion(index, signal) {
    const progress = `Question ${index + 1} of ${this.questions.length}`;
    this.current = index;
    this.say(`${progress}: racing …`);
    try {
      const key = await this.requestRace(index, signal);
      const collect = this.channel.collect ?? collectRace;
      const { reel, error } = await collect(key, (note) => this.say(`${progress}: ${note}`), signal);
      const row = error ? { error } : readFigures(reel);
      this.checkSetup(row);
      this.rows[index] = row;
      if (reel) await this.save(() => this.store.saveRace(this.list, index, row, reel));
      return row;
    } finally {
      this.current = undefined;
    }
  }

  async save(write) {
    this.list.changed = Date.now();
    await write().catch((error) => {
      throw new Error(`${NOT_KEPT} (${error.message})`, { cause: error });
    });
  }

  // Figures of another model, machine or choice of lanes must not enter the same table.
  /** @param {QuestionRow} row */
  checkSetup({ setup }) {
    const first = this.rows.find((row) => row?.setup)?.setup;
    if (setup && first && setup !== first)
      throw new Error(`This list was raced with ${first}; the server now races with ${setup}. Begin a new list.`);
  }

  // Asks for the race of a question, again and again while a limit is reached. Returns the key by which it is watched.
  async requestRace(index, signal) {
    for (;;) {
      /** @type {ListedMessage} */
      const answer = await new Promise((resolve, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason), { once: true });
        this.asked = { resolve, reject };
        // The first value is the question in the page's field.
        this.channel.press(([, files, ...settings]) => this.fill(files, settings, this.questions[index]));
      });
      this.asked = undefined;
      if (answer.phase === "refused") throw new Error(answer.message);
      if (answer.phase === "waiting") return answer.key;
      this.say(`${answer.message} The list goes on by itself.`);
      await pause(RETRY_MS, signal);
    }
  }

  // The server's answer to a question of the list.
  /** @param {ListedMessage} message */
  receive(message) {
    this.asked?.resolve(message);
  }

  // The page could not ask the server.
  fail(sentence) {
    this.asked?.reject(new Error(sentence));
  }

  // The values to race with: the list's own settings, whatever has been chosen on the page meanwhile. `files` and
  // `settings` are the page's. If the list cannot be raced with them, the server gets an empty question, and
  // refuses it.
  fill(files, settings, question) {
    const documents = nameDocuments(files);
    const { list } = this;
    // Until a question has been raced, the visitor can still change the page's settings.
    if (!this.raced)
      // Copied, because Gradio's values are proxies, which the browser cannot store.
      Object.assign(list, { settings: JSON.parse(JSON.stringify(settings)), documents });
    const refuse = (sentence) => {
      this.fail(sentence);
      return ["", [], ...settings];
    };
    if (list.settings.length !== settings.length)
      return refuse("The server has other settings than those of this list; begin a new list.");
    if (JSON.stringify(documents) !== JSON.stringify(list.documents)) return refuse(describeDocuments(list.documents));
    return [question, files, ...list.settings];
  }
}

// Which documents a list needs.
/** @param {string[]} documents */
export function describeDocuments(documents) {
  const names = documents
    .map((name) => name.split("/").at(-1))
    .toSorted()
    .join(", ");
  return names
    ? `This list was begun on your documents ${names}; add exactly these under Your documents, then press Resume.`
    : "This list was begun on the server's documents; remove yours, then press Resume.";
}
