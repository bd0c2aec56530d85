// The replay of a reel in race time. The screen draws; the player knows which steps are on it.
import { seconds } from "./format.js";

export class Player {
  constructor(host, screen) {
    this.host = host;
    this.screen = screen;
    this.scrubber = host.querySelector(".scrubber");
    this.speed = 1;
    this.unload();
    this.scrubber.addEventListener("input", () => this.seek(Number(this.scrubber.value)));
    host.querySelector(".speed").addEventListener("change", (event) => (this.speed = Number(event.target.value)));
    // A hidden tab gets no animation frames: its clock stands still until it is seen again.
    document.addEventListener("visibilitychange", () => (this.last = performance.now()));
  }

  unload() {
    this.pause();
    this.steps = [];
    this.length = this.time = this.next = 0;
    this.solo = undefined;
    this.enable(false);
    this.draw();
  }

  // A reel that is on the screen already, whole.
  load(reel) {
    this.pause();
    this.steps = reel.steps;
    this.length = Math.max(0, ...reel.steps.map((step) => step.at));
    this.scrubber.max = this.length;
    this.time = this.length;
    this.next = this.steps.length;
    this.enable(this.steps.length > 0);
    this.draw();
  }

  enable(on) {
    for (const control of this.host.querySelectorAll("button, input, select")) control.disabled = !on;
  }

  get loaded() {
    return this.steps.length > 0;
  }

  play() {
    if (!this.loaded || this.playing) return;
    if (this.next >= this.steps.length) this.rewind();
    this.screen.begin();
    this.last = performance.now();
    this.playing = requestAnimationFrame(() => this.tick());
    this.draw();
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
    this.time = Math.min(this.length, this.time + (now - this.last) * this.speed);
    this.last = now;
    this.showUntil(this.time, false);
    this.draw();
    if (this.next < this.steps.length) this.playing = requestAnimationFrame(() => this.tick());
    else this.result();
  }

  rewind() {
    this.screen.clear();
    this.time = this.next = 0;
  }

  showUntil(time, still) {
    let shown;
    while (this.next < this.steps.length && this.steps[this.next].at <= time) {
      shown = this.steps[this.next++];
      this.screen.show(shown, still);
    }
    this.screen.draw(this.time);
    if (shown) this.screen.cursor(shown);
  }

  // What the screen shows at a time: steps are only ever added, so a way back starts anew.
  seek(time) {
    if (!this.loaded) return;
    this.pause();
    this.screen.begin();
    if (time < this.time || this.next >= this.steps.length) this.rewind();
    this.time = time;
    this.showUntil(time, true);
    this.draw();
  }

  // To where step `index` has just been shown; -1 is the start.
  goTo(index) {
    if (!this.loaded) return;
    this.pause();
    this.screen.begin();
    if (index + 1 < this.next || this.next >= this.steps.length) this.rewind();
    while (this.next <= index) this.screen.show(this.steps[this.next++], true);
    this.time = index < 0 ? 0 : this.steps[index].at;
    this.screen.draw(this.time);
    if (index >= 0) this.screen.cursor(this.steps[index]);
    this.draw();
  }

  // One step back or on: of the lane that stands alone, or of any.
  move(by) {
    const wanted = (step) => step && (this.solo === undefined || step.lane === this.solo);
    let index = this.next - 1 + by;
    while (this.steps[index] && !wanted(this.steps[index])) index += by;
    if (index >= -1 && index < this.steps.length) this.goTo(index);
  }

  find(lane, step) {
    return this.steps.findIndex((each) => each.lane === lane && each.index === step);
  }

  result() {
    if (!this.loaded) return;
    this.pause();
    while (this.next < this.steps.length) this.screen.show(this.steps[this.next++], true);
    this.time = this.length;
    this.draw();
    this.screen.end();
  }

  draw() {
    const playing = Boolean(this.playing);
    const button = this.host.querySelector("[data-do=play]");
    button.textContent = playing ? "❚❚" : "▶";
    button.setAttribute("aria-label", playing ? "Pause" : "Play");
    this.scrubber.value = this.time;
    this.scrubber.setAttribute("aria-valuetext", seconds(this.time));
    this.host.querySelector(".time").textContent = `${(this.time / 1000).toFixed(2)} / ${seconds(this.length)}`;
  }
}
