// The stage: receives a race, live or whole, and shows each lane's steps as the player reaches them. Text from outside
// is set as textContent only.
/** @import { EndPart, HeadPart, LaneFrame, RaceHead, Reel, ResultRow, StepPart } from "../lib/wire.d.ts" */
/** @import { PlayedReel, ReadStep } from "./reel.js" */
import { CONSTANTS } from "../lib/constants.js";
import { make, setWords } from "../lib/dom.js";
import { describePrompt, recordingParts } from "../lib/format.js";
import { RaceReceiver } from "../lib/event_stream.js";
import { Gallery } from "../gallery/gallery.js";
import { canRace, closePanels, isRaceControlFocused, setQuestion, showAsked } from "../lib/gradio.js";
import { Guess } from "./guess.js";
import { describeLanes, sortLanes, isServed } from "../lib/lanes.js";
import { REDUCED_MOTION, runDue } from "../lib/motion.js";
import { listen, send } from "../lib/stage_events.js";
import { Pane } from "../panes/pane.js";
import { PaneRow } from "../panes/pane_row.js";
import { Passages } from "./passages.js";
import { Player } from "./player.js";
import { rankLanes, showPodium } from "./podium.js";
import { readReel, StepReader } from "./reel.js";
import { showResults, describeFastest } from "./results.js";
import { Forecast } from "./playback_speed.js";
import { Start } from "./start.js";
import { StateBadge } from "./state_badge.js";
import { StopButton } from "./stop_button.js";
import { Track } from "./track.js";

export class Stage {
  // `node`: the .stage element; `lanes`: shown before the first race; `cards`: recorded races; `server` loads them.
  constructor(node, { lanes, cards, server, takesFiles = true }) {
    this.node = node;
    this.paneRow = new PaneRow(this.find(".panes"), (lane) => this.showSolo(lane));
    /** @type {PlayedReel | undefined} */
    this.reel = undefined;
    this.passages = new Passages(this.find(".passages"));
    this.track = new Track(this.find(".track"));
    this.guess = new Guess(this.find(".guess"));
    this.player = new Player(this.find(".player"), this.replayScreen());
    this.start = new Start(this.find(".top"), {
      play: () => this.player.play(),
      announce: (sentence) => this.announce(sentence),
      showHeld: (held) => (node.dataset.held = String(held)),
      showCounting: (counting) => (node.dataset.counting = String(counting)),
    });
    this.receiver = new RaceReceiver(this);
    this.stop = new StopButton(node);
    this.badge = new StateBadge(node, this.find(".mode"));
    this.gallery = new Gallery(this.find(".gallery"), cards, {
      server,
      takesFiles,
      openReel: (reel, automatic) => this.openReel(reel, automatic),
      showError: (text) => this.pauseWithError(text),
    });
    listen(node, "seek", ({ lane, step }) => this.player.goTo(this.player.findStep(lane, step)));
    this.find(".panes").addEventListener("click", ({ target }) => this.pointAtClicked(target));
    listen(node, "problem", (sentence) => this.showError(sentence));
    // Why the last race was refused. Other documents may mend that; the sentence is then outdated.
    this.refusal = "";
    listen(node, "documents", () => this.isRefused && this.announce("Your documents have changed."));
    listen(node, "lanes", (names) => node.dataset.mode === "idle" && this.setLanes(sortLanes(names)));
    this.setLanes(lanes);
    this.player.unload();
  }

  find(name) {
    return this.node.querySelector(name);
  }

  get panes() {
    return this.paneRow.panes;
  }

  // What the player draws on (see player.js).
  replayScreen() {
    return {
      begin: () => this.beginReplay(),
      clear: () => this.clear(),
      showStep: (step, still) => this.showStep(step, still),
      draw: (time) => this.drawMoment(time),
      setSpeedText: (text) => (this.speedText = text),
      cursor: (step) => this.pointAt(step),
      end: () => this.showEnd(),
    };
  }

