// The film: a whole race as a video for slides or for phones. It is shown while it is recorded, in real time.
import { button, make } from "../lib/dom.js";
import { nameFile } from "../lib/share.js";
import { FONT } from "../explanations/layout.js";
import { readTheme } from "../explanations/picture.js";
import { FilmPicture } from "./film_picture.js";
import { VideoButton } from "./video.js";

const NO_RACE = "A film shows a race: run one first, or open a recorded one.";
const UNFINISHED = "This race is not over; wait for its end, then make its film.";
const NO_VIDEO = "This browser cannot record a video.";

export class Film {
  // `panes` returns the stage's panes, which have the lanes' colours; `announce` shows a sentence on the page.
  constructor(host, { panes, announce }) {
    this.panes = panes;
    this.announce = announce;
    // At first the shape that suits this window.
    this.shape = innerHeight > innerWidth ? "tall" : "wide";
    // More options of FilmPicture, such as `playMs`.
    this.options = {};
    this.node = make("dialog", "film");
    this.node.setAttribute("aria-label", "The race as a film");
    this.canvas = make("canvas");
    this.status = make("p", "film-status");
    this.shapes = {
      wide: button("16:9", "Wide, for slides", () => this.choose("wide")),
      tall: button("9:16", "Upright, for phones", () => this.choose("tall")),
    };
    const saveButton = button("Save film", "Record the race and save it as a video", () => this.save());
    this.video = new VideoButton(saveButton, this.status, NO_VIDEO);
    const head = make("header");
    head.append(
      make("h2", "", "Film"),
      ...Object.values(this.shapes),
      saveButton,
      this.status,
      button("Close", "Close (Esc)", () => this.node.close()),
    );
    const screen = make("div", "film-screen");
    screen.append(this.canvas);
    this.node.append(head, screen);
    host.append(this.node);
    this.node.addEventListener("close", () => this.video.stop());
  }

  async open(reel) {
    if (!reel) return this.announce(NO_RACE);
    if (!reel.results?.length) return this.announce(UNFINISHED);
    this.reel = reel;
    this.node.showModal();
    this.status.textContent = "";
    await Promise.all([400, 700].map((weight) => document.fonts.load(`${weight} 26px ${FONT}`)));
    return this.choose(this.shape);
  }

  // Shows the last picture of the film in a shape.
  choose(shape) {
    if (this.video.recording) return;
    this.shape = shape;
    for (const [name, choice] of Object.entries(this.shapes))
      choice.setAttribute("aria-pressed", String(name === shape));
    const hues = this.panes().map(({ node }) => getComputedStyle(node).getPropertyValue("--hue").trim());
    this.picture = new FilmPicture(this.reel, { shape, theme: readTheme(this.node), hues, ...this.options });
    Object.assign(this.canvas, { width: this.picture.width, height: this.picture.height });
    this.picture.draw(this.canvas.getContext("2d"), this.picture.length);
  }

  save() {
    const { canvas, picture } = this;
    const draw = (context, time) => picture.draw(context, time);
    return this.video.press((ending) => ({
      name: nameFile(this.reel.head.question, ending),
      canvas,
      draw,
      length: picture.length,
    }));
  }
}
