// The stage: takes a live race's frames in, or a reel, and hands each lane its part. Text from outside goes
// through textContent only. On the .stage element it tells others "begun" (a live race, or a replay, starts), "moved"
// (a lane has gone on), "step" (the latest one of the lane that was asked for, live), "reel" (a race that can be
// replayed), "cursor" (the step that is shown: {lane, step}) and "result" (the rows of a race that ran to its end);
// they may ask for a step with "seek".
import { describeRecording, seconds } from "./format.js";
import { Frames } from "./frames.js";
import { Gallery } from "./gallery.js";
import { canRace, focusAsked, markStop, openSettings, setQuestion } from "./gradio.js";
import { describeLane, inOrder } from "./lanes.js";
import { CALM, runDue } from "./motion.js";
import { Pane } from "./panes.js";
import { Passages } from "./passages.js";
import { Player } from "./player.js";
import { showPodium } from "./podium.js";
import { readReel } from "./reel.js";
import { showResults, tellWhy } from "./results.js";
import { Track } from "./track.js";

const REPLAY_AFTER_MS = 2500;
const MODES = { idle: "", live: "Live", replay: "Replay", result: "Finished" };
const MOST_TOKENS = 160;

export class Stage {
  // `node` is the .stage element, `lanes` those that stand there before a race, `cards` recorded races, `server` the
  // functions that read them.
  constructor(node, { lanes, cards, server }) {
    this.node = node;
    this.panes = [];
    this.drawn = false;
    this.passages = new Passages(this.find(".passages"));
    this.track = new Track(this.find(".track"));
    this.player = new Player(this.find(".player"), this.replayScreen());
    this.frames = new Frames(this);
    const take = (reel, offered) => this.openReel(reel, offered);
    this.gallery = new Gallery(this.find(".gallery"), cards, {
      server,
      take,
      complain: (words) => this.complain(words),
    });
    node.addEventListener("seek", ({ detail }) => this.player.goTo(this.player.find(detail.lane, detail.step)));
    this.find(".panes").addEventListener("click", ({ target }) => this.pick(target));
    node.addEventListener("complain", ({ detail }) => this.warn(detail));
    node.addEventListener("lanes", ({ detail }) => node.dataset.mode === "idle" && this.setLanes(inOrder(detail)));
    document.addEventListener("pointerdown", () => this.stay());
    this.setLanes(lanes);
    this.player.unload();
  }

  find(name) {
    return this.node.querySelector(name);
  }

  tell(name, detail) {
    this.node.dispatchEvent(new CustomEvent(name, { detail }));
  }

  // What the player plays on.
  replayScreen() {
    return {
      begin: () => this.beginReplay(),
      clear: () => this.clear(),
      show: (step, still) => this.show(step, still),
      draw: (time) => this.drawClock(time),
      cursor: (step) => this.point(step),
      end: () => this.end(),
    };
  }

  setLanes(lanes, most) {
    this.panes = lanes.map((lane) => new Pane(describeLane(lane)));
    this.panes.forEach((pane, index) => pane.solo.addEventListener("click", () => this.setSolo(index)));
    this.find(".panes").replaceChildren(...this.panes.map((pane) => pane.node));
    this.find(".panes").dataset.count = this.panes.length;
    this.setSolo(undefined);
    this.setTrack(lanes, 0, most);
  }

  setTrack(lanes, length, most) {
    this.track.show(lanes.map(describeLane), length, most);
  }

  // One lane alone; the one that is, no more.
  setSolo(index) {
    const solo = index === this.player.solo ? undefined : index;
    this.player.solo = solo;
    this.find(".panes").dataset.solo = solo ?? "";
    this.panes.forEach((pane, number) => {
      pane.node.classList.toggle("away", solo !== undefined && number !== solo);
      pane.solo.setAttribute("aria-pressed", String(number === solo));
    });
  }