  setLanes(lanes, total = CONSTANTS.max_new_tokens, marks = null) {
    this.methods = describeLanes(lanes);
    this.find(".top").style.setProperty("--lanes", String(lanes.length));
    this.track.setUp(this.methods, total);
    this.paneRow.show(this.methods.map((method) => new Pane(method, marks)));
  }

  // Called when one lane is shown alone, or all lanes again (undefined).
  showSolo(lane) {
    this.player.solo = lane;
    this.track.dimOthers(lane);
  }

  setMode(mode) {
    this.node.dataset.mode = mode;
    this.passages.live = mode === "live";
    this.passages.redraw();
    for (const name of [".podium", ".tally", ".again"]) this.find(name).hidden ||= mode !== "result";
  }

  announce(text, kind = "") {
    const line = this.find(".announcer");
    line.dataset.kind = kind;
    if (!text || line.textContent === text) return;
    line.title = text;
    setWords(line, text);
  }

  get isRefused() {
    return this.refusal !== "" && this.find(".announcer").textContent === this.refusal;
  }

  // Shows an error, and scrolls to its line, which open settings may have pushed out of sight.
  showError(text) {
    this.announce(text, "bad");
    this.find(".announcer").scrollIntoView({ block: "nearest" });
  }

  // Pauses a replay. The playback of a live race continues, because nothing on the page could resume it.
  pause() {
    if (!this.player.live) this.player.pause();
  }

  // Shows an error, and pauses the replay, whose sentences would replace it.
  pauseWithError(text) {
    this.pause();
    this.announce(text, "bad");
  }

  // Shows what is wrong with the settings in the address. Nothing plays on, or begins, until the visitor acts.
  refuseAddress(text) {
    send(this.node, "refused");
    this.gallery.cancelAutomatic();
    this.pause();
    this.showPhase("failed", text);
  }

  setRunning(running) {
    this.node.dataset.running = String(running);
  }

  // Waits for a requested race. The stage shows what it showed before until that race begins.
  awaitRace(race, key) {
    this.start.cancel();
    // A recording that is still loading would end this race.
    this.gallery.cancel();
    if (this.player.live) this.player.pause();
    Object.assign(this.node.dataset, { race, key, phase: "waiting", steps: 0 });
    // Take the focus from the pressed button, so that the space bar controls the replay.
    if (isRaceControlFocused()) this.node.focus({ preventScroll: true });
  }

  // A requested race has entered a phase: it waits, has failed and so on.
  showPhase(phase, text) {
    this.node.dataset.phase = phase;
    if (phase !== "waiting") this.giveUp();
    if (phase === "failed") {
      this.refusal = text;
      this.showError(text);
    } else this.announce(text);
  }

  // Gives up a requested race that will not begin or not be finished. A whole race on the stage stays.
  giveUp() {
    this.start.cancel();
    if (this.player.live) {
      this.player.unload();
      this.guess.close();
      send(this.node, "lost");
    }
    if (this.node.dataset.mode === "live" && !this.player.loaded) this.setMode("idle");
  }

  /** @param {HeadPart} part */
  startLiveRace({ head, started }) {
    const forecast = new Forecast(head.lanes, head.settings?.max_new_tokens ?? CONSTANTS.max_new_tokens);
    this.reader = new StepReader(head.lanes);
    this.reel = { race: this.receiver.race, head, started, steps: [] };
    Object.assign(this.node.dataset, { phase: "running", recorded: "false", again: "0" });
    this.player.openLive(forecast);
    this.find(".results").hidden = true;
    this.drawHead(head, forecast.tokens);
    this.setMode("live");
    if (head.lanes.filter((lane) => !isServed(lane)).length > 1 && !REDUCED_MOTION.matches) this.guess.ask(head.lanes);
    send(this.node, "opened", head.lanes);
    send(this.node, "begun", { live: true });
    this.announceQuestion();
  }

