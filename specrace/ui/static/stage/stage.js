// The stage: receives a race, live or whole, and shows each lane's steps as the player reaches them. Text from outside is
// set as textContent only.
/** @import { EndPart, HeadPart, LaneFrame, RaceHead, Reel, ResultRow, ShownRepeated, StepPart } from "../lib/wire.d.ts" */
/** @import { PlayedReel, ReadStep } from "./reel.js" */
import { CONSTANTS } from "../lib/constants.js";
import { describePrompt, describeRange, describeRecording } from "../lib/format.js";
import { Feed } from "../lib/event_stream.js";
import { Gallery } from "./gallery.js";
import { canRace, isRaceControlFocused, markStop, openSettings, setQuestion } from "../lib/gradio.js";
import { Guess } from "./guess.js";
import { describeLane, inOrder } from "../lib/lanes.js";
import { REDUCED_MOTION, runDue } from "../lib/motion.js";
import { listen, send } from "../lib/stage_events.js";
import { Pane } from "./panes.js";
import { Passages } from "./passages.js";
import { Player } from "./player.js";
import { findFastest, showPodium } from "./podium.js";
import { readReel, StepReader } from "./reel.js";
import { showResults, speedupSoFar, tellWhy } from "./results.js";
import { Forecast } from "./show.js";
import { Track } from "./track.js";

// Time from the arrival of the first steps to the start of the show.
const LEAD_MS = 2000;
const MODES = { idle: "", waiting: "Waiting", live: "Live", replay: "Replay", result: "Finished" };

export class Stage {
  // `node`: the .stage element; `lanes`: shown before the first race; `cards`: recorded races; `server` loads them.
  constructor(node, { lanes, cards, server, takesFiles = true }) {
    this.node = node;
    this.panes = [];
    /** @type {PlayedReel | undefined} */
    this.reel = undefined;
    this.passages = new Passages(this.find(".passages"));
    this.track = new Track(this.find(".track"));
    this.guess = new Guess(this.find(".guess"));
    this.player = new Player(this.find(".player"), this.replayScreen());
    this.feed = new Feed(this);
    this.gallery = new Gallery(this.find(".gallery"), cards, {
      server,
      takesFiles,
      openReel: (reel, offered) => this.openReel(reel, offered),
      complain: (text) => this.complain(text),
    });
    listen(node, "seek", ({ lane, step }) => this.player.goTo(this.player.find(lane, step)));
    this.find(".panes").addEventListener("click", ({ target }) => this.pick(target));
    listen(node, "complain", (sentence) => this.warn(sentence));
    listen(node, "lanes", (names) => node.dataset.mode === "idle" && this.setLanes(inOrder(names)));
    // A link with a race in it is opened as a file, which this server may not accept.
    this.find("[data-do=pack]").hidden = !takesFiles;
    this.setLanes(lanes);
    this.player.unload();
  }

  find(name) {
    return this.node.querySelector(name);
  }

  // The screen that the player draws on.
  replayScreen() {
    return {
      begin: () => this.beginReplay(),
      clear: () => this.clear(),
      show: (step, still) => this.show(step, still),
      draw: (time) => this.drawClock(time),
      pace: (text) => (this.pace = text),
      cursor: (step) => this.point(step),
      end: () => this.showWhole(),
    };
  }

  setLanes(lanes, total = CONSTANTS.max_new_tokens) {
    this.panes = lanes.map((lane) => new Pane(describeLane(lane)));
    this.panes.forEach((pane, index) => pane.solo.addEventListener("click", () => this.setSolo(index)));
    this.find(".panes").replaceChildren(...this.panes.map((pane) => pane.node));
    this.find(".panes").dataset.count = this.panes.length;
    this.track.show(lanes.map(describeLane), total);
    this.setSolo(undefined);
  }

  // Shows one lane alone, or all lanes again if this lane already is alone.
  setSolo(index) {
    const solo = index === this.player.solo ? undefined : index;
    this.player.solo = solo;
    this.find(".panes").dataset.solo = solo ?? "";
    this.panes.forEach((pane, number) => {
      pane.node.classList.toggle("away", solo !== undefined && number !== solo);
      pane.solo.setAttribute("aria-pressed", String(number === solo));
    });
    this.track.mark(solo);
  }

  setMode(mode) {
    this.node.dataset.mode = mode;
    this.passages.live = mode === "live";
    this.passages.redraw();
    this.find(".mode").textContent = MODES[mode];
    for (const name of [".podium", ".tally"]) this.find(name).hidden ||= mode !== "result";
    this.find(".again").hidden ||= mode !== "result";
    markStop(mode === "live");
  }

  say(text, kind = "") {
    const line = this.find(".announcer");
    line.dataset.kind = kind;
    if (text && line.textContent !== text) line.textContent = line.title = text;
  }

  // Shows an error, and scrolls to its line, which open settings may have pushed out of sight.
  warn(text) {
    this.say(text, "bad");
    this.find(".announcer").scrollIntoView({ block: "nearest" });
  }

  // Pauses a replay. A live show is not paused, because nothing on the page could resume it.
  pause() {
    if (!this.player.live) this.player.pause();
  }

