import { inlineFonts, paint, writeSvg } from "../../../specrace/ui/static/explanations/picture_files.js";
import { svg } from "../../../specrace/ui/static/lib/dom.js";

const square = (fill) => {
  const picture = svg("svg", { width: 32, height: 32, viewBox: "0 0 32 32" });
  picture.append(svg("rect", { width: 32, height: 32, fill }), svg("text", {}, "a < b & c"));
  return picture;
};

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a picture's file is complete": async () => {
    const text = await writeSvg(square("red"), '@font-face{font-family:"x"}').text();
    const read = new DOMParser().parseFromString(text, "image/svg+xml");
    return [
      [
        read.querySelector("parsererror"),
        read.querySelector("text").textContent,
        read.querySelector("style").textContent,
      ],
      [null, "a < b & c", '@font-face{font-family:"x"}'],
    ];
  },
  "no font face is written if the page has none": async () => [await inlineFonts("No such family"), ""],
  "a font face of the page is written into the file": async () => {
    const style = document.head.appendChild(document.createElement("style"));
    style.textContent =
      '@font-face { font-family: "Tried"; font-weight: 700; src: url("data:font/woff2;base64,AAAA") }';
    const faces = await inlineFonts("Tried");
    style.remove();
    return [
      [faces.includes("font-weight:700"), faces.includes("base64,AAAA")],
      [true, true],
    ];
  },
  "a picture is drawn on a whole canvas": async () => {
    const context = Object.assign(document.createElement("canvas"), { width: 64, height: 48 }).getContext("2d");
    await paint(context, writeSvg(square("rgb(255 0 0)"), ""));
    return [[...context.getImageData(60, 44, 1, 1).data], [255, 0, 0, 255]];
  },
};