  /** @param {StepPart[]} parts */
  addLiveSteps(parts) {
    const { player, reel } = this;
    const steps = parts.map((part) => this.reader.read(part));
    const first = !reel.steps.length;
    reel.steps.push(...steps);
    this.node.dataset.steps = reel.steps.length;
    steps.forEach((step) => player.forecast.add(step));
    player.add(steps);
    this.track.setFinish(player.forecast.tokens, player.forecast.known);
    send(this.node, "steps", steps);
    if (REDUCED_MOTION.matches) player.catchUpSoon();
    // Visitors guess the winner during the countdown.
    else if (first) this.start.schedule(true);
  }

  // A live race is over. Its playback continues to the end, unless the race was stopped.
  /** @param {EndPart} end */
  endLiveRace(end) {
    Object.assign(this.reel, end);
    this.node.dataset.phase = end.phase;
    this.player.endLive();
    this.placeFinish();
    send(this.node, "reel", this.reel);
    if (REDUCED_MOTION.matches || end.phase === "stopped" || !this.player.loaded) this.showEnd();
  }

  // Shows figures over several runs, which the server makes while the race is played.
  /** @param {EndPart} part */
  updateFigures(part) {
    Object.assign(this.reel, part);
    this.node.dataset.again = String(Number(this.node.dataset.again ?? 0) + 1);
    if (this.node.dataset.mode !== "result") return;
    send(this.node, "figures", this.showFigures(this.reel));
    if (this.node.dataset.otherQuestion !== "true") this.announce(this.reel.headline);
  }

  // The number of tokens of each lane's whole answer. In a stopped race no lane has one, so the longest counts.
  get lengths() {
    const tokens = this.reel.results.map((row) => row.tokens);
    return this.reel.phase === "stopped" ? tokens.map(() => Math.max(...tokens)) : tokens;
  }

  // Draws the finish line of a whole race.
  placeFinish() {
    this.track.setFinish(this.lengths, this.reel.phase !== "stopped");
  }

  // Goes to the end of the race, and shows its result.
  showEnd() {
    this.start.cancel();
    while (this.player.next < this.player.steps.length) this.showStep(this.player.steps[this.player.next++], true);
    this.player.markAllShown();
    this.drawMoment(this.player.length);
    this.showResult(this.reel);
    if (this.node.dataset.phase !== "waiting") this.announce(this.reel.headline);
  }

