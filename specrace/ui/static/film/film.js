// The film: a whole race as a video for slides or for phones. It is shown while it is recorded, in real time.
import { button, make } from "../lib/dom.js";
import { downloadBlob } from "../lib/files.js";
import { nameFile } from "../lib/share.js";
import { FONT } from "../explanations/layout.js";
import { readTheme } from "../explanations/picture.js";
import { FilmPicture } from "./film_picture.js";
import { endingOf, recordVideo, videoType } from "./video.js";

const NO_RACE = "A film shows a race: run one first, or open a recorded one.";
const UNFINISHED = "This race is not over; wait for its end, then make its film.";
const NO_VIDEO = "This browser cannot record a video.";
const SAVE = "Save film";

export class Film {
  // `panes` returns the stage's panes, which have the lanes' colours; `announce` shows a sentence on the page.
  constructor(host, { panes, announce }) {
    this.panes = panes;
    this.announce = announce;
    this.shape = "wide";
    // Options of the picture, such as its length.
    this.options = {};
    this.filming = undefined;
    this.node = make("dialog", "film");
    this.node.setAttribute("aria-label", "The race as a film");
    this.canvas = make("canvas");
    this.status = make("p", "film-status");
    this.shapes = {
      wide: button("16:9", "Wide, for slides", () => this.choose("wide")),
      tall: button("9:16", "Upright, for phones", () => this.choose("tall")),
    };
    this.saveButton = button(SAVE, "Record the race and save it as a video", () => this.save());
    const head = make("header");
    head.append(
      make("h2", "", "Film"),
      ...Object.values(this.shapes),
      this.saveButton,
      this.status,
      button("Close", "Close (Esc)", () => this.node.close()),
    );
    const screen = make("div", "film-screen");
    screen.append(this.canvas);
    this.node.append(head, screen);
    host.append(this.node);
    this.node.addEventListener("close", () => (this.filming = undefined));
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
    if (this.filming) return;
    this.shape = shape;
    for (const [name, choice] of Object.entries(this.shapes))
      choice.setAttribute("aria-pressed", String(name === shape));
    const hues = this.panes().map(({ node }) => getComputedStyle(node).getPropertyValue("--hue").trim());
    this.picture = new FilmPicture(this.reel, { shape, theme: readTheme(this.node), hues, ...this.options });
    Object.assign(this.canvas, { width: this.picture.width, height: this.picture.height });
    this.picture.draw(this.canvas.getContext("2d"), this.picture.length);
  }

  async save() {
    if (this.filming) {
      this.filming = undefined;
      return;
    }
    const type = videoType();
    if (!type) {
      this.status.textContent = NO_VIDEO;
      return;
    }
    // A new object, so that this recording is not confused with a later one.
    const filming = (this.filming = {});
    const { picture } = this;
    this.saveButton.textContent = "Stop";
    try {
      const video = await recordVideo({
        canvas: this.canvas,
        draw: (context, time) => picture.draw(context, time),
        length: picture.length,
        shouldContinue: (time) => this.showFilming(filming, time),
      });
      if (this.filming === filming) downloadBlob(video, nameFile(this.reel.head.question, endingOf(video.type)));
    } finally {
      this.filming = undefined;
      this.saveButton.textContent = SAVE;
      this.status.textContent = "";
    }
  }

  // Shows the progress of the recording. Returns false once the visitor has stopped it.
  showFilming(filming, time) {
    const seconds = `Recording: ${Math.floor(time / 1000)} of ${Math.round(this.picture.length / 1000)} s`;
    if (this.status.textContent !== seconds) this.status.textContent = seconds;
    return this.filming === filming;
  }
}
