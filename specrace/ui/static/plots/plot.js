// One plot: a card with a drawing that can be downloaded as PNG, SVG and CSV.
import { PLOT } from "./axes.js";
import { button, make, svg } from "../lib/dom.js";
import { toCsv } from "../lib/csv.js";
import { downloadBlob } from "../lib/files.js";

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
  constructor({ name, title, words, columns, rows, draw }) {
    this.name = name;
    this.columns = columns;
    this.rows = rows;
    this.paint = draw;
    this.width = 0;
    // A function that marks a moment of the race. A plot over time sets it once it is drawn.
    this.point = undefined;
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

  // The drawing as it looks now, on the page's background, as SVG text that needs no style sheet.
  toSvgText() {
    const shown = this.canvas.firstElementChild;
    const copy = /** @type {Element} */ (shown.cloneNode(true));
    /** @type {NodeListOf<SVGElement>} */
    const originals = shown.querySelectorAll("*");
    /** @type {NodeListOf<SVGElement>} */
    const copies = copy.querySelectorAll("*");
    copies.forEach((node, index) => {
      const original = originals[index];
      const style = getComputedStyle(original);
      for (const name of SVG_STYLES) node.style.setProperty(name, style.getPropertyValue(name));
      // The file has no font. The text of a substitute font is stretched to this width, so that it fits.
      if (!(original instanceof SVGTextElement) || !node.textContent) return;
      node.setAttribute("textLength", String(original.getComputedTextLength()));
      node.setAttribute("lengthAdjust", "spacingAndGlyphs");
    });
    const background = getComputedStyle(this.node).backgroundColor;
    copy.prepend(svg("rect", { width: "100%", height: "100%", fill: background }));
    return new XMLSerializer().serializeToString(copy);
  }

  saveSvg() {
    downloadBlob(new Blob([this.toSvgText()], { type: "image/svg+xml" }), `specrace-${this.name}.svg`);
  }

  // Saves the drawing as a picture of twice its size.
  async savePng() {
    const shown = this.canvas.firstElementChild;
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(this.toSvgText())}`;
    await image.decode();
    const sheet = document.createElement("canvas");
    const pen = sheet.getContext("2d");
    sheet.width = 2 * shown.clientWidth;
    sheet.height = 2 * shown.clientHeight;
    pen.drawImage(image, 0, 0, sheet.width, sheet.height);
    sheet.toBlob((blob) => downloadBlob(blob, `specrace-${this.name}.png`), "image/png");
  }
}
