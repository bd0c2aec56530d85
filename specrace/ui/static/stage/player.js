// Plays a race in race time: a live race as far as its steps have arrived, or a whole race any number of times. The
// player knows which steps are shown; the screen, which the stage supplies, draws them.
/** @import { PlayedReel, ReadStep } from "./reel.js" */
import { setText } from "../lib/dom.js";
import { formatSeconds } from "../lib/format.js";
import { describeSpeed, formatPlaybackSpeed, playbackSpeed } from "./playback_speed.js";

// The shortest time between two pictures. It is longer during a live race, which each picture slows down if the race
// runs on the same machine. So 33 pictures a second, or 10 in a live race.
const LIVE_PICTURE_MS = 95;
const PICTURE_MS = 30;
// The choice of speed at which a race of any length takes a time that is comfortable to watch.
const AUTO = "auto";

export class Player {
  // `screen` shows the race: begin(), before anything is shown; clear(), to start over; showStep(step, still), where
  // `still` means without motion; draw(time); cursor(step), the step shown last; setSpeedText(words); end(), to show
  // the result.
  constructor(host, screen) {
    this.host = host;
    this.screen = screen;
    this.scrubber = host.querySelector(".scrubber");
    this.speedField = host.querySelector(".speed");
    this.unload();
    this.scrubber.addEventListener("input", () => this.seek(Number(this.scrubber.value)));
    this.speedField.addEventListener("change", () => this.draw());
    // A hidden tab gets no animation frames, so the race is paused until the tab is visible again.
    document.addEventListener("visibilitychange", () => (this.lastPicture = performance.now()));
  }

  // Removes the race. `time` is the race time that is shown, `next` the index of the next step to show, and `shownMs`
  // how long the race has been playing.
  unload() {
    this.steps = [];
    clearTimeout(this.catchUpTimer);
    this.catchUpTimer = undefined;
    this.pause();
    this.length = this.time = this.next = this.shownMs = 0;
    this.live = this.ended = false;
    this.forecast = undefined;
    this.solo = undefined;
    this.enable(false);
    this.draw();
  }

  // Opens a live race. `forecast` estimates its length.
  openLive(forecast) {
    this.unload();
    this.live = true;
    this.forecast = forecast;
    this.speedField.value = AUTO;
  }

  /** @param {ReadStep[]} steps */
  add(steps) {
    this.steps.push(...steps);
    this.length = this.steps.at(-1).at;
    this.updateSpeed();
  }

  // The live race is over, and becomes a replay.
  endLive() {
    this.live = false;
    this.updateSpeed();
    this.enable(this.loaded);
    this.draw();
  }

  // Loads a whole race, of which the screen shows nothing yet.
  /** @param {PlayedReel} reel */
  load(reel) {
    this.unload();
    this.steps = reel.steps;
    this.length = Math.max(0, ...reel.steps.map((step) => step.at));
    this.updateSpeed();
    this.enable(this.loaded);
    this.draw();
  }

  // Goes to the end of a race of which the screen already shows all steps.
  markAllShown() {
    this.pause();
    this.next = this.steps.length;
    this.showAtEnd();
  }

  // The race is at its end. No rest is left to compute a speed for, so the speed of a replay is shown.
  showAtEnd() {
    this.ended = true;
    this.time = this.length;
    this.autoSpeed = playbackSpeed(this.length);
    this.draw();
  }

  enable(on) {
    this.enabled = on;
    for (const control of this.host.querySelectorAll("button, input, select")) control.disabled = !on;
  }

  get loaded() {
    return this.steps.length > 0;
  }

  // Adapts the automatic speed, so that the rest of the race fills the rest of its playing time.
  updateSpeed() {
    const length = this.live ? Math.max(this.forecast.ms, this.length) : this.length;
    this.autoSpeed = playbackSpeed(length, this.shownMs, this.time);
  }

  // Race time over playing time.
  get speed() {
    return this.speedField.value === AUTO ? this.autoSpeed : Number(this.speedField.value);
  }

  get speedWords() {
    return this.loaded && !(this.live && this.time >= this.length) ? describeSpeed(this.speed) : "";
  }

  play() {
    if (!this.loaded || this.playing) return;
    if (!this.live && this.next >= this.steps.length) this.rewind();
    this.screen.begin();
    this.lastPicture = performance.now();
    this.run();
    this.draw();
  }

