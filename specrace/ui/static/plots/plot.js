// One plot: a card with a drawing that can be downloaded as PNG, SVG and CSV.
import { PLOT } from "./axes.js";
import { button, make, svg } from "../lib/dom.js";
import { breakLines } from "../explanations/layout.js";
import { inlineFonts } from "../explanations/picture_files.js";
import { toCsv } from "../lib/csv.js";
import { downloadBlob } from "../lib/files.js";

// In a saved picture: the height of the title, and the margin, size and height of the lines that name the source.
const HEAD_PX = 38;
const MARGIN_PX = 14;
const SOURCE_SIZE = 14;
const LINE_PX = 19;

// The style properties of a drawing that its saved copy has as well.
const SVG_STYLES = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "font-size",
  "font-weight",
  "font-family",
  "text-anchor",
  "opacity",
];

export class Plot {
  /** @type {Promise<string> | undefined} */
  static fonts = undefined;

  // `columns` and `rows` are those of the CSV. `draw(picture, width)` draws into an SVG element; it returns the height
  // in pixels if that is not PLOT.height.
  constructor({ name, title, words, columns, rows, draw }) {
    this.name = name;
    this.columns = columns;
    this.rows = rows;
    this.paint = draw;
    this.width = 0;
    // A function that marks a moment of the race. A plot over time sets it once it is drawn.
    this.point = undefined;
    // Where the figures come from; saved pictures say so.
    this.source = "";
    this.node = make("figure", "plot");
    this.node.dataset.plot = name;
    const head = make("figcaption");
    const tools = make("span", "tools");
    for (const [format, act] of [
      ["PNG", () => this.savePng()],
      ["SVG", () => this.saveSvg()],
      ["CSV", () => this.saveCsv()],
    ]) {
      tools.append(button(format, `Download “${title}” as ${format}`, act));
    }
    head.append(make("h3", "", title), tools);
    this.canvas = make("div", "canvas");
    this.title = title;
    this.node.append(head, this.canvas, make("p", "", words));
  }

  draw() {
    const width = Math.floor(this.canvas.clientWidth);
    if (!width || width === this.width) return;
    this.width = width;
    const picture = svg("svg", { width, height: PLOT.height, role: "img", "aria-label": this.title });
    const height = this.paint(picture, width) ?? PLOT.height;
    picture.setAttribute("height", String(height));
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.canvas.replaceChildren(picture);
  }

  saveCsv() {
    const lines = toCsv([this.columns, ...this.rows]);
    downloadBlob(new Blob([lines], { type: "text/csv" }), `specrace-${this.name}.csv`);
  }

  // The drawing as SVG text that needs no style sheet: with its title, its source and its background, but
  // without the replay's cursor. `fonts`: CSS rules that contain the fonts.
  toSvgText(fonts) {
    const shown = this.canvas.firstElementChild;
    const copy = this.copyDrawing(shown);
    const [width, height] = ["width", "height"].map((name) => Number(shown.getAttribute(name)));
    const { color, fontFamily } = getComputedStyle(this.node.querySelector("h3"));
    const source = breakLines(this.source, width - 2 * MARGIN_PX, SOURCE_SIZE);
    const words = { fill: color, "font-family": fontFamily, x: MARGIN_PX };
    const whole = HEAD_PX + height + source.length * LINE_PX + MARGIN_PX;
    const picture = svg("svg", { width, height: whole, viewBox: `0 0 ${width} ${whole}` });
    picture.append(
      svg("style", {}, fonts),
      svg("rect", { width, height: whole, fill: getComputedStyle(this.node).backgroundColor }),
      svg("text", { ...words, y: 25, "font-size": 18, "font-weight": 700 }, this.title),
      copy,
      ...source.map((line, index) =>
        svg("text", { ...words, y: HEAD_PX + height + (index + 1) * LINE_PX, "font-size": SOURCE_SIZE }, line),
      ),
    );
    return new XMLSerializer().serializeToString(picture);
  }

  // The content of a drawing, with its style in attributes.
  copyDrawing(shown) {
    const copy = svg("g", { transform: `translate(0 ${HEAD_PX})` });
    copy.append(...shown.cloneNode(true).childNodes);
    const originals = shown.querySelectorAll("*");
    for (const [index, node] of [...copy.querySelectorAll("*")].entries()) {
      const style = getComputedStyle(originals[index]);
      for (const name of SVG_STYLES)
        /** @type {SVGElement} */ (node).style.setProperty(name, style.getPropertyValue(name));
    }
    for (const cursor of copy.querySelectorAll(".now")) cursor.remove();
    return copy;
  }

  async makePicture() {
    return this.toSvgText(await (Plot.fonts ??= inlineFonts("Source Sans Pro")));
  }

  async saveSvg() {
    downloadBlob(new Blob([await this.makePicture()], { type: "image/svg+xml" }), `specrace-${this.name}.svg`);
  }

  // Saves the picture at twice its size.
  async savePng() {
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(await this.makePicture())}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = 2 * image.width;
    canvas.height = 2 * image.height;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => downloadBlob(blob, `specrace-${this.name}.png`), "image/png");
  }
}