  /**
   * Draws what is known of a race before its steps.
   * @param {RaceHead} head
   * @param {number} total tokens to the finish line
   * @param {string} [date] of a recorded race
   */
  drawHead(head, total, date) {
    this.setLanes(head.lanes, total, head.thoughts);
    this.passages.show(head.passages, this.methods);
    this.node.dataset.model = head.model ?? "";
    showAsked(head.question);
    const machine = this.find(".machine");
    const parts = Object.entries(recordingParts({ ...head, date })).filter(([, words]) => words);
    machine.replaceChildren(...parts.map(([name, words], index) => make("span", name, index ? ` · ${words}` : words)));
    machine.querySelector(".day")?.replaceChildren(" · ", make("span", "long", "recorded "), date.slice(0, 10));
    machine.title = machine.textContent + describePrompt(head);
    closePanels();
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
  showFigures({ head, results: rows, phase, pace, repeated }) {
    const stopped = phase === "stopped";
    const disturbed = Boolean((repeated ?? pace)?.disturbed);
    const counted = stopped || disturbed ? [] : rows;
    this.node.dataset.medians = String(Boolean(repeated && !stopped));
    const places = rankLanes(counted);
    this.paneRow.conclude(rows, repeated, places);
    if (!stopped) this.track.conclude(rows, disturbed ? rows.map(() => 0) : places, repeated);
    showResults(this.find(".results"), rows, describeFastest(counted), head);
    this.find(".results .pace").textContent = (repeated ?? pace)?.note ?? "";
    showPodium(this.find(".podium"), counted, repeated);
    this.node.dataset.outcome = (stopped && "stopped") || (disturbed ? "disturbed" : "counted");
    this.find(".again").hidden = !disturbed || !canRace();
    return counted;
  }

  // Compares the guess with the winner of the race that was shown, even if the medians of several runs name another.
  /** @param {ResultRow[]} rows */
  judgeGuess(rows) {
    if (!rows.length) this.guess.close();
    const line = this.find(".tally");
    line.textContent = this.guess.judge(this.track.winner);
    line.hidden = !line.textContent;
  }

  /**
   * Opens a recorded race as the server sent it.
   * @param {Reel} sent
   * @param {boolean} automatic the visitor did not ask for it
   */
  openReel(sent, automatic) {
    const reel = readReel(sent);
    const { head } = reel;
    this.playReel(reel);
    if (!automatic) setQuestion(head.question);
    if (this.node.dataset.mode !== "result" && !this.start.held)
      this.announce(`Recorded race: “${head.question ?? "no question"}”`);
  }

  // Plays a whole race, and gives up a live one.
  /** @param {PlayedReel} reel */
  playReel(reel) {
    this.start.cancel();
    this.receiver.abandon();
    this.setMode("idle");
    Object.assign(this.node.dataset, { phase: "idle", recorded: String(Boolean(reel.head.date)) });
    this.reel = reel;
    this.drawHead(reel.head, 1, reel.head.date); // any total: the next line sets the right one
    this.placeFinish();
    this.player.load(reel);
    this.guess.close();
    this.find(".results").hidden = true;
    send(this.node, "opened", reel.head.lanes);
    send(this.node, "steps", reel.steps);
    send(this.node, "begun", { live: false });
    send(this.node, "reel", reel);
    this.announceQuestion();
    if (REDUCED_MOTION.matches) this.showEnd();
    else this.start.schedule(false);
  }

  beginReplay() {
    this.start.cancel();
    if (["live", "replay"].includes(this.node.dataset.mode)) return;
    this.setMode("replay");
    this.announceQuestion();
  }

  // Announces the question, because the headline would tell which lane wins.
  announceQuestion() {
    this.announce(`“${this.reel.head.question ?? "No question"}”`);
  }

  // Empties the stage, for a replay from the start.
  clear() {
    send(this.node, "begun", { live: false });
    this.paneRow.clear();
    this.track.setUp(this.methods, this.lengths);
    this.placeFinish();
    this.passages.reset();
  }

  /**
   * @param {ReadStep} step
   * @param {boolean} still
   */
  showStep(step, still) {
    const pane = this.panes[step.lane];
    pane.apply(step.frame, (spans, run) => this.passages.linkRun(spans, run), step.index, still);
    this.passages.setCounts(step.lane, step.frame.sources);
    if (!still) send(this.node, "moved", step.frame);
    this.track.apply(step.frame);
    if (step.frame.end && !isServed(pane.method)) this.guess.end();
    this.paneRow.showSpeedups(step.lane);
  }

  // Draws what depends on the race time rather than on a step.
  drawMoment(time) {
    this.track.draw(time, this.speedText);
    runDue();
    for (const pane of this.panes) if (pane.unsettled) pane.settle();
  }

  // Marks a step: in the panes, unless the race is playing, and, by an event, in the tools around the stage.
  pointAt(step) {
    if (!this.player.playing) this.paneRow.outline(step.lane, step.index);
    send(this.node, "cursor", { lane: step.lane, step: step.index });
  }

  // Points at the step that wrote the words on which the visitor clicked.
  pointAtClicked(target) {
    const words = target.closest("[data-step]");
    if (!words || !this.reel || this.player.live) return;
    this.player.pause();
    this.pointAt({ lane: this.paneRow.laneOf(target), index: Number(words.dataset.step) });
  }
}