  setMode(mode) {
    this.node.dataset.mode = mode;
    this.passages.live = mode === "live";
    this.find(".mode").textContent = MODES[mode];
    this.find(".podium").hidden ||= mode !== "result";
    this.find(".again").hidden ||= mode !== "result";
    markStop(mode === "live");
  }

  say(words, kind = "") {
    const line = this.find(".announcer");
    line.dataset.kind = kind;
    if (words && line.textContent !== words) line.textContent = line.title = words;
  }

  // Open settings may have pushed the line out of sight.
  warn(words) {
    this.say(words, "bad");
    this.find(".announcer").scrollIntoView({ block: "nearest" });
  }

  complain(words) {
    this.player.pause();
    this.say(words, "bad");
  }

  // No replay follows by itself any more.
  stay() {
    clearTimeout(this.follows);
  }

  // A live race: its frames come from here on.
  begin(race) {
    this.stay();
    this.player.unload();
    this.drawn = false;
    this.reel = undefined;
    Object.assign(this.node.dataset, { race, frames: 0, lost: 0, seq: -1 });
    this.find(".results").hidden = true;
    this.panes.forEach((pane) => pane.clear());
    this.setTrack(
      this.panes.map((pane) => pane.method),
      0,
      0,
    );
    this.find(".clock b").textContent = seconds(0);
    this.passages.dim();
    this.setMode("live");
    // From here on the space bar is the replay's, not the button's that was pressed.
    if (focusAsked()) this.node.focus({ preventScroll: true });
  }

  watch(key) {
    this.node.dataset.key = key;
  }

  note(phase, words) {
    const { mode } = this.node.dataset;
    this.node.dataset.phase = phase;
    this.setMode(phase === "running" || phase === "waiting" ? "live" : mode === "live" ? "idle" : mode);
    this.say(words, phase === "failed" ? "bad" : "");
    // Open settings may have pushed the line out of sight.
    if (phase === "failed") this.find(".announcer").scrollIntoView({ block: "nearest" });
  }

  count({ seq, count, lost }) {
    Object.assign(this.node.dataset, { lost, frames: count, seq });
  }

  // Frames that came since the last picture.
  draw(frames) {
    const last = frames.at(-1);
    for (const frame of frames) this.apply(frame);
    if (!this.drawn || !last) return;
    this.drawClock(last.clock);
    if (!last.results) return;
    this.note(last.phase, last.headline);
    this.showResult(last);
  }

  apply(frame) {
    if (frame.head && !this.drawn) this.showHead(frame.head);
    if (!this.drawn) return;
    for (const lane of frame.lanes) {
      this.panes[lane.lane].apply(lane, (spans, run) => this.passages.light(spans, run));
      this.passages.count(lane.lane, lane.sources);
      this.tell("moved", lane);
      this.track.apply(lane);
    }
    if (frame.step) this.tell("step", frame.step);
  }

  showHead(head) {
    this.drawHead(head);
    this.tell("begun", { live: true, lanes: head.lanes });
    this.note("running", `Racing: ${head.lanes.map((lane) => lane.title).join(", ")}.`);
  }

  drawHead(head) {
    this.setLanes(head.lanes, head.settings?.max_new_tokens ?? MOST_TOKENS);
    this.passages.show(
      head.passages,
      this.panes.map((pane) => pane.method),
    );
    const machine = this.find(".machine");
    machine.textContent = machine.title = describeRecording({ ...head, date: undefined });
    if (head.engine) machine.title += ` · ${head.engine}`;
    machine.title += `. Prompt: ${head.prompt_tokens} tokens, read in ${head.prefill_ms} ms, once for all lanes.`;
    for (const lane of head.lanes)
      if (lane.prefill_ms) machine.title += ` ${lane.title}: its model read it in ${lane.prefill_ms} ms.`;
    openSettings(false);
    this.drawn = true;
  }

