// The entry point of an exported race: an HTML file that contains all it needs, and plays without a server.
/** @import { ExportSettings, RaceCard, Reel } from "./lib/wire.d.ts" */
import { drawStage } from "./draw_stage.js";
import { describeRecording } from "./lib/format.js";
import { findFastest } from "./stage/podium.js";

// The JSON in a script element, where it is compressed and in base64, and so cannot contain markup.
async function unpack({ textContent }) {
  const bytes = Uint8Array.from(atob(textContent), (letter) => letter.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(unpacked).text();
}

/**
 * What the gallery shows of a race.
 * @param {string} name
 * @param {Reel} reel
 * @returns {RaceCard}
 */
function describeCard(name, { head, results, steps }) {
  const [fastest] = findFastest(results);
  return {
    ...head,
    name,
    lanes: head.lanes.map((lane) => lane.title),
    fastest: fastest.title,
    speedup: fastest.speedup,
    temperature: head.settings?.temperature ?? 0,
    ms: Math.max(0, ...steps.map(({ event }) => event.at_ms)),
  };
}

async function openFile() {
  const reels = new Map();
  for (const script of document.querySelectorAll("script")) {
    const { reel: name } = script.dataset;
    if (name !== undefined) reels.set(name, await unpack(script));
  }
  const gallery = [...reels].map(([name, reel]) => describeCard(name, JSON.parse(reel)));
  /** @type {ExportSettings} */
  const props = JSON.parse(document.getElementById("specrace-props").textContent);
  const [first] = gallery;
  document.title = `${props.opens_tour ? "The tour" : (first.question ?? "A race")} · specrace`;
  document.getElementById("provenance").textContent =
    `${describeRecording(first)}. The figures and the comparison of the texts follow from the recorded steps.`;
  drawStage({
    element: document.getElementById("stage-host"),
    props: { ...props, gallery, only_replay: true, takes_files: false, exported: true },
    server: { play_recorded: async (name) => ({ reel: reels.get(name) }) },
    watch: () => {},
  });
}

openFile();
