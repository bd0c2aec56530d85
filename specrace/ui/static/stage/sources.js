// A bar for each lane that shows what its answer was drafted from.
import { make } from "../lib/dom.js";
import { hueOf, labelOf } from "../lib/lanes.js";

// [class, name, tooltip], in the order of a frame's `sources`. The counts of the passages follow.
const SOURCES = [
  ["own", "model's own", "the model's own token, one a step"],
  ["elsewhere", "other tables", "drafted from counts or trajectories; no single place in the text"],
  ["output", "its own output", "drafted from what the lane had already written"],
  ["prompt", "question and titles", "drafted from the rest of the prompt"],
];

function sum(counts) {
  return counts.reduce((total, count) => total + count, 0);
}

export class Sources {
  constructor() {
    this.node = make("div", "sources");
    this.node.setAttribute("aria-label", "Where each answer was drafted from");
    this.node.setAttribute("role", "group");
    this.rows = [];
  }

  setUp(lanes) {
    this.rows = lanes.map((lane) => {
      const row = make("div", "source-row");
      const bar = make("span", "source-bar");
      const share = make("b", "source-share", "–");
      row.dataset.lane = lane.lane;
      row.dataset.hue = hueOf(lane);
      row.append(make("span", "name", labelOf(lane), lane.title), bar, share);
      return { row, bar, share, counts: [] };
    });
    const keys = make("p", "source-keys");
    for (const [kind, words, title] of SOURCES) keys.append(this.drawLegendEntry(kind, words, title));
    keys.append(this.drawLegendEntry("from-passage", "passages, by number", "drafted from a retrieved passage"));
    const head = make("h3", "", "Drafted from where");
    this.node.replaceChildren(head, ...this.rows.map(({ row }) => row), keys);
    this.draw();
  }

  drawLegendEntry(kind, words, title) {
    const key = make("span", "", undefined, title);
    key.append(make("i", kind), words);
    return key;
  }

  reset() {
    for (const row of this.rows) row.counts = [];
  }

  draw() {
    for (const { row, bar, share, counts } of this.rows) {
      const total = sum(counts);
      const copied = sum(counts.slice(SOURCES.length));
      const name = row.firstChild.textContent;
      share.textContent = total ? `${Math.round((100 * copied) / total)} %` : "–";
      share.title = `${copied} of the ${total} tokens of ${name} were drafted from the passages.`;
      bar.replaceChildren(
        ...counts.flatMap((count, index) => (count ? [this.drawSegment(count, index, total, name)] : [])),
      );
    }
  }

  drawSegment(count, source, total, name) {
    const [kind, words] = SOURCES[source] ?? ["from-passage", `passage ${source - SOURCES.length + 1}`];
    const segment = make(
      "i",
      kind,
      SOURCES[source] ? "" : String(source - SOURCES.length + 1),
      `${name}: ${count} of ${total} tokens, ${words}`,
    );
    segment.style.flexGrow = count;
    return segment;
  }
}
