// A tour in five chapters: what drafting is, why it is fast, why the text stays the same, and when it does not pay. It
// plays recorded races automatically. Space pauses, the arrow keys go forwards and back, Esc leaves.
import { button, make, svg } from "../lib/dom.js";
import { writeChapters } from "./chapters.js";
import { focusQuestion } from "../lib/gradio.js";
import { REDUCED_MOTION } from "../lib/motion.js";
import { drawScene, fitScene, PHASES, readTheme, startOf } from "./picture.js";
import { readReel } from "../stage/reel.js";
import { formatMs } from "./scenes.js";

// The shortest time between two pictures.
const PICTURE_MS = 33;
// A narrower page gets a narrower picture of the bars.
const NARROW_PX = 900;
// The recorded races that the tour shows: one in which drafting pays, and one in which it does not.
const RACES = ["smollm2-copying", "smollm2-losing"];
const UNFIT = "The recorded races of this server do not suit the tour.";

export class Tour {
  // `tools` are the tools around the stage.
  constructor(stage, tools) {
    this.stage = stage;
    this.proof = tools.proof;
    this.node = make("section", "tour");
    this.node.hidden = true;
    this.node.setAttribute("aria-label", "Tour");
    this.canvas = make("div", "tour-canvas");
    this.title = make("b", "tour-title");
    this.words = make("p", "tour-words");
    this.playButton = button("Pause", "Pause or go on (space)", () => this.toggle());
    this.progress = make("div", "tour-progress");
    const head = make("header");
    head.append(
      this.title,
      this.progress,
      button("‹", "Back (left arrow)", () => this.move(-1)),
      this.playButton,
      button("›", "On (right arrow)", () => this.move(1)),
      button("Leave", "Leave the tour (Esc)", () => this.leave()),
    );
    const foot = make("footer");
    foot.append(head, this.words);
    this.node.append(this.canvas, foot);
    stage.node.append(this.node);
    document.addEventListener("keydown", (event) => this.handleKey(event), { capture: true });
  }

  get open() {
    return !this.node.hidden;
  }

  // Whether the page has the recorded races that the tour needs.
  get available() {
    const { cards } = this.stage.gallery;
    return RACES.every((race) => cards.some(({ name }) => name === race));
  }

  begin() {
    return this.stage.gallery.playAll(RACES, (reels) => this.start(...reels.map(readReel)));
  }

  start(win, lose) {
    const chapters = writeChapters(win, lose);
    if (!chapters.length) return this.stage.showError(UNFIT);
    this.shots = chapters.flatMap(({ title, shots }, number) =>
      shots.map((shot) => ({
        ...shot,
        chapter: number + 1,
        title: `${number + 1} of ${chapters.length}: ${title}`,
      })),
    );
    this.progress.replaceChildren(...chapters.map(() => make("i")));
    if (!this.open) {
      this.previousView = document.body.dataset.view;
      this.previousReel = this.stage.reel;
    }
    document.body.dataset.view = "stage";
    this.node.hidden = false;
    this.paused = REDUCED_MOTION.matches;
    return this.go(0);
  }

  leave() {
    cancelAnimationFrame(this.frame);
    this.closeProof();
    this.stage.player.pause();
    this.node.hidden = true;
    document.body.dataset.view = this.previousView ?? "bench";
    delete document.body.dataset.tour;
    this.showPrevious();
    if (this.shot?.view === "end") focusQuestion();
    else this.stage.node.focus({ preventScroll: true });
  }

  // Shows the result of the race that the tour replaced or, if there was none, all lanes of the tour's last race.
  showPrevious() {
    const { stage, previousReel } = this;
    stage.paneRow.toggleSolo(undefined);
    if (!previousReel?.results) return;
    stage.playReel(previousReel);
    stage.player.skipToEnd();
  }

  go(number) {
    const shot = this.shots[number];
    if (!shot) return this.leave();
    cancelAnimationFrame(this.frame);
    this.number = number;
    this.shot = shot;
    this.time = 0;
    this.closeProof();
    this.title.textContent = shot.title;
    document.body.dataset.tour = String(shot.chapter);
    this.showProgress(0);
    this.words.textContent = shot.words;
    this.node.dataset.shot = String(number);
    if (shot.view !== "stay") this.canvas.hidden = !["scene", "figure"].includes(shot.view);
    this.showShot(shot);
    this.playButton.textContent = this.paused ? "Play" : "Pause";
    // At the end nothing plays.
    this.playButton.disabled = shot.view === "end";
    return this.run();
  }