  complain(text) {
    this.pause();
    this.say(text, "bad");
  }

  // Says what is wrong with the settings in the address. Nothing plays until the visitor acts.
  refuse(text) {
    send(this.node, "refused");
    this.gallery.cancelOffered();
    this.note("failed", text);
  }

  // Cancels the start of a live show.
  cancelStart() {
    clearTimeout(this.starts);
  }

  // Waits for a requested race. The stage shows what it showed before until that race begins.
  wait(race, key) {
    this.cancelStart();
    // A recording that is still loading would end this race.
    this.gallery.cancel();
    if (this.player.live) this.player.pause();
    Object.assign(this.node.dataset, { race, key, phase: "waiting", steps: 0 });
    markStop(true);
    // Take the focus from the pressed button, so that the space bar controls the replay.
    if (isRaceControlFocused()) this.node.focus({ preventScroll: true });
  }

  note(phase, text) {
    this.node.dataset.phase = phase;
    if (phase !== "waiting") this.giveUp();
    if (phase === "failed") this.warn(text);
    else this.say(text);
  }

  // Gives up a requested race that will not begin or not be finished. A whole race on the stage stays.
  giveUp() {
    this.cancelStart();
    if (this.player.live) {
      this.player.unload();
      this.guess.close();
      send(this.node, "lost");
    }
    if (this.node.dataset.mode === "live" && !this.player.loaded) this.setMode("idle");
    markStop(false);
  }

  // A live race begins.
  /** @param {HeadPart} part */
  takeHead({ head, started }) {
    const forecast = new Forecast(head.lanes.length, head.settings?.max_new_tokens ?? CONSTANTS.max_new_tokens);
    this.reader = new StepReader(head.lanes);
    this.reel = { race: this.feed.race, head, started, steps: [] };
    this.node.dataset.phase = "running";
    this.player.open(forecast);
    this.find(".results").hidden = true;
    this.drawHead(head, forecast.tokens);
    this.setMode("live");
    if (head.lanes.length > 1 && !REDUCED_MOTION.matches) this.guess.ask(head.lanes);
    send(this.node, "opened", head.lanes);
    send(this.node, "begun", { live: true });
    this.say(`Racing: ${head.lanes.map((lane) => lane.title).join(", ")}.`);
  }

  /** @param {StepPart[]} parts */
  takeSteps(parts) {
    const { player, reel } = this;
    const steps = parts.map((part) => this.reader.read(part));
    const first = !reel.steps.length;
    reel.steps.push(...steps);
    this.node.dataset.steps = reel.steps.length;
    steps.forEach((step) => player.forecast.add(step));
    player.add(steps);
    this.track.aim(player.forecast.tokens, player.forecast.known);
    send(this.node, "steps", steps);
    if (REDUCED_MOTION.matches) player.catchUpSoon();
    else if (first) this.starts = setTimeout(() => player.play(), LEAD_MS);
  }

  // A live race is over. Its show continues to the end, unless the race was stopped.
  /** @param {EndPart} end */
  takeEnd(end) {
    Object.assign(this.reel, end);
    this.node.dataset.phase = end.phase;
    this.player.close();
    this.find(".mode").textContent = "Just raced";
    this.aimAtEnd();
    send(this.node, "reel", this.reel);
    if (REDUCED_MOTION.matches || end.phase === "stopped" || !this.player.loaded) this.showWhole();
  }

  // Receives the figures over several runs, which the server makes while the race is shown.
  /** @param {EndPart} part */
  takeAgain(part) {
    Object.assign(this.reel, part);
    if (this.node.dataset.mode !== "result") return;
    send(this.node, "figures", this.showFigures(this.reel));
    this.say(this.reel.headline);
  }

  aimAtEnd() {
    this.track.aim(this.lengths, true);
  }

  // The number of tokens of each lane's whole answer.
  get lengths() {
    return this.reel.results.map((row) => row.tokens);
  }

  // Shows the race at its end.
  showWhole() {
    this.cancelStart();
    while (this.player.next < this.player.steps.length) this.show(this.player.steps[this.player.next++], true);
    this.player.complete();
    this.drawClock(this.player.length);
    this.showResult(this.reel);
    if (this.node.dataset.phase !== "waiting") this.say(this.reel.headline);
  }

  // `date` is the date of a recorded race.
  /**
   * @param {RaceHead} head
   * @param {number} total
   * @param {string} [date]
   */
  drawHead(head, total, date) {
    this.setLanes(head.lanes, total);
    const methods = this.panes.map((pane) => pane.method);
    this.passages.show(head.passages, methods);
    const machine = this.find(".machine");
    machine.textContent = describeRecording({ ...head, date });
    machine.title = machine.textContent + describePrompt(head);
    openSettings(false);
  }

  /** @param {PlayedReel} reel */
  showResult(reel) {
    const first = this.node.dataset.mode === "live";
    this.setMode("result");
    const counted = this.showFigures(reel);
    this.judgeGuess(counted);
    send(this.node, "result", counted);
    if (first && counted.length && !REDUCED_MOTION.matches) send(this.node, "finish", reel);
  }

