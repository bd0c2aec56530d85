// The three fastest lanes, once the race is over.
/** @import { ResultRow, ShownRepeated } from "../lib/wire.d.ts" */
import { make, setWords } from "../lib/dom.js";
import { describeRange, rankingSpeedup, formatSpeedup } from "../lib/format.js";
import { hueOf } from "../lib/lanes.js";
import { TOOLTIPS } from "../lib/tooltips.js";

const PODIUM = 3;

// The rows that have a place: not those of servers, whose times are not race time.
/** @param {ResultRow[]} rows */
export function rankedRows(rows) {
  return rows.filter((row) => !row.measured);
}

/**
 * The place of each row, 1 for the fastest. Rows of equal speed share a place, and the next place is left out. A row
 * without a place has 0.
 * @param {Pick<ResultRow, "speedup" | "measured">[]} rows
 */
export function rankLanes(rows) {
  const speeds = rows.filter((row) => !row.measured).map(rankingSpeedup);
  return rows.map((row) => (row.measured ? 0 : 1 + speeds.filter((speed) => speed > rankingSpeedup(row)).length));
}

// The rows on the podium, the fastest first.
/** @param {ResultRow[]} rows */
export function findFastest(rows) {
  return rankedRows(rows)
    .sort((a, b) => rankingSpeedup(b) - rankingSpeedup(a))
    .slice(0, PODIUM);
}

/**
 * `repeated`: the figures over several runs, or null after a single run.
 * @param {HTMLElement} host
 * @param {ResultRow[]} rows
 * @param {ShownRepeated | null} repeated
 */
export function showPodium(host, rows, repeated) {
  const places = rankLanes(rows);
  host.replaceChildren(
    ...findFastest(rows).map((row) => {
      const item = make("li", "place");
      const place = places[rows.indexOf(row)];
      const isShared = places.indexOf(place) !== places.lastIndexOf(place);
      item.dataset.place = String(place);
      item.dataset.hue = hueOf(row);
      const name = make("span", "lane-title");
      setWords(name, row.title);
      item.append(
        make("b", "place-speedup", formatSpeedup(row.speedup), TOOLTIPS.speedup),
        name,
        make("small", "rate", `${row.tokens_per_s.toFixed(0)} tok/s`, TOOLTIPS.rate),
        make("small", "", describeRange(repeated, rows.indexOf(row)), TOOLTIPS.range),
        make("i", "", `${isShared ? "=" : ""}${place}`),
      );
      return item;
    }),
  );
  host.hidden = rankedRows(rows).length < 2;
  const arena = /** @type {HTMLElement} */ (host.closest(".arena"));
  arena.dataset.winners = String(places.filter((place) => place === 1).length);
}