  // One that was stopped has no winner, nor has one whose figures do not count.
  showResult({ results: rows, phase, pace }) {
    const stopped = phase === "stopped";
    const disturbed = Boolean(pace?.disturbed);
    const open = stopped || disturbed;
    this.concludePanes(rows, open);
    showResults(this.find(".results"), rows, open ? "" : tellWhy(rows));
    this.find(".results .pace").textContent = pace?.note ?? "";
    showPodium(this.find(".podium"), open ? [] : rows);
    this.setMode("result");
    if (open) this.find(".mode").textContent = stopped ? "Stopped" : "Disturbed";
    this.node.dataset.disturbed = String(disturbed);
    this.find(".again").hidden = !disturbed || !canRace();
    this.tell("result", open ? [] : rows);
  }

  concludePanes(rows, open) {
    const best = Math.max(...rows.map((row) => row.speedup));
    rows.forEach((row, index) => {
      const pane = this.panes[index];
      pane.settle();
      pane.setBadge(...row.badge);
      pane.setSpeedup(row.speedup);
      pane.node.dataset.done ||= row.end;
      pane.node.classList.toggle("winner", !open && rows.length > 1 && row.speedup === best);
    });
  }

  // The replay follows by itself, unless somebody has begun to do something else, or wants things to keep still.
  takeReel(reel) {
    this.reel = readReel(reel);
    this.load();
    if (reel.phase === "finished" && !CALM.matches)
      this.follows = setTimeout(() => this.player.play(), REPLAY_AFTER_MS);
  }

  // The whole race as the reel has it: now every step can be pointed at.
  load() {
    this.player.load(this.reel);
    this.clear();
    for (const step of this.reel.steps) this.show(step, true);
    this.drawClock(this.player.length);
    this.showResult(this.reel);
    this.tell("reel", this.reel);
  }

  // A recorded race. One that runs is given up. `offered`: nobody asked for it.
  openReel(reel, offered) {
    this.stay();
    this.frames.leave();
    this.node.dataset.phase = "idle";
    this.reel = readReel(reel);
    this.drawHead(reel.head);
    this.load();
    const { question } = reel.head;
    this.say(`Recorded race: “${question ?? "no question"}” ${describeRecording(reel.head)}`);
    if (!offered) setQuestion(question);
    if (!CALM.matches) this.player.play();
  }

  beginReplay() {
    this.stay();
    if (this.node.dataset.mode !== "replay") this.setMode("replay");
  }

  clear() {
    const { head } = this.reel;
    this.tell("begun", { live: false });
    this.panes.forEach((pane) => pane.clear());
    this.setTrack(head.lanes, this.player.length, head.settings?.max_new_tokens ?? MOST_TOKENS);
    this.passages.dim();
  }

  show(step, still) {
    const pane = this.panes[step.lane];
    pane.apply(step.frame, (spans, run) => this.passages.light(spans, run), step.index, still);
    this.passages.count(step.lane, step.frame.sources);
    if (!still) this.tell("moved", step.frame);
    this.track.apply(step.frame);
    // A step of vanilla moves every lane's speedup, and any step its own.
    const base = this.panes[0].meters?.tokens_per_s;
    for (const each of step.lane ? [pane] : this.panes)
      if (each.meters) each.setSpeedup(base ? each.meters.tokens_per_s / base : 0);
  }

  drawClock(time) {
    this.track.draw();
    runDue();
    for (const pane of this.panes) if (pane.unsettled) pane.settle();
    this.find(".clock b").textContent = seconds(time);
  }

  point(step) {
    if (!this.player.playing) this.panes.forEach((pane, index) => pane.point(index === step.lane ? step.index : -1));
    this.tell("cursor", { lane: step.lane, step: step.index });
  }

  // Words of a pane that were pressed: the step that wrote them.
  pick(target) {
    const words = target.closest("[data-step]");
    const index = this.panes.findIndex((pane) => pane.node.contains(target));
    if (!words || !this.reel) return;
    this.player.pause();
    this.point({ lane: index, index: Number(words.dataset.step) });
  }

  end() {
    this.drawClock(this.player.length);
    this.showResult(this.reel);
    this.say(this.reel.headline);
  }
}
