import { Film } from "../../../specrace/ui/static/film/film.js";
import { put } from "./fixtures.js";
import { filmed } from "./small_race.js";

// A film of a short race; `said` lists the sentences on the page, and `saved` the names of the files.
async function open(reel) {
  const said = [];
  const panes = () => [0, 1, 2].map(() => ({ node: document.body }));
  const film = new Film(put(), { panes, announce: (sentence) => said.push(sentence) });
  film.options = { playMs: 60, endMs: 40 };
  await film.open(reel);
  return { film, said };
}

// The names of the files that are saved during `act`.
async function savedBy(act) {
  const names = [];
  const click = HTMLAnchorElement.prototype.click;
  HTMLAnchorElement.prototype.click = function note() {
    names.push(this.download);
  };
  await act();
  HTMLAnchorElement.prototype.click = click;
  return names;
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "without a whole race there is a sentence instead": async () => {
    const [none, unfinished] = [await open(undefined), await open({ ...filmed(), results: undefined })];
    return [
      [none, unfinished].map(({ film, said }) => [film.node.open, said.length]),
      [
        [false, 1],
        [false, 1],
      ],
    ];
  },
  "each shape has its own picture": async () => {
    const { film } = await open(filmed());
    const sizes = [];
    for (const shape of ["tall", "wide"]) {
      film.shapes[shape].click();
      const pressed = Object.entries(film.shapes).filter(([, node]) => node.getAttribute("aria-pressed") === "true");
      sizes.push([film.canvas.width, film.canvas.height, ...pressed.map(([name]) => name)]);
    }
    film.node.close();
    return [
      sizes,
      [
        [720, 1280, "tall"],
        [1280, 720, "wide"],
      ],
    ];
  },
  "the film is saved under the question's name": async () => {
    const { film } = await open(filmed());
    const names = await savedBy(() => film.save());
    film.node.close();
    return [
      [
        names.length,
        /^race-what-sat\.(mp4|webm)$/.test(names[0]),
        film.video.button.textContent,
        film.status.textContent,
      ],
      [1, true, "Save film", ""],
    ];
  },
  "a film that is closed or stopped is not saved": async () => {
    const { film } = await open(filmed());
    const names = await savedBy(async () => {
      for (const end of [() => film.save(), () => film.node.close()]) {
        film.options = { playMs: 1e6 };
        film.choose("wide");
        const saving = film.save();
        end();
        await saving;
      }
    });
    return [names, []];
  },
};
