// The slow motion: a race's best step and a failed one, phase by phase, on the whole page. Space pauses, the arrow keys go
// to the next or previous phase, Esc closes.
import { button, make } from "./dom.js";
import { downloadBlob } from "./files.js";
import { film, inlineFonts, videoType, writeSvg } from "./film.js";
import { CALM } from "./motion.js";
import { drawScene, LENGTH_MS, PHASES, placeScene, readTheme, readTime, startOf } from "./picture.js";
import { makeScenes } from "./scenes.js";

const FAMILY = "Source Sans Pro";
const FILM = { width: 1280, height: 720 };
const WIDE = 1280;
const NARROW = 640;
const PICTURE_MS = 33;
const HOLD_MS = 1500;
const NONE = "No lane drafted in this race, so there is no step to show in slow motion.";
const NO_RACE = "Slow motion shows a step of a race: run one first, or open a recorded one.";
const NO_VIDEO = "This browser cannot record a video. Save the picture as SVG instead.";

export class SlowMotion {
  // `say` shows a sentence on the page.
  constructor(host, say) {
    this.say = say;
    this.scenes = [];
    this.playing = 0;
    this.node = make("dialog", "slow");
    this.node.setAttribute("aria-label", "A step in slow motion");
    this.node.tabIndex = -1;
    this.canvas = make("div", "canvas");
    this.status = make("p", "slow-status");
    this.toggler = button("Pause", "Pause or play (space)", () => this.toggle());
    const walk = [
      button("‹", "Previous phase (left arrow)", () => this.move(-1)),
      this.toggler,
      button("›", "Next phase (right arrow)", () => this.move(1)),
      button("Again", "From the beginning", () => this.restart()),
    ];
    this.filmer = button("Save video", "Save this step as a video, a loop for slides", () => this.saveVideo());
    const files = [button("Save SVG", "Save this picture as a file for slides", () => this.saveSvg()), this.filmer];
    const head = make("header");
    head.append(
      make("h2", "", "Slow motion"),
      ...walk,
      this.status,
      ...files,
      button("Close", "Close (Esc)", () => this.node.close()),
    );
    this.node.append(head, this.canvas);
    host.append(this.node);
    this.node.addEventListener("keydown", (event) => this.press(event));
    // Take the focus from a pressed button, so that the space bar pauses.
    this.node.addEventListener("click", () => this.node.focus());
    this.node.addEventListener("close", () => this.leave());
    new ResizeObserver(() => this.node.open && this.place()).observe(this.canvas);
  }

  open(reel) {
    if (!reel?.results?.length) return this.say(NO_RACE);
    this.scenes = makeScenes(reel);
    if (!this.scenes.length) return this.say(NONE);
    this.node.showModal();
    this.node.focus();
    this.toggler.hidden = CALM.matches;
    return this.restart();
  }

  leave() {
    this.pause();
    this.filming = undefined;
    this.canvas.replaceChildren();
  }

  restart() {
    this.at(0, CALM.matches ? stillOf(0) : 0);
    if (!CALM.matches) this.play();
  }

  // Shows a moment of a scene.
  at(scene, time) {
    const changed = this.scene !== this.scenes[scene];
    this.time = time;
    this.scene = this.scenes[scene];
    if (changed || !this.places) this.place();
    else this.draw();
  }

  place() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    const pictureWidth = width > height ? WIDE : NARROW;
    this.places = placeScene(this.scene, pictureWidth, Math.round((pictureWidth * height) / width));
    this.draw();
  }

  draw() {
    const picture = drawScene(this.scene, this.places, this.time, readTheme(this.node));
    this.canvas.replaceChildren(picture);
    this.drawn = performance.now();
    this.node.dataset.phase = PHASES[readTime(this.time).phase][0];
    this.node.dataset.scene = this.scenes.indexOf(this.scene);
  }

  play() {
    if (this.playing) return;
    this.last = performance.now();
    this.playing = requestAnimationFrame(() => this.tick());
    this.toggler.textContent = "Pause";
  }

  pause() {
    cancelAnimationFrame(this.playing);
    this.playing = 0;
    this.toggler.textContent = "Play";
  }

  toggle() {
    if (this.playing) this.pause();
    else if (this.isOver) this.restart();
    else this.play();
  }

  get number() {
    return this.scenes.indexOf(this.scene);
  }

  get isOver() {
    return this.number === this.scenes.length - 1 && this.time >= LENGTH_MS;
  }

  tick() {
    const now = performance.now();
    this.playing = requestAnimationFrame(() => this.tick());
    if (now - this.drawn < PICTURE_MS) return;
    const time = this.time + now - this.last;
    this.last = now;
    if (this.isOver) this.pause();
    else if (time < LENGTH_MS + HOLD_MS) this.at(this.number, time);
    else if (this.scenes[this.number + 1]) this.at(this.number + 1, 0);
  }

  // Goes to another phase: to its start while playing, else to its end.
  move(by) {
    const current = this.number * PHASES.length + readTime(this.time).phase;
    const target = Math.min(Math.max(current + by, 0), this.scenes.length * PHASES.length - 1);
    const phase = target % PHASES.length;
    this.last = performance.now();
    this.at(Math.floor(target / PHASES.length), this.playing ? startOf(phase) : stillOf(phase));
  }

  press(event) {
    const acts = {
      ArrowLeft: () => this.move(-1),
      ArrowRight: () => this.move(1),
      " ": () => (CALM.matches ? this.move(1) : this.toggle()),
      m: () => this.node.close(),
    };
    const act = acts[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " && event.target.closest?.("button")) return;
    event.preventDefault();
    // Otherwise the page's own handler would open the dialog again.
    event.stopPropagation();
    act();
  }

  nameFile(ending) {
    return `specrace-${this.scene.lane}-step-${this.scene.step}.${ending}`;
  }

  // Makes pictures for files, in the shape of a slide whatever the window's shape.
  async pictureMaker() {
    const fonts = await (this.fonts ??= inlineFonts(FAMILY));
    const { scene } = this;
    const places = placeScene(scene, FILM.width, FILM.height);
    const theme = readTheme(this.node);
    return (time) => writeSvg(drawScene(scene, places, time, theme), fonts);
  }

  async saveSvg() {
    const { time } = this;
    const pictureAt = await this.pictureMaker();
    downloadBlob(pictureAt(time), this.nameFile("svg"));
  }

  async saveVideo() {
    if (this.filming) return void (this.filming = undefined);
    const type = videoType();
    if (!type) return void (this.status.textContent = NO_VIDEO);
    this.pause();
    const name = this.nameFile(type.startsWith("video/webm") ? "webm" : "mp4");
    const filming = (this.filming = {});
    this.filmer.textContent = "Stop";
    try {
      const pictureAt = await this.pictureMaker();
      const video = await film({
        pictureAt,
        length: LENGTH_MS,
        ...FILM,
        going: (time) => this.showFilming(filming, time),
      });
      if (this.filming === filming) downloadBlob(video, name);
    } finally {
      this.filming = undefined;
      this.filmer.textContent = "Save video";
      this.status.textContent = "";
    }
  }

  // Shows how far the video is; false once it was stopped.
  showFilming(filming, time) {
    this.status.textContent = `Recording: ${Math.floor(time / 1000)} of ${Math.round(LENGTH_MS / 1000)} s`;
    return this.filming === filming;
  }
}

// The last moment of a phase.
function stillOf(phase) {
  return startOf(phase) + PHASES[phase][1] - 1;
}
