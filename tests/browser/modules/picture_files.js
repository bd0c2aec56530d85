import {
  recordVideo,
  inlineFonts,
  videoType,
  writeSvg,
} from "../../../specrace/ui/static/explanations/picture_files.js";
import { svg } from "../../../specrace/ui/static/lib/dom.js";

const square = (fill) => {
  const picture = svg("svg", { width: 32, height: 32, viewBox: "0 0 32 32" });
  picture.append(svg("rect", { width: 32, height: 32, fill }), svg("text", {}, "a < b & c"));
  return picture;
};

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
  "pictures become a video": async () => {
    const video = await recordVideo({
      pictureAt: (time) => writeSvg(square(time < 50 ? "red" : "blue"), ""),
      length: 120,
      width: 32,
      height: 32,
      shouldContinue: () => true,
    });
    return [
      [video.size > 0, video.type.split(";")[0]],
      [true, videoType().split(";")[0]],
    ];
  },
};
