// The slow motion: a race's best step and a failed one, phase by phase, on the whole page. Space pauses, the arrow keys
// show the next or previous phase, Esc closes.
import { button, make } from "../lib/dom.js";
import { downloadBlob } from "../lib/files.js";
import { inlineFonts, paint, writeSvg } from "./picture_files.js";
import { VideoButton } from "../film/video.js";
import { REDUCED_MOTION } from "../lib/motion.js";
import { drawScene, fitScene, LENGTH_MS, PHASES, placeScene, readTheme, readTime, startOf } from "./picture.js";
import { makeScenes } from "./scenes.js";

const FAMILY = "Source Sans Pro";
// The size of a saved picture or video, in pixels.
const FILE_SIZE = { width: 1280, height: 720 };
// The shortest time between two pictures.
const PICTURE_MS = 33;
// How long the end of a scene stays before the next one begins.
const HOLD_MS = 1500;
const NO_DRAFTS = "No lane drafted in this race, so there is no step to show in slow motion.";
const NO_RACE = "Slow motion shows a step of a race: run one first, or open a recorded one.";
const NO_VIDEO = "This browser cannot record a video. Save the picture as SVG instead.";

export class SlowMotion {
  // `announce` shows a sentence on the page.
  constructor(host, announce) {
    this.announce = announce;
    this.scenes = [];
    this.playing = 0;
    this.fonts = undefined;
    this.node = make("dialog", "slow");
    this.node.setAttribute("aria-label", "A step in slow motion");
    this.node.tabIndex = -1;
    this.canvas = make("div", "canvas");
    this.status = make("p", "slow-status");
    this.playButton = button("Pause", "Pause or play (space)", () => this.toggle());
    const controls = [
      button("‹", "Previous phase (left arrow)", () => this.move(-1)),
      this.playButton,
      button("›", "Next phase (right arrow)", () => this.move(1)),
      button("Again", "From the beginning", () => this.restart()),
    ];
    const videoButton = button("Save video", "Save this step as a video, a loop for slides", () => this.saveVideo());
    this.video = new VideoButton(videoButton, this.status, NO_VIDEO);
    const files = [button("Save SVG", "Save this picture as a file for slides", () => this.saveSvg()), videoButton];
    const head = make("header");
    head.append(
      make("h2", "", "Slow motion"),
      ...controls,
      this.status,
      ...files,
      button("Close", "Close (Esc)", () => this.node.close()),
    );
    this.node.append(head, this.canvas);
    host.append(this.node);
    this.node.addEventListener("keydown", (event) => this.handleKey(event));
    // Take the focus from a pressed button, so that the space bar pauses.
    this.node.addEventListener("click", () => this.node.focus());
    this.node.addEventListener("close", () => this.cleanUp());
    new ResizeObserver(() => this.node.open && this.layOut()).observe(this.canvas);
  }

  open(reel) {
    if (!reel?.results?.length) return this.announce(NO_RACE);
    this.scenes = makeScenes(reel);
    if (!this.scenes.length) return this.announce(NO_DRAFTS);
    this.node.showModal();
    this.node.focus();
    this.playButton.hidden = REDUCED_MOTION.matches;
    return this.restart();
  }

  cleanUp() {
    this.pause();
    this.video.stop();
    this.canvas.replaceChildren();
  }

  restart() {
    this.showMoment(0, REDUCED_MOTION.matches ? endOf(0) : 0);
    if (!REDUCED_MOTION.matches) this.play();
  }

  // Shows a moment of a scene.
  showMoment(scene, time) {
    const changed = this.scene !== this.scenes[scene];
    this.time = time;
    this.scene = this.scenes[scene];
    if (changed || !this.places) this.layOut();
    else this.draw();
  }

  layOut() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    this.places = fitScene(this.scene, width, height);
    this.draw();
  }

  draw() {
    const picture = drawScene(this.scene, this.places, this.time, readTheme(this.node));
    this.canvas.replaceChildren(picture);
    this.drawn = performance.now();
    this.node.dataset.phase = PHASES[readTime(this.time).phase][0];
    this.node.dataset.scene = String(this.sceneNumber);
  }

  play() {
    if (this.playing) return;
    this.last = performance.now();
    this.playing = requestAnimationFrame(() => this.tick());
    this.playButton.textContent = "Pause";
  }

  pause() {
    cancelAnimationFrame(this.playing);
    this.playing = 0;
    this.playButton.textContent = "Play";
  }

  toggle() {
    if (this.playing) this.pause();
    else if (this.isOver) this.restart();
    else this.play();
  }

  get sceneNumber() {
    return this.scenes.indexOf(this.scene);
  }

  get isOver() {
    return this.sceneNumber === this.scenes.length - 1 && this.time >= LENGTH_MS;
  }

  tick() {
    const now = performance.now();
    this.playing = requestAnimationFrame(() => this.tick());
    if (now - this.drawn < PICTURE_MS) return;
    const time = this.time + now - this.last;
    this.last = now;
    if (this.isOver) this.pause();
    else if (time < LENGTH_MS + HOLD_MS) this.showMoment(this.sceneNumber, time);
    else if (this.scenes[this.sceneNumber + 1]) this.showMoment(this.sceneNumber + 1, 0);
  }

  // Moves `offset` phases: to a phase's start while playing, else to its end.
  move(offset) {
    const current = this.sceneNumber * PHASES.length + readTime(this.time).phase;
    const target = Math.min(Math.max(current + offset, 0), this.scenes.length * PHASES.length - 1);
    const phase = target % PHASES.length;
    this.last = performance.now();
    this.showMoment(Math.floor(target / PHASES.length), this.playing ? startOf(phase) : endOf(phase));
  }

  handleKey(event) {
    const actions = {
      ArrowLeft: () => this.move(-1),
      ArrowRight: () => this.move(1),
      // A presenter's remote control sends these two.
      PageUp: () => this.move(-1),
      PageDown: () => this.move(1),
      " ": () => (REDUCED_MOTION.matches ? this.move(1) : this.toggle()),
      m: () => this.node.close(),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " && event.target.closest?.("button")) return;
    event.preventDefault();
    // Otherwise the page's own handler would open the dialog again.
    event.stopPropagation();
    action();
  }

  nameFile(ending) {
    return `specrace-${this.scene.lane}-step-${this.scene.step}.${ending}`;
  }

  // Returns a function from a time to the picture's file. The picture has a slide's shape, whatever the window's.
  async makePictureAt() {
    const fonts = await (this.fonts ??= inlineFonts(FAMILY));
    const { scene } = this;
    const places = placeScene(scene, FILE_SIZE.width, FILE_SIZE.height);
    const theme = readTheme(this.node);
    return (time) => writeSvg(drawScene(scene, places, time, theme), fonts);
  }

  async saveSvg() {
    const { time } = this;
    const pictureAt = await this.makePictureAt();
    downloadBlob(pictureAt(time), this.nameFile("svg"));
  }

  saveVideo() {
    return this.video.press(async (ending) => {
      this.pause();
      const name = this.nameFile(ending);
      const pictureAt = await this.makePictureAt();
      const draw = (context, time) => paint(context, pictureAt(time));
      return { name, canvas: Object.assign(make("canvas"), FILE_SIZE), draw, length: LENGTH_MS };
    });
  }
}

// The last moment of a phase.
function endOf(phase) {
  return startOf(phase) + PHASES[phase][1] - 1;
}
