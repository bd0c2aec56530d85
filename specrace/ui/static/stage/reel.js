// Reads a reel, a race as the server sends it, into the steps that are played. A frame is what the page shows of a lane
// after a step. The server leaves out of a frame what follows from the step's event, and what is unchanged since the
// last frame.
/** @import { EndPart, FrameChanges, LaneFrame, LaneMeters, Reel, Served, ShownDraft, ShownLane, Step, StepPart } from "../lib/wire.d.ts" */
import { CONSTANTS } from "../lib/constants.js";

const { accepted_shown: ACCEPTED_SHOWN, rejected_shown: REJECTED_SHOWN } = CONSTANTS;

/**
 * A step of lane number `lane`: its number in that lane, the race time at its end, the lane's frame after it, and that
 * frame as the server sent it.
 * @typedef {{ lane: number, index: number, at: number, frame: LaneFrame, event: Step, sent: FrameChanges }} ReadStep
 */

/**
 * A race that can be played. A live race has no ending yet.
 * @typedef {Pick<Reel, "race" | "head" | "started"> & Partial<EndPart> & { steps: ReadStep[] }} PlayedReel
 */

/**
 * What a lane's next frame is computed from: its last frame or, at first, counts of 0.
 * @typedef {Partial<Pick<LaneFrame, "badge" | "sources" | "loops">> & {
 *   meters: Pick<LaneMeters, "accepted" | "drafted" | "tokens" | "steps">,
 * }} LastFrame
 */

// Reads steps one by one, as they arrive.
export class StepReader {
  /** @param {Pick<ShownLane, "lane" | "served">[]} lanes */
  constructor(lanes) {
    this.lanes = lanes;
    this.indices = new Map(lanes.map(({ lane }, index) => [lane, index]));
    /** @type {LastFrame[]} */
    this.last = lanes.map(() => ({ meters: { accepted: 0, drafted: 0, tokens: 0, steps: 0 } }));
  }

  /**
   * @param {StepPart} part
   * @returns {ReadStep}
   */
  read({ event, frame: changes }) {
    const lane = this.indices.get(event.lane);
    const frame = readFrame(lane, event, changes, this.last[lane], this.lanes[lane].served);
    this.last[lane] = frame;
    return { lane, index: event.index, at: event.at_ms, frame, event, sent: changes };
  }
}

/**
 * Reads a whole reel as the server sent it.
 * @param {Reel} sent
 * @returns {PlayedReel}
 */
export function readReel(sent) {
  const reader = new StepReader(sent.head.lanes);
  return { ...sent, steps: sent.steps.map((step) => reader.read(step)) };
}

/**
 * @param {number} lane
 * @param {Step} event
 * @param {FrameChanges} changes
 * @param {LastFrame} last
 * @param {Served | null | undefined} served
 * @returns {LaneFrame}
 */
function readFrame(lane, event, { spans, meters, ...changes }, last, served) {
  const { tree, verdict, emitted } = event;
  const accepted = Math.min(verdict.path.length - 1, emitted.length);
  const drafted = tree.tokens.length - 1;
  /** @type {Pick<LaneMeters, "accepted" | "drafted" | "tokens" | "steps">} */
  const counts = {
    accepted: last.meters.accepted + accepted,
    drafted: last.meters.drafted + drafted,
    tokens: last.meters.tokens + emitted.length,
    steps: last.meters.steps + 1,
  };
  // The counts of a server do not follow from its steps, which lack rejected tokens.
  if (changes.counts) [counts.steps, counts.drafted, counts.accepted, counts.tokens] = changes.counts;
  const draftSize = served ? (event.drafted ?? null) : drafted;
  const draft = { step: event.index, drafted: draftSize, accepted, ...readDraft(event, accepted) };
  return {
    lane,
    badge: changes.badge ?? last.badge,
    sources: changes.sources ?? last.sources,
    loops: changes.loops ?? last.loops,
    runs: readRuns(event, accepted, spans),
    meters: { ...meters, ...counts },
    draft: served && !served.chunks_are_steps ? null : draft,
    end: event.end,
  };
}

/**
 * A step's text as runs [kind, text, tokens]; an accepted run also has the spans it was drafted from. The text of a
 * server that sends no token ids is a run of 0 tokens.
 * @param {Step} event
 * @param {number} accepted
 * @param {FrameChanges["spans"]} spans
 */
function readRuns({ texts, emitted }, accepted, spans) {
  const numOwn = emitted.length - accepted;
  const runs = [];
  if (accepted) runs.push(["accepted", texts.slice(0, accepted).join(""), accepted, ...(spans ? [spans] : [])]);
  if (numOwn || texts.length > emitted.length) runs.push(["own", texts.slice(accepted).join(""), numOwn]);
  return runs;
}

/**
 * The draft's texts: those of the last accepted tokens, and those of the first rejected branch's tokens.
 * @param {Step} event
 * @param {number} accepted
 * @returns {Pick<ShownDraft, "accepted_texts" | "rejected">}
 */
function readDraft({ tree, verdict, pieces }, accepted) {
  const pieceOf = (node) => pieces[node] ?? "";
  const accepted_texts = verdict.path
    .slice(1, accepted + 1)
    .slice(-ACCEPTED_SHOWN)
    .map(pieceOf);
  const rejected = [];
  let node = verdict.path.at(-1);
  // An answer that ends inside its path has no rejected branch.
  if (accepted < verdict.path.length - 1) return { accepted_texts, rejected };
  // The first child of the path's last node, then that child's first child, and so on.
  for (let child = node + 1; child < tree.parents.length && rejected.length < REJECTED_SHOWN; child++) {
    if (tree.parents[child] !== node) continue;
    rejected.push(pieceOf(child));
    node = child;
  }
  return { accepted_texts, rejected };
}