  run() {
    this.playing = requestAnimationFrame(() => this.tick());
  }

  pause() {
    if (this.playing) cancelAnimationFrame(this.playing);
    this.playing = 0;
    this.draw();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  tick() {
    const now = performance.now();
    const passed = now - this.lastPicture;
    if (passed < (this.live ? LIVE_PICTURE_MS : PICTURE_MS)) return this.run();
    this.lastPicture = now;
    this.time = Math.min(this.length, this.time + passed * this.speed);
    this.shownMs += passed;
    this.showUntil(this.time, false);
    this.draw();
    if (this.live || this.next < this.steps.length) return this.run();
    return this.skipToEnd();
  }

  rewind() {
    this.screen.clear();
    this.time = this.next = this.shownMs = 0;
    this.ended = false;
    this.updateSpeed();
  }

  showUntil(time, still) {
    let shown;
    while (this.next < this.steps.length && this.steps[this.next].at <= time) {
      shown = this.steps[this.next++];
      this.screen.showStep(shown, still);
    }
    this.screen.draw(this.time);
    if (shown) this.screen.cursor(shown);
  }

  // Soon shows all steps of a live race that have arrived, without motion. Several calls are combined into one update.
  catchUpSoon() {
    this.catchUpTimer ??= setTimeout(() => this.live && this.catchUp(), LIVE_PICTURE_MS);
  }

  catchUp() {
    this.catchUpTimer = undefined;
    this.time = this.length;
    this.showUntil(this.time, true);
    this.draw();
  }

  // Goes to a time. The screen can only add steps, so going back means starting over.
  seek(time) {
    if (!this.loaded || this.live) return;
    this.pause();
    this.screen.begin();
    if (time < this.time || this.next >= this.steps.length) this.rewind();
    this.time = time;
    this.showUntil(time, true);
    this.draw();
  }

  // Goes to the moment after step `index`; -1 is the start.
  goTo(index) {
    if (!this.loaded || this.live) return;
    this.pause();
    this.screen.begin();
    if (index + 1 < this.next || this.next >= this.steps.length) this.rewind();
    while (this.next <= index) this.screen.showStep(this.steps[this.next++], true);
    this.time = index < 0 ? 0 : this.steps[index].at;
    this.screen.draw(this.time);
    if (index >= 0) this.screen.cursor(this.steps[index]);
    this.draw();
  }

  // Moves one step back (`offset` -1) or forwards (1): of the lane that is shown alone, or of any lane.
  move(offset) {
    const isVisible = (step) => step && (this.solo === undefined || step.lane === this.solo);
    let index = this.next - 1 + offset;
    while (this.steps[index] && !isVisible(this.steps[index])) index += offset;
    if (index >= -1 && index < this.steps.length) this.goTo(index);
  }

  findStep(lane, step) {
    return this.steps.findIndex((candidate) => candidate.lane === lane && candidate.index === step);
  }

  // Shows all remaining steps at once, and the result.
  skipToEnd() {
    if (!this.loaded || this.live) return;
    this.pause();
    while (this.next < this.steps.length) this.screen.showStep(this.steps[this.next++], true);
    this.showAtEnd();
    this.screen.end();
  }

  // Disables the buttons that would change nothing: those to the start, the end and the result, when they are shown.
  disableIdle() {
    const idle = { back: this.next === 0, on: this.next >= this.steps.length, result: this.ended };
    for (const [name, changesNothing] of Object.entries(idle)) {
      const button = this.host.querySelector(`[data-do=${name}]`);
      if (button) button.disabled = !this.enabled || changesNothing;
    }
  }

  draw() {
    const playing = Boolean(this.playing);
    const button = this.host.querySelector("[data-do=play]");
    button.textContent = playing ? "❚❚" : "▶";
    button.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.scrubber.max = this.length;
    this.scrubber.value = this.time;
    this.scrubber.setAttribute("aria-valuetext", formatSeconds(this.time));
    this.host.querySelector(".time").textContent = `${(this.time / 1000).toFixed(2)} / ${formatSeconds(this.length)}`;
    const { options } = this.speedField;
    setText(options[0], this.enabled ? `auto: ${formatPlaybackSpeed(this.autoSpeed)}` : "auto");
    this.disableIdle();
    this.screen.setSpeedText(this.speedWords);
  }
}