  // Shows the figures; returns the rows if they count, and none for a race that was stopped or disturbed.
  /** @param {PlayedReel} reel */
  showFigures({ results: rows, phase, pace, repeated }) {
    const stopped = phase === "stopped";
    const disturbed = Boolean((repeated ?? pace)?.disturbed);
    const counted = stopped || disturbed ? [] : rows;
    this.concludePanes(rows, repeated, counted);
    showResults(this.find(".results"), rows, tellWhy(counted));
    this.find(".results .pace").textContent = (repeated ?? pace)?.note ?? "";
    showPodium(this.find(".podium"), counted, repeated);
    const ending = disturbed ? "Disturbed" : MODES.result;
    this.find(".mode").textContent = stopped ? "Stopped" : ending;
    this.node.dataset.disturbed = String(disturbed);
    this.find(".again").hidden = !disturbed || !canRace();
    return counted;
  }

  // Compares the guess with the race that was shown, whatever the medians of all runs say.
  /** @param {ResultRow[]} rows */
  judgeGuess(rows) {
    if (!rows.length) this.guess.close();
    const line = this.find(".tally");
    line.textContent = this.guess.judge(this.track.winner);
    line.hidden = !line.textContent;
  }

  /**
   * @param {ResultRow[]} rows
   * @param {ShownRepeated | null} repeated
   * @param {ResultRow[]} counted
   */
  concludePanes(rows, repeated, counted) {
    const [winner] = findFastest(counted);
    rows.forEach((row, index) => {
      const pane = this.panes[index];
      pane.settle();
      pane.setBadge(...row.badge);
      pane.setRate(row.tokens_per_s);
      pane.setSpeedup(row.speedup, describeRange(repeated, index));
      pane.node.dataset.done ||= row.end;
      pane.node.classList.toggle("winner", rows.length > 1 && row === winner);
    });
  }

  // Opens a recorded race as the server sent it. `offered`: the visitor did not ask for it.
  /**
   * @param {Reel} sent
   * @param {boolean} offered
   */
  openReel(sent, offered) {
    const reel = readReel(sent);
    const { head } = reel;
    this.openRead(reel);
    if (!offered) setQuestion(head.question);
    this.say(`Recorded race: “${head.question ?? "no question"}” ${describeRecording(head)}`);
  }

  // Opens a whole race, and gives up a live one.
  /** @param {PlayedReel} reel */
  openRead(reel) {
    this.cancelStart();
    this.feed.leave();
    this.setMode("idle");
    this.node.dataset.phase = "idle";
    this.reel = reel;
    this.drawHead(reel.head, 1, reel.head.date);
    this.aimAtEnd();
    this.player.load(reel);
    this.guess.close();
    this.find(".results").hidden = true;
    send(this.node, "opened", reel.head.lanes);
    send(this.node, "steps", reel.steps);
    send(this.node, "begun", { live: false });
    send(this.node, "reel", reel);
    this.sayQuestion();
    if (REDUCED_MOTION.matches) this.showWhole();
    else this.player.play();
  }

  beginReplay() {
    this.cancelStart();
    if (["live", "replay"].includes(this.node.dataset.mode)) return;
    this.setMode("replay");
    this.sayQuestion();
  }

  // Says the question, because the headline would say which lane wins.
  sayQuestion() {
    this.say(`“${this.reel.head.question ?? "No question"}”`);
  }

  clear() {
    send(this.node, "begun", { live: false });
    this.panes.forEach((pane) => pane.clear());
    this.track.show(this.reel.head.lanes.map(describeLane), this.lengths);
    this.passages.reset();
  }

  /**
   * @param {ReadStep} step
   * @param {boolean} still
   */
  show(step, still) {
    const pane = this.panes[step.lane];
    pane.apply(step.frame, (spans, run) => this.passages.light(spans, run), step.index, still);
    this.passages.count(step.lane, step.frame.sources);
    if (!still) send(this.node, "moved", step.frame);
    this.track.apply(step.frame);
    if (step.frame.end) this.guess.end();
    // A step of vanilla, lane 0, changes every lane's speedup; another step changes only its lane's.
    const base = this.panes[0].meters;
    for (const changed of step.lane ? [pane] : this.panes) changed.setSpeedup(speedupSoFar(changed.meters, base));
  }

  drawClock(time) {
    this.track.draw(time, this.pace);
    runDue();
    for (const pane of this.panes) if (pane.unsettled) pane.settle();
  }

  point(step) {
    if (!this.player.playing) this.panes.forEach((pane, index) => pane.point(index === step.lane ? step.index : -1));
    send(this.node, "cursor", { lane: step.lane, step: step.index });
  }

  // Shows the step that wrote the words on which the visitor clicked.
  pick(target) {
    const words = target.closest("[data-step]");
    const index = this.panes.findIndex((pane) => pane.node.contains(target));
    if (!words || !this.reel || this.player.live) return;
    this.player.pause();
    this.point({ lane: index, index: Number(words.dataset.step) });
  }
}
