import { describeEnd, FilmPicture, SHAPES } from "../../../specrace/ui/static/film/film_picture.js";
import { HOSTILE } from "./fixtures.js";
import { differ, filmed } from "./small_race.js";

const theme = { ink: "#000", dim: "#555", line: "#ddd", ground: "#fff", accepted: "#07b" };
const hues = ["rgb(10 20 30)", "rgb(40 50 60)", "rgb(70 80 90)"];
// The time of the film's last picture, in ms.
const LAST = new FilmPicture(filmed(), { shape: "wide", theme, hues }).length;

// A picture drawn at a time, its texts, and where they are, in shares of the picture's width and height.
function draw(reel, time, shape = "wide") {
  const picture = new FilmPicture(reel, { shape, theme, hues });
  const { width, height } = picture;
  const context = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
  const texts = [];
  const places = [];
  context.fillText = (text, x, y) => {
    texts.push(text);
    places.push([x / width, y / height]);
  };
  picture.draw(context, time);
  return { picture, context, texts, places };
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "at first there is the question, and what took no time": () => {
    const { picture, texts } = draw(filmed(), 0);
    // Each lane's first step ends at 0 ms.
    return [
      [texts.includes("What sat?"), picture.lanes.map(({ frame }) => frame.meters.tokens)],
      [true, [1, 1, 1]],
    ];
  },
  "at the end there are the figures, and what was compared": () => {
    const { texts } = draw(filmed(), LAST);
    return [
      ["1.0×", "2.0×", "0.9×", "All 2 texts: identical to vanilla."].map((text) => texts.includes(text)),
      [true, true, true, true],
    ];
  },
  "the texts are vanilla's and the fastest drafting lane's": () => {
    const { picture, texts } = draw(filmed(), LAST);
    return [
      [picture.shown, texts.filter((text) => text.includes("cat sat"))],
      [
        [0, 1],
        ["The cat sat on", "cat sat"],
      ],
    ];
  },
  "going back shows the earlier moment again": () => {
    const { picture, context } = draw(filmed(), LAST);
    const tokens = () => picture.lanes.map(({ frame }) => frame?.meters.tokens);
    const end = tokens();
    picture.draw(context, 0);
    const first = picture.lanes.map(({ parts }) => parts.length);
    picture.draw(context, LAST);
    return [
      [end, first, tokens()],
      [[4, 4, 4], [1, 1, 1], end],
    ];
  },
  "all is inside the picture, in both shapes": () => {
    const reel = filmed();
    reel.head.question = `${HOSTILE} ${"x".repeat(5000)}`;
    const inside = Object.keys(SHAPES).flatMap((shape) =>
      draw(reel, LAST, shape).places.map(([x, y]) => x >= 0 && x < 1 && y > 0 && y < 1),
    );
    return [inside.every(Boolean), true];
  },
  "a race that does not count has no figures": () => {
    const disturbed = { ...filmed(), pace: { disturbed: true, note: "The machine was disturbed." } };
    const { texts } = draw(disturbed, LAST);
    return [
      [texts.filter((text) => text.includes("×")), texts.includes("The machine was disturbed.")],
      [[], true],
    ];
  },
  "a lane with another text is named": () => [
    [describeEnd(differ(), true), describeEnd({ ...filmed(), phase: "stopped" }, false)],
    ["Lookahead: differs at token 2: near tie, gap 0.004.", "The race was stopped."],
  ],
};