  run() {
    this.last = performance.now();
    this.frame = requestAnimationFrame(() => this.tick());
  }

  tick() {
    const now = performance.now();
    const passed = now - this.last;
    this.frame = requestAnimationFrame(() => this.tick());
    if (passed < PICTURE_MS) return;
    this.last = now;
    if (this.paused) return;
    this.time += passed;
    const share = Math.min(1, this.time / this.shot.ms);
    this.showProgress(share);
    if (this.shot.view === "scene") this.drawScene(share);
    if (share === 1 && this.shot.view !== "end") this.go(this.number + 1);
  }

  // Fills the progress bar: the segments of earlier chapters wholly, this chapter's as far as its shots have played.
  // `share` of the current shot is over.
  showProgress(share) {
    const { chapter } = this.shot;
    const shots = this.shots.filter((shot) => shot.chapter === chapter);
    const done = (shots.indexOf(this.shot) + share) / shots.length;
    const segments = /** @type {HTMLElement[]} */ ([...this.progress.children]);
    segments.forEach((segment, index) => {
      const number = index + 1;
      const isCurrent = number === chapter;
      const filled = isCurrent ? done : Number(number < chapter);
      segment.style.setProperty("--done", `${100 * filled}%`);
      segment.classList.toggle("now", isCurrent);
    });
  }

  move(by) {
    this.go(Math.max(0, this.number + by));
  }

  toggle() {
    if (this.playButton.disabled) return;
    this.paused = !this.paused;
    this.playButton.textContent = this.paused ? "Play" : "Pause";
    const { player } = this.stage;
    if (this.shot.view !== "race" && this.shot.view !== "stay") return;
    if (this.paused) player.pause();
    else if (player.next < player.steps.length) player.play();
  }

  handleKey(event) {
    if (!this.open || event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      ArrowLeft: () => this.move(-1),
      ArrowRight: () => this.move(1),
      // A presenter's remote control sends these two.
      PageUp: () => this.move(-1),
      PageDown: () => this.move(1),
      Escape: () => this.leave(),
      " ": () => this.toggle(),
    };
    const action = actions[event.key];
    // The page's own key handler might begin another race behind the tour.
    if (event.key.length === 1 && event.key !== " ") event.stopPropagation();
    if (!action || (event.key === " " && event.target.closest?.("button"))) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  }

  showShot(shot) {
    const { player } = this.stage;
    const actions = {
      race: () => this.showRace(shot),
      scene: () => this.showScene(shot),
      figure: () => this.canvas.replaceChildren(drawBars(shot.bars, this.canvas.clientWidth)),
      proof: () => this.proof.open(shot.reel, true),
      result: () => player.skipToEnd(),
      end: () => {},
      stay: () => {},
    };
    actions[shot.view]();
  }

  showRace({ reel, soloLane }) {
    const { stage } = this;
    stage.playReel(reel);
    const lane = reel.head.lanes.findIndex((candidate) => candidate.lane === soloLane);
    if (lane >= 0) stage.paneRow.toggleSolo(lane);
  }

  showScene({ scene, from, to }) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.places = fitScene(scene, width, height);
    this.range = [startOf(from), startOf(to) + PHASES[to][1] - 1];
    this.drawScene(REDUCED_MOTION.matches ? 1 : 0);
  }

  drawScene(share) {
    const [from, to] = this.range;
    const picture = drawScene(this.shot.scene, this.places, from + share * (to - from), readTheme(this.node));
    this.canvas.replaceChildren(picture);
  }

  closeProof() {
    if (this.proof.node.open) this.proof.node.close();
  }
}

// Draws the times of passes as bars on one scale, in a picture for an area of this width.
function drawBars(bars, width) {
  const longest = Math.max(...bars.map(([, ms]) => ms));
  const whole = width < NARROW_PX ? 600 : 1200;
  const picture = svg("svg", {
    viewBox: `0 0 ${whole} 420`,
    class: "tour-bars",
    role: "img",
    "aria-label": "Times of passes",
  });
  bars.forEach(([name, ms], index) => {
    const y = 30 + 130 * index;
    const bar = Math.max(4, (0.75 * whole * ms) / longest);
    picture.append(
      svg("text", { x: 30, y: y + 30, class: "tour-name" }, name),
      svg("rect", { x: 30, y: y + 44, width: bar, height: 48, rx: 6 }),
      svg("text", { x: 46 + bar, y: y + 80, class: "tour-ms" }, formatMs(ms)),
    );
  });
  return picture;
}
